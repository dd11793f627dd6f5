package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// Endpoint serves modules on the capability-router wire. It is a router.Backend,
// safe for concurrent use, and holds nothing that needs closing.
type Endpoint struct {
	list  json.RawMessage // the answer of plugin.modules.list
	ids   []string
	items map[itemKey]serve
}

var _ router.Backend = (*Endpoint)(nil)

// itemKey identifies the item that handles a call. target is empty for routes and assets,
// which are found by path.
type itemKey struct{ method, module, target string }

type serve func(ctx context.Context, p *params) (any, error)

// NewEndpoint checks the modules and returns an endpoint that serves them. Error:
// invalid_input, reason invalid_module, with the module and field in the message, if a
// declaration is wrong, a module id occurs twice, or modules is empty.
func NewEndpoint(modules ...Module) (*Endpoint, error) {
	if len(modules) == 0 {
		return nil, capability.Errorf(capability.CodeInvalidInput, "host.endpoint", "an endpoint needs at least one module").
			With("invalid_module", "declare a module")
	}
	e := &Endpoint{items: make(map[itemKey]serve)}
	manifests := make([]json.RawMessage, 0, len(modules))
	for _, m := range modules {
		if slices.Contains(e.ids, m.ID) {
			return nil, invalidModule(m.ID, "ID", "is given twice")
		}
		m.Views = slices.Clone(m.Views)
		for i := range m.Views {
			m.Views[i].complete()
		}
		if err := m.check(); err != nil {
			return nil, err
		}
		files, err := m.files()
		if err != nil {
			return nil, err
		}
		manifest, err := m.manifest()
		if err != nil {
			return nil, err
		}
		e.ids, manifests = append(e.ids, m.ID), append(manifests, manifest)
		e.register(m, files)
	}
	list, err := jsonx.Marshal(map[string]any{"modules": manifests})
	if err == nil {
		err = router.VerifyResult("plugin.modules.list", list) // the limits of all modules together
	}
	if err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "host.endpoint", "the modules together are not what routers accept: %v", err).
			With("invalid_module", "spread the modules over several endpoints")
	}
	e.list = list
	return e, nil
}

// complete fills in the type, path and integrity of a view with a bundle.
func (v *View) complete() {
	if v.URL != "" {
		return
	}
	v.Path = cmp.Or(v.Path, "/assets/"+v.ID+".js")
	v.ContentType = cmp.Or(v.ContentType, "text/javascript")
}

// ModuleIDs returns the ids of the modules in the order they were given.
func (e *Endpoint) ModuleIDs() []string { return slices.Clone(e.ids) }

// Handler serves the endpoint to callers with the token. With an empty token every caller
// is accepted, and browsers may load assets from any origin; then listen on loopback only.
func (e *Endpoint) Handler(token secret.Value) http.Handler {
	return router.Handler(router.RequireToken(token, e), router.HandlerOptions{
		OpenAssets: token.Empty(), SkipResultCheck: true, // Invoke has checked
	})
}

// Availability reports that modules are served and that no other family is.
func (e *Endpoint) Availability(context.Context) (router.Availability, error) {
	return router.Availability{Environment: "server", Available: true, Capabilities: router.Capabilities{Plugin: true}}, nil
}

// Invoke handles one call. Errors: unknown_capability if the module or item was not
// declared; unavailable for a method of another family; internal, reason panic, after a
// panic; failed for an error without a code; a *router.Error with code
// CAPABILITY_DECODE_FAILED that names the item if its result does not fit the protocol.
func (e *Endpoint) Invoke(ctx context.Context, method string, raw json.RawMessage) (json.RawMessage, error) {
	m, ok := router.Lookup(method)
	switch {
	case !ok:
		return nil, capability.UnknownCapability(capability.Target{Action: capability.Action(method)})
	case m.Family != router.FamilyPlugin:
		e := capability.Errorf(capability.CodeUnavailable, opInvoke, "this endpoint does not offer %s", method)
		return nil, e.With("family_not_offered", "ask GET "+router.PathAvailability+" for the families it has")
	case m.Surface == "module":
		return e.list, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, capability.AsError(err)
	}
	var p params
	if err := jsonx.Unmarshal(raw, &p); err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, opInvoke, "the parameters of %s: %v", method, err)
	}
	name := capability.Member{Module: p.ModuleID, Kind: m.Surface, Name: p.target(m)}
	do, ok := e.items[itemKey{method, p.ModuleID, name.Name}]
	if !ok {
		do, ok = e.items[itemKey{method, p.ModuleID, ""}]
	}
	if !ok {
		return nil, capability.UnknownCapability(name)
	}
	value, err := contained(name.String(), func() (any, error) { return do(ctx, &p) })
	if err != nil {
		return nil, err
	}
	return answer(method, name.String(), value)
}

// answer encodes a result and checks it against the protocol.
func answer(method, name string, value any) (json.RawMessage, error) {
	result, err := jsonx.Marshal(value)
	if err != nil {
		e := capability.Wrap(capability.CodeInternal, opInvoke, name+" answered what cannot be encoded as JSON", err)
		e.Target = name
		return nil, e
	}
	if err := router.VerifyResult(method, result); err != nil {
		if e, ok := errors.AsType[*router.Error](err); ok {
			e.Message = name + " answered against the protocol: " + e.Message
		}
		return nil, err
	}
	return result, nil
}

// contained calls f. It turns a panic into an error, so that a faulty item does not end
// the process, and gives every error a code and a target.
func contained[T any](name string, f func() (T, error)) (result T, err error) {
	defer func() {
		if p := recover(); p != nil {
			e := capability.Wrap(capability.CodeInternal, opInvoke, name+" broke while it was running",
				fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
			e.Reason, e.Target = "panic", name
			var none T
			result, err = none, e
		}
	}()
	result, err = f()
	if err == nil {
		return result, nil
	}
	var none T
	e, coded := errors.AsType[*capability.Error](err)
	switch {
	case coded:
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e = capability.AsError(err)
	default:
		e = capability.Wrap(capability.CodeFailed, opInvoke, name+" failed", err)
	}
	if e.Target == "" {
		copied := *e // a handler may return one shared error value to many calls
		copied.Target = name
		e = &copied
	}
	return none, e
}
