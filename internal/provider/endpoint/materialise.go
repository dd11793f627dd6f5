package endpoint

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
)

// batch is what the endpoint offers now, as modules of the catalog: its own
// primitives (fs, git, …) as one module, and each remote module with every
// surface it declares. The bindings that lead a call back to the wire are built
// beside it and swapped in first, so that no published entry lacks one.
func (ep *Endpoint) batch() capability.Batch {
	o := ep.offer.Load()
	m := materialiser{ep: ep, state: ep.availability(), draining: ep.drains(), bindings: make(map[capability.Member]binding)}
	b := capability.Batch{Source: ep.source()}
	for _, domain := range domains() {
		b.Providers = append(b.Providers, ep.providers[domain])
	}
	if primitives := m.primitives(o.availability.Capabilities); len(primitives.Contributions) > 0 {
		b.Modules = append(b.Modules, primitives)
	}
	for i := range o.modules {
		b.Modules = append(b.Modules, m.module(&o.modules[i], o.digests[o.modules[i].ID]))
	}
	ep.bindings.Store(&m.bindings)
	return b
}

// extensionID is the catalog-wide id of a remote module.
func extensionID(module string) string { return "remote." + escapeID(module, 111) }

// escapeID spells a foreign name in the grammar of contribution ids: other bytes
// become ~ and two hex (spec/README section 8), and what is too long is cut.
func escapeID(s string, most int) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._-", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('~')
		b.WriteString(hex.EncodeToString([]byte{c}))
	}
	out := b.String()
	if len(out) > most {
		out = out[:most] + "~" + shortSum(s)
	}
	return out
}

type materialiser struct {
	ep       *Endpoint
	state    capability.Availability
	draining map[string]bool
	bindings map[capability.Member]binding
}

// primitives are the low-level families the endpoint says it serves.
func (m *materialiser) primitives(has router.Capabilities) capability.Module {
	ext := "endpoint." + escapeID(m.ep.id, 111)
	mod := capability.Module{
		Extension: ext, ID: ext, Name: m.ep.id, Label: m.ep.id, Origin: "endpoint", Endpoint: m.ep.id,
	}
	rank := 0
	if m.ep.primary {
		rank = 100
	}
	for _, method := range router.Methods() {
		if method.Family == router.FamilyPlugin || !has.Has(method.Family) {
			continue
		}
		member := capability.Member{Module: ext, Kind: "function", Name: method.Name}
		m.bindings[member] = binding{method: method.Name, head: []byte("{"), shape: spread}
		timeout := m.ep.ownTimeout
		if method.Name == "pty.command.run" {
			timeout = ptyMost + ptyMargin // the call itself has a nearer end
		}
		mod.Contributions = append(mod.Contributions, capability.Contribution{
			ID: method.Name, Kind: method.Kind, Action: capability.Action(method.Name), Member: member, Effect: method.Effect,
			Provider: m.ep.providers[string(method.Family)].key, Rank: rank, Availability: m.state, Timeout: timeout,
			Telemetry: map[string]string{"source": "endpoint", "endpoint": cutTag(m.ep.id)},
		})
	}
	return mod
}

// maxRank bounds what a manifest may say of itself.
const maxRank = 1_000_000

func cutTag(s string) string {
	if len(s) > 64 {
		return s[:64]
	}
	return s
}

func (m *materialiser) module(in *router.Module, digest string) capability.Module {
	mod := capability.Module{
		Extension: extensionID(in.ID), ID: in.ID, Name: in.Name, Label: in.ID, Version: in.Version,
		Origin: "endpoint", Endpoint: m.ep.id, Digest: digest, Manifest: in.Raw,
	}
	state := m.state
	if m.draining[in.ID] && state.Eligible() {
		state = capability.Availability{State: capability.StateDraining, Reason: "the module is being reloaded", Since: state.Since}
	}
	for _, it := range items(in) {
		member := capability.Member{Module: in.ID, Kind: it.method.Surface, Name: it.name}
		m.bindings[member] = bind(in.ID, it)
		kind := it.method.Kind
		if kind == "" {
			kind = "capability.rpc" // lifecycle and app bridge: callable by code, never by a planner
		}
		effect := it.method.Effect
		if it.method.Name == "plugin.route.call" {
			effect = it.method.EffectOf([]byte(`{"method":"` + it.verb + `"}`))
		}
		var backend *capability.Backend
		if it.method.Surface == "model" {
			backend = &capability.Backend{Class: "model." + it.target, ID: m.ep.id + "." + in.ID}
		}
		mod.Contributions = append(mod.Contributions, capability.Contribution{
			Backend: backend,
			ID:      escapeID(it.method.Surface+"."+it.name, 111), Kind: kind, Tool: it.tool, Title: it.title, Description: it.description,
			Member: member, Provider: m.ep.providers["ext"].key, Effect: effect, InputSchema: it.schema, Rank: it.rank,
			Availability: state, Timeout: m.ep.ownTimeout, Telemetry: map[string]string{"source": "endpoint", "endpoint": cutTag(m.ep.id)},
		})
	}
	return mod
}

// item is one callable thing of a manifest.
type item struct {
	method      router.Method
	target      string // value of the method's target parameter
	verb, path  string // of a route
	name        string // of the member: the target, with the operation where there are several
	tool        string // declared name, for what agents see
	title       string
	description string
	schema      json.RawMessage
	rank        int
	// phases are the optional operations of an evaluator (router spec, section 7).
	phases map[string]phase
}

// phase is an optional operation of an evaluator.
type phase struct {
	flag string
	has  bool
}

// undeclared is the flag that would declare the item's operation and is not set;
// "" when it may be called.
func (it *item) undeclared() string {
	operation := it.method.Name[strings.LastIndexByte(it.method.Name, '.')+1:]
	if p, optional := it.phases[operation]; optional && !p.has {
		return p.flag
	}
	return ""
}

// items lists everything callable of a module. A surface with several methods
// has one item for each: NAME.shouldRun, NAME.prepare, TYPE.method.
func items(in *router.Module) []item {
	var out []item
	add := func(surface string, it item) {
		for _, method := range router.Methods() {
			if method.Surface != surface {
				continue
			}
			one := it
			one.method = method
			if several(surface) {
				one.name = it.name + "." + method.Name[strings.LastIndexByte(method.Name, '.')+1:]
			}
			out = append(out, one)
		}
	}
	for _, a := range in.Actions {
		add("action", item{target: a.Name, name: a.Name, tool: a.Name, description: a.Description, schema: inputSchema(a.Parameters)})
	}
	for _, p := range in.Providers {
		add("provider", item{target: p.Name, name: p.Name, description: p.Description})
	}
	for _, e := range in.Evaluators {
		add("evaluator", item{
			target: e.Name, name: e.Name, description: e.Description, rank: rankOf(e.Priority, in.Priority),
			phases: map[string]phase{"prepare": {"hasPrepare", e.HasPrepare}, "process": {"hasProcessor", e.HasProcessor}},
		})
	}
	for _, e := range in.ResponseHandlerEvaluators {
		add("responseHandlerEvaluator", item{target: e.Name, name: e.Name, description: e.Description, rank: rankOf(e.Priority, in.Priority)})
	}
	for _, f := range in.ResponseHandlerFieldEvaluators {
		add("responseHandlerFieldEvaluator", item{
			target: f.Name, name: f.Name, description: f.Description, rank: rankOf(f.Priority, in.Priority),
			phases: map[string]phase{"parse": {"hasParse", f.HasParse}, "handle": {"hasHandle", f.HasHandle}},
		})
	}
	for _, e := range in.Events {
		add("event", item{target: e.EventName, name: e.EventName})
	}
	for _, model := range in.Models {
		add("model", item{target: model.ModelType, name: model.ModelType, rank: rankOf(model.Priority, in.Priority)})
	}
	for _, s := range in.Services {
		for _, method := range s.Methods {
			add("service", item{target: s.ServiceType, verb: method, name: s.ServiceType + "." + method, description: s.CapabilityDescription})
		}
	}
	for _, r := range in.Routes {
		if r.Method != "STATIC" {
			add("route", item{verb: r.Method, path: r.Path, name: r.Method + " " + r.Path, title: r.Name, description: r.Description})
		}
	}
	if in.Lifecycle != nil {
		for _, hook := range in.Lifecycle.Hooks {
			add("lifecycle", item{target: hook, name: hook})
		}
	}
	if in.AppBridge != nil {
		for _, hook := range in.AppBridge.Hooks {
			add("appBridge", item{target: hook, name: hook})
		}
	}
	for _, v := range in.Views {
		if v.BundlePath != "" || v.FramePath != "" {
			// One entry serves all files of a module's views; the input names the path.
			add("view", item{name: "asset"})
			break
		}
	}
	return out
}

func several(surface string) bool {
	switch surface {
	case "evaluator", "responseHandlerEvaluator", "responseHandlerFieldEvaluator":
		return true
	}
	return false
}

// inputSchema makes a JSON Schema of an action's parameters: one that is a schema
// already stays as it is; the list form {name, description, required, schema}
// becomes an object schema; anything else says nothing that could be checked.
func inputSchema(parameters json.RawMessage) json.RawMessage {
	trimmed := bytes.TrimSpace(parameters)
	if len(trimmed) == 0 {
		return nil
	}
	switch trimmed[0] {
	case '{':
		var probe struct {
			Type string `json:"type"`
		}
		if jsonx.Unmarshal(trimmed, &probe) == nil && probe.Type == "object" {
			return trimmed
		}
	case '[':
		var list []struct {
			Name        string    `json:"name"`
			Description string    `json:"description"`
			Required    bool      `json:"required"`
			Schema      jsonx.Raw `json:"schema"`
		}
		if jsonx.Unmarshal(trimmed, &list) != nil || len(list) == 0 {
			return nil
		}
		properties := make(map[string]jsonx.Raw, len(list))
		required := []string{}
		for _, p := range list {
			if p.Name == "" {
				return nil
			}
			properties[p.Name] = p.Schema
			if p.Schema.Kind() != '{' {
				properties[p.Name] = jsonx.Raw(`{}`)
			}
			if p.Required {
				required = append(required, p.Name)
			}
		}
		doc, err := jsonx.Marshal(map[string]any{"type": "object", "properties": properties, "required": required})
		if err == nil {
			return doc
		}
	}
	return nil
}
