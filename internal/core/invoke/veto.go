package invoke

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// vetoQuestion is the input of a route augmenter before an action that changes data is sent.
type vetoQuestion struct {
	Stage    string                 `json:"stage"` // egress.preparing
	Action   capability.Action      `json:"action"`
	Provider capability.ProviderKey `json:"providerKey"`
	Context  *capability.Context    `json:"context"`
	Input    json.RawMessage        `json:"input"`
}

// askAugmenters calls the route augmenters that watch the action, by priority. The first
// veto cancels the call, and no other provider is tried. A handler that fails cancels the
// call only if it is fail-closed.
func (r *run) askAugmenters(ctx context.Context) error {
	for _, e := range r.augmenters() {
		veto, reason, err := r.ask(ctx, e)
		if ended := r.ended(ctx); ended != nil {
			return ended
		}
		if err != nil {
			if e.Contribution.Augment.FailureMode != "fail-closed" {
				r.log().Warn("a route augmenter failed; the call goes on", "augmenter", e.Runtime, "err", err)
				continue
			}
			veto, reason = true, "it failed, and the call may not go without it"
		}
		if !veto {
			continue
		}
		if r.engine.cfg.Vetoed != nil {
			r.engine.cfg.Vetoed(&r.inv, r.entry, e.Runtime, reason)
		}
		return capability.Errorf(capability.CodeDenied, "route", "%s stopped this call of %s: %s", e.Runtime, r.entry.Name(),
			cmp.Or(reason, "it gave no reason")).
			With("route_vetoed", "nothing was sent, and no other provider was tried").Detail("by", e.Runtime)
	}
	return nil
}

// augmenters returns the route augmenters that may veto the action, highest priority first.
func (r *run) augmenters() []*catalog.Entry {
	if !r.entry.Effect.Mutates() {
		return nil
	}
	var list []*catalog.Entry
	snap := r.agent.Snapshot()
	for _, e := range snap.Action("route.augment") {
		a := e.Contribution.Augment
		if a == nil || a.Effect != "veto" || e.Provider == nil || !e.Eligible() || snap.Withheld(e) != "" {
			continue
		}
		if slices.ContainsFunc(a.Targets, func(target string) bool {
			return rules.Glob(target, string(r.entry.Action)) && !snap.LostTarget(target, e.Runtime)
		}) {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b *catalog.Entry) int {
		return cmp.Or(cmp.Compare(b.Contribution.Augment.Priority, a.Contribution.Augment.Priority), cmp.Compare(a.Runtime, b.Runtime))
	})
	return list
}

// ask calls one route augmenter with the call's input, for at most vetoTimeout, and returns its
// decision. reason has at most maxVetoReason bytes.
func (r *run) ask(ctx context.Context, e *catalog.Entry) (veto bool, reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, vetoTimeout)
	defer cancel()
	question, err := jsonx.Marshal(vetoQuestion{"egress.preparing", r.entry.Action, r.entry.Key(), r.context, r.inv.Input})
	if err != nil {
		return false, "", err
	}
	result, err := r.beside(ctx, e, capability.Call{
		Invocation: r.inv.ID, Capability: e.ID, Action: e.Action, Member: e.Contribution.Member, Principal: r.inv.Principal,
		Session: r.inv.Session, Context: r.context, Input: question, Progress: func(capability.Chunk) {}, Idempotent: true,
	})
	if err != nil {
		return false, "", err
	}
	var answer struct {
		Veto   bool   `json:"veto"`
		Reason string `json:"reason"`
	}
	if err := jsonx.Unmarshal(result.Value, &answer); err != nil {
		return false, "", err
	}
	return answer.Veto, text.CutBytes(answer.Reason, maxVetoReason), nil
}

// beside calls a provider as part of this call, without a slot, state or record of its own. If ctx
// ends, beside returns without waiting for a provider that ignores it.
func (r *run) beside(ctx context.Context, e *catalog.Entry, call capability.Call) (capability.Result, error) {
	type answer struct {
		result capability.Result
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- answer{err: r.panicked(p)}
			}
		}()
		result, err := e.Provider.Invoke(ctx, call)
		done <- answer{result, err}
	}()
	select {
	case a := <-done:
		return a.result, a.err
	case <-ctx.Done():
		return capability.Result{}, ctx.Err()
	}
}
