package endpoint

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint/offered"
	"github.com/junctor-run/junctor/protocol/router"
)

// modelInvoke is the canonical action that runs the model of a type with the highest priority.
const modelInvoke = capability.Action("model.invoke")

// modelsID is the id of the module that offers modelInvoke. Its first contribution chooses
// among the models of all endpoints, under this machine's key; each endpoint with models
// has one more, so that a selector can name it.
const modelsID = "core.models"

// stackRank ranks the contribution for all endpoints before those of single endpoints.
const stackRank = 50

// modelStack is the published state of model.invoke; guarded by changing.
type modelStack struct {
	providers map[string]*modelProvider // by endpoint id, "" for all
	shown     []capability.Contribution // nil: none published
}

// publishModels publishes model.invoke for the current models, if they changed. If
// publishing fails, the previous contributions stay. The caller holds changing.
func (r *Registry) publishModels(publish func(capability.Batch) error) {
	if r.cfg.Call == nil {
		return
	}
	b := capability.Batch{Source: modelsID}
	m := capability.Module{Extension: modelsID, ID: modelsID, Name: modelsID, Label: "models", Origin: "core"}
	add := func(id, endpoint string, key capability.ProviderKey, rank int, state capability.Availability) {
		p := r.stack.providers[endpoint]
		if p == nil {
			if r.stack.providers == nil {
				r.stack.providers = make(map[string]*modelProvider)
			}
			p = &modelProvider{r, key, endpoint}
			r.stack.providers[endpoint] = p
		}
		b.Providers = append(b.Providers, p)
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: id, Kind: "capability.runtime-backend", Action: modelInvoke, Effect: capability.EffectExternal, Rank: rank,
			Member: capability.Member{Module: modelsID, Kind: "function", Name: id}, Provider: key, Availability: state,
		})
	}
	for _, ep := range r.all() {
		if !slices.ContainsFunc(ep.offer.Load().modules, func(m router.Module) bool { return len(m.Models) > 0 }) {
			continue
		}
		if len(m.Contributions) == 0 {
			add("model.invoke", "", capability.NewProviderKey("ext", "node", "local"), stackRank,
				capability.Availability{State: capability.StateReady})
		}
		add("model.invoke.of."+offered.EscapeID(ep.id, 90), ep.id, ep.providers["ext"].key, 0, ep.availability())
	}
	same := func(a, b capability.Contribution) bool {
		return a.ID == b.ID && a.Provider == b.Provider && a.Availability == b.Availability
	}
	if slices.EqualFunc(m.Contributions, r.stack.shown, same) {
		return // avoids a catalog snapshot for changes that do not concern models
	}
	if len(m.Contributions) > 0 {
		b.Modules = []capability.Module{m}
	} else {
		r.stack.providers = nil
	}
	if err := publish(b); err != nil {
		r.cfg.Logger.Error("model.invoke not published", "err", err)
		return
	}
	r.stack.shown = m.Contributions
}

// modelProvider executes model.invoke with the models of one endpoint, or of all. It
// chooses between models as arbitration chooses between providers, and runs the chosen one
// through the engine as a separate invocation, which is authorized, limited and recorded
// as a call of that model.
type modelProvider struct {
	r        *Registry
	key      capability.ProviderKey
	endpoint string // "": all
}

// Key returns the endpoint's key, or this machine's for all endpoints.
func (p *modelProvider) Key() capability.ProviderKey { return p.key }

// ReturnsPromptly marks the provider: a call waits only for the inner call, which ends with
// the context.
func (p *modelProvider) ReturnsPromptly() {}

// Invoke runs the model of the type with the highest priority among those that are ready
// and permitted. If none is ready, it tries the highest one, which may be available again.
func (p *modelProvider) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	var in struct {
		ModelType string    `json:"modelType"`
		Params    jsonx.Raw `json:"params"`
	}
	if err := jsonx.Unmarshal(c.Input, &in); err != nil || in.ModelType == "" {
		return capability.Result{}, capability.Errorf(capability.CodeInvalidInput, "model.invoke", "modelType must name a type of model")
	}
	stack := p.r.models(in.ModelType, p.endpoint)
	if len(stack) == 0 {
		return capability.Result{}, capability.Errorf(capability.CodeUnavailable, "model.invoke",
			"no connected module offers a model of type %s", in.ModelType).
			With("no_provider", "connect an endpoint that does; see what there is with: junctor endpoints list").Detail("modelTypes",
			p.r.modelTypes(p.endpoint))
	}
	var last error
	for _, one := range stack {
		result, err := p.r.cfg.Call(ctx, capability.Invocation{
			Parent: c.Invocation, Surface: "model", Principal: c.Principal, Session: c.Session, Audience: capability.AudienceInternal,
			Target: capability.Target{
				Member: capability.Member{Module: one.module, Kind: "model", Name: in.ModelType},
				Select: capability.Selector{"endpoint": one.ep.id},
			},
			Input: paramsOrNone(in.Params),
		})
		if err == nil {
			return result, nil
		}
		last = err
		// Continue with the next model if the principal may not use this one.
		if code := capability.CodeOf(err); code != capability.CodeUnknownCapability && code != capability.CodeDenied {
			break
		}
	}
	return capability.Result{}, last
}

func paramsOrNone(params jsonx.Raw) []byte {
	if len(params) == 0 {
		return nil
	}
	return params
}

// stacked is one model with the module and endpoint that offer it.
type stacked struct {
	ep       *Endpoint
	module   string
	priority int
}

// models returns the models of a type in the order in which they are chosen; endpoint ""
// stands for all.
func (r *Registry) models(modelType, endpoint string) []stacked {
	var out []stacked
	for _, ep := range r.all() {
		if endpoint != "" && ep.id != endpoint {
			continue
		}
		for _, m := range ep.offer.Load().modules {
			for _, model := range m.Models {
				if model.ModelType == modelType {
					out = append(out, stacked{ep, m.ID, offered.Rank(model.Priority, m.Priority)})
				}
			}
		}
	}
	ready := func(s stacked) int {
		if s.ep.availability().Eligible() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out, func(a, b stacked) int {
		return cmp.Or(cmp.Compare(ready(a), ready(b)), cmp.Compare(b.priority, a.priority),
			strings.Compare(offered.ExtensionID(a.module), offered.ExtensionID(b.module)))
	})
	return out
}

// modelTypes returns the sorted model types of an endpoint, or of all if endpoint is "".
func (r *Registry) modelTypes(endpoint string) []string {
	out := []string{}
	for _, ep := range r.all() {
		if endpoint != "" && ep.id != endpoint {
			continue
		}
		for _, m := range ep.offer.Load().modules {
			for _, model := range m.Models {
				out = append(out, model.ModelType)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
