package invoke

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
)

const (
	fanOutMost    = 64 // providers called by one call
	broadcastMost = 50 // nodes
	fanOutAtOnce  = 8
)

// selectAll is the value of the selector field node that addresses every node.
const selectAll = "all"

// asksAllNodes reports whether a call goes to every node that offers the function.
func (r *run) asksAllNodes() bool { return r.inv.Target.Select["node"] == selectAll }

// byNode returns the results and errors of all nodes as one JSON result.
func byNode(out []answered) (capability.Result, error) {
	nodes := make(map[string]answered, len(out))
	for _, a := range out {
		_, _, node := a.Provider.Parts()
		nodes[node] = a
	}
	value, err := jsonx.Marshal(nodes)
	return capability.Result{Value: value}, err
}

// answered is one provider's part of a call to all providers.
type answered struct {
	Provider capability.ProviderKey `json:"providerKey"`
	OK       bool                   `json:"ok"`
	Result   jsonx.Raw              `json:"result,omitempty"`
	Error    *capability.Error      `json:"error,omitempty"`
}

// asksAll reports whether a call requests every provider's answer: "all": true for an
// action that only reads and whose providers are independent. It is never the default,
// and naming one provider ends it.
func (r *run) asksAll(candidates []*catalog.Entry) bool {
	if r.asksAllNodes() {
		return true
	}
	if len(r.inv.Target.Select) > 0 || r.inv.Target.Action == "" || !bytes.Contains(r.inv.Input, []byte(`"all"`)) {
		return false
	}
	row := candidates[0].Row // a tool may have an argument of that name that means something else
	if row == nil || row.Mode != actions.ModeParallel || !bytes.Contains(row.InputSchema, []byte(`"all"`)) ||
		slices.ContainsFunc(candidates, func(e *catalog.Entry) bool { return e.Effect != capability.EffectRead }) {
		return false
	}
	var in struct {
		All bool `json:"all"`
	}
	return jsonx.Unmarshal(r.inv.Input, &in) == nil && in.All
}

// fanOut calls every eligible provider, each as its own call, and returns the answers
// under the providers' keys, in the order of keys. A failed provider does not affect the
// others.
func (r *run) fanOut(ctx context.Context, candidates []*catalog.Entry) (capability.Result, error) {
	var chosen []*catalog.Entry
	nodes := r.asksAllNodes()
	for _, e := range candidates {
		reason, _ := r.agent.Frame.Candidate(e, audienceOf(r.inv.Audience))
		_, kind, _ := e.Key().Parts()
		if reason == "" && e.Eligible() && e.Provider != nil && (!nodes || kind == "node") {
			chosen = append(chosen, e)
		}
	}
	if nodes {
		if i := slices.IndexFunc(chosen, func(e *catalog.Entry) bool { return e.Effect != capability.EffectRead }); i >= 0 {
			return capability.Result{}, capability.Errorf(capability.CodeInvalidInput, "arbitrate",
				"%s does not only read on %s, so it is not called on all nodes at once", chosen[i].Name(), chosen[i].Module.Label).
				With("invalid_params", "call it on each node by itself")
		}
		r.inv.Target.Select = nil
	}
	if len(chosen) == 0 {
		_, err := r.arbitrate(ctx, candidates) // returns the reason why no provider is eligible
		return capability.Result{}, err
	}
	most := fanOutMost
	if nodes {
		most = broadcastMost
	}
	if len(chosen) > most {
		return capability.Result{}, capability.Errorf(capability.CodeTooLarge, "arbitrate",
			"%d providers could answer; the limit of one call is %d", len(chosen), most).
			With("output_limit", "name one with a selector")
	}
	r.choose(chosen[0]) // for the record
	r.selection.DecidedBy = "all"
	input := r.inv.Input
	if !nodes {
		var err error
		if input, err = withoutAll(input); err != nil {
			return capability.Result{}, err
		}
	}
	r.fire(EventValidated, "")
	out := make([]answered, len(chosen))
	places := make(chan struct{}, fanOutAtOnce)
	var parts sync.WaitGroup
	for i, e := range chosen {
		parts.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			inner := r.inv
			inner.ID, inner.Parent, inner.IdempotencyKey, inner.Progress = "", r.inv.ID, "", nil
			inner.Target = capability.Target{Action: r.inv.Target.Action, Select: capability.Selector{"provider": string(e.Key())}}
			inner.Input = input
			reply, err := r.engine.Invoke(ctx, inner)
			out[i] = answered{Provider: e.Key(), OK: err == nil, Result: jsonx.Raw(reply.Result)}
			if err != nil {
				out[i].Error = capability.AsError(err)
			}
		})
	}
	parts.Wait()
	if err := r.ended(ctx); err != nil {
		return capability.Result{}, err
	}
	if nodes {
		return byNode(out)
	}
	slices.SortFunc(out, func(a, b answered) int { return bytes.Compare([]byte(a.Provider), []byte(b.Provider)) })
	value, err := jsonx.Marshal(map[string]any{"results": out})
	return capability.Result{Value: value}, err
}

// withoutAll returns the input without the argument "all", as sent to each provider.
func withoutAll(input json.RawMessage) (json.RawMessage, error) {
	_, rest, err := jsonx.Cut(input, "all")
	return rest, err
}

func audienceOf(a capability.Audience) capability.Audience {
	if a == "" {
		return capability.AudienceAgent
	}
	return a
}
