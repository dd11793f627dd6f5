package endpoint

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint/offered"
	"github.com/junctor-run/junctor/protocol/router"
)

// The hooks of plugin.lifecycle.call.
const (
	hookInit    = "init"
	hookDispose = "dispose"
	hookApply   = "applyConfig"
)

// HookOutcome is the outcome of one lifecycle hook that junctor called.
type HookOutcome struct {
	ModuleID string    `json:"moduleId"`
	Hook     string    `json:"hook"`
	OK       bool      `json:"ok"`
	Error    string    `json:"error,omitempty"`
	At       time.Time `json:"at"`
}

// HookFailure is a module that was left out of a sync because its init, or the
// applyConfig of its new configuration, failed.
type HookFailure struct {
	ModuleID string            `json:"moduleId"`
	Hook     string            `json:"hook"`
	Error    *capability.Error `json:"error"`
}

// live is a started module: its manifest at that time, and the endpoint id that its hooks
// were called with. A module without hooks counts as started once it is accepted.
type live struct {
	m      router.Module
	digest string
	by     *Endpoint
}

func (ep *Endpoint) started() []live {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.live
}

func (ep *Endpoint) setStarted(list []live) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.live = list
}

func declares(m *router.Module, hook string) bool {
	return m.Lifecycle != nil && slices.Contains(m.Lifecycle.Hooks, hook)
}

// hookConfig returns the module's configuration for hooks: every value except null as
// text, and the reserved keys, which the manifest cannot override.
func hookConfig(m *router.Module, endpoint string) (map[string]string, error) {
	out := make(map[string]string)
	if len(m.Config) > 0 {
		canonical, err := jsonx.Canonical(m.Config) // it writes numbers as JavaScript does
		if err != nil {
			return nil, err
		}
		var values map[string]jsonx.Raw
		if err := jsonx.Unmarshal(canonical, &values); err != nil {
			return nil, err
		}
		for name, value := range values {
			switch value.Kind() {
			case 'n':
			case '"':
				var s string
				if err := jsonx.Unmarshal(value, &s); err != nil {
					return nil, err
				}
				out[name] = s
			default:
				out[name] = string(value)
			}
		}
	}
	delete(out, "remoteCapabilityVersion")
	out["remoteCapabilityModuleId"] = m.ID
	out["remoteCapabilityEndpointId"] = endpoint
	if m.Version != "" {
		out["remoteCapabilityVersion"] = m.Version
	}
	return out, nil
}

// callHook calls a hook that the module declares; a hook that it does not declare counts
// as successful. The answer ok:false is a failure. Every call is audited, and the last
// ones are in the endpoint's status.
func (r *Registry) callHook(ctx context.Context, ep *Endpoint, m *router.Module, hook string) error {
	if !declares(m, hook) {
		return nil
	}
	began := r.cfg.Now()
	err := ep.lifecycle(ctx, m, hook)
	out := HookOutcome{ModuleID: m.ID, Hook: hook, OK: err == nil, At: r.cfg.Now().UTC()}
	rec := audit.Record{
		Logger: "endpoint", Event: audit.CapabilityExecuted, Extension: offered.ExtensionID(m.ID), Action: "plugin.lifecycle.call",
		Runner:  "endpoint",
		Success: audit.OutcomeOf(err == nil), Duration: r.cfg.Now().Sub(began),
	}
	rec.Metadata.Effect = capability.EffectExternal
	rec.Metadata.Attrs = []audit.Attr{{Key: "endpoint", Value: ep.id}, {Key: "module", Value: m.ID}, {Key: "hook", Value: hook}}
	if err != nil {
		e := capability.AsError(err)
		out.Error, rec.Event, rec.Error = e.Message, audit.CapabilityFailed, e.Message
		rec.Metadata.Code, rec.Metadata.Reason = e.Code, e.Reason
		r.cfg.Logger.Warn("lifecycle hook failed", "endpoint", ep.id, "module", m.ID, "hook", hook, "err", err)
	}
	r.append(ctx, rec)
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.hooks = append(ep.hooks, out); len(ep.hooks) > maxHookOutcomes {
		ep.hooks = slices.Delete(ep.hooks, 0, len(ep.hooks)-maxHookOutcomes)
	}
	return err
}

// lifecycle sends one plugin.lifecycle.call within the endpoint's timeout. Its errors have
// the code failed and the reason lifecycle_failed.
func (ep *Endpoint) lifecycle(ctx context.Context, m *router.Module, hook string) error {
	params := struct {
		ModuleID   string            `json:"moduleId"`
		EndpointID string            `json:"endpointId"`
		Hook       string            `json:"hook"`
		Config     map[string]string `json:"config"`
	}{m.ID, ep.id, hook, nil}
	failed := func(message string, err error) error {
		return capability.Wrap(capability.CodeFailed, "endpoints.lifecycle", message, err).
			With("lifecycle_failed", "look at the module's own log, then sync or connect the endpoint again").Detail("moduleId",
			m.ID).Detail("hook", hook)
	}
	var err error
	if params.Config, err = hookConfig(m, ep.id); err != nil {
		return failed("the configuration of module "+m.ID+" cannot be read", err)
	}
	doc, err := json.Marshal(params)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ep.timeout)
	defer cancel()
	answer, err := ep.send(ctx, "plugin.lifecycle.call", doc)
	if err != nil {
		return failed(hook+" of module "+m.ID+" failed: "+capability.AsError(err).Message, err)
	}
	var result struct {
		OK bool `json:"ok"`
	}
	if err := jsonx.Unmarshal(answer, &result); err != nil || !result.OK {
		return failed(hook+" of module "+m.ID+" answered that it is not ok", err)
	}
	return nil
}

// dispose stops modules in reverse order of their start, within disposeTimeout. Failures
// are audited and otherwise ignored.
func (r *Registry) dispose(ctx context.Context, list []live) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), disposeTimeout)
	defer cancel()
	for _, l := range slices.Backward(list) {
		_ = r.callHook(ctx, l.by, &l.m, hookDispose)
	}
}

// onlyConfig reports whether two manifests differ only in config.
func onlyConfig(a, b *router.Module) bool {
	bare := func(m *router.Module) string {
		var members map[string]jsonx.Raw
		if jsonx.Unmarshal(m.Raw, &members) != nil {
			return m.ID + " cannot be read"
		}
		// A signature is over the whole manifest and changes with it.
		delete(members, "config")
		delete(members, "provenance")
		doc, err := jsonx.Marshal(members)
		if err != nil {
			return m.ID + " cannot be written"
		}
		if doc, err = jsonx.Canonical(doc); err != nil {
			return m.ID + " has no canonical form"
		}
		return string(doc)
	}
	return bare(a) == bare(b)
}
