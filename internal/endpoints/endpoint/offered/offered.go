// Package offered turns an endpoint's manifests into modules of the catalog, and calls of their
// members into parameters of the capability-router protocol. A manifest's surfaces become items; an
// item becomes a contribution and the [Binding] to its wire method. The package does no I/O.
package offered

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
)

// ExtensionID returns the catalog-wide id of a remote module.
func ExtensionID(module string) string { return "remote." + EscapeID(module, 111) }

// EscapeID converts a foreign name to the grammar of contribution ids: other bytes become
// ~ and two hex digits, and the result is cut at most bytes.
func EscapeID(s string, most int) string {
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
		out = out[:most] + "~" + ShortSum(s)
	}
	return out
}

// Offer builds the modules of one endpoint. Its methods fill Bindings.
type Offer struct {
	Endpoint  string                            // its id
	Primary   bool                              // its primitives go before others'
	Providers map[string]capability.ProviderKey // by family, "ext" for those of modules
	Timeout   time.Duration                     // of a call, 0: the catalog's
	State     capability.Availability
	Draining  map[string]bool // modules that are being reloaded
	Bindings  map[capability.Member]Binding
}

// Primitives returns the module with the low-level families that the endpoint serves.
func (m *Offer) Primitives(has router.Capabilities) capability.Module {
	ext := "endpoint." + EscapeID(m.Endpoint, 111)
	mod := capability.Module{
		Extension: ext, ID: ext, Name: m.Endpoint, Label: m.Endpoint, Origin: "endpoint", Endpoint: m.Endpoint,
	}
	rank := 0
	if m.Primary {
		rank = 100
	}
	for _, method := range router.Methods() {
		if method.Family == router.FamilyPlugin || !has.Has(method.Family) {
			continue
		}
		member := capability.Member{Module: ext, Kind: "function", Name: method.Name}
		m.Bindings[member] = Binding{Method: method.Name, head: []byte("{"), shape: spread}
		timeout := m.Timeout
		if method.Name == "pty.command.run" {
			timeout = maxPTYTimeout + ptyGrace // the call itself has a shorter limit
		}
		mod.Contributions = append(mod.Contributions, capability.Contribution{
			ID: method.Name, Kind: method.Kind, Action: capability.Action(method.Name), Member: member, Effect: method.Effect,
			Provider: m.Providers[string(method.Family)], Rank: rank, Availability: m.State, Timeout: timeout,
			Telemetry: map[string]string{"source": "endpoint", "endpoint": cutTag(m.Endpoint)},
		})
	}
	return mod
}

// Rank returns the first priority that is not nil, limited to plus or minus a million; 0
// without any.
func Rank(stated ...*float64) int {
	for _, p := range stated {
		if p != nil {
			return int(max(-maxRank, min(*p, maxRank)))
		}
	}
	return 0
}

func cutTag(s string) string {
	if len(s) > 64 {
		return s[:64]
	}
	return s
}

// Module returns the catalog's module for a remote one, with each surface that it declares;
// digest is the manifest's.
func (m *Offer) Module(in *router.Module, digest string) capability.Module {
	mod := capability.Module{
		Extension: ExtensionID(in.ID), ID: in.ID, Name: in.Name, Label: in.ID, Version: in.Version,
		Origin: "endpoint", Endpoint: m.Endpoint, Digest: digest, Manifest: in.Raw,
	}
	state := m.State
	if m.Draining[in.ID] && state.Eligible() {
		state = capability.Availability{State: capability.StateDraining, Reason: "the module is being reloaded", Since: state.Since}
	}
	for _, it := range items(in) {
		member := capability.Member{Module: in.ID, Kind: it.method.Surface, Name: it.name}
		m.Bindings[member] = newBinding(in.ID, it)
		kind := it.method.Kind
		kind = cmp.Or(kind, "capability.rpc") // lifecycle and app bridge: callable by code, never by a planner
		effect := it.method.Effect
		if it.method.Name == "plugin.route.call" {
			effect = it.method.EffectOf([]byte(`{"method":"` + it.verb + `"}`))
		}
		var backend *capability.Backend
		if it.method.Surface == "model" {
			backend = &capability.Backend{Class: "model." + it.target, ID: m.Endpoint + "." + in.ID}
		}
		mod.Contributions = append(mod.Contributions, capability.Contribution{
			Backend: backend,
			ID:      EscapeID(it.method.Surface+"."+it.name, 111), Kind: kind, Tool: it.tool, Title: it.title, Description: it.description,
			Member: member, Provider: m.Providers["ext"], Effect: effect, InputSchema: it.schema, Rank: it.rank,
			Availability: state, Timeout: m.Timeout, Telemetry: map[string]string{"source": "endpoint", "endpoint": cutTag(m.Endpoint)},
		})
	}
	return mod
}

// item is one callable operation of a manifest.
type item struct {
	method      router.Method
	target      string // value of the method's target parameter
	verb, path  string // of a route
	name        string // of the member: the target, with the operation if there are several
	tool        string // declared name, for what agents see
	title       string
	description string
	schema      json.RawMessage
	rank        int
	// phases are the optional operations of an evaluator.
	phases map[string]phase
}

// phase is an optional operation of an evaluator.
type phase struct {
	flag string
	has  bool
}

// undeclared returns the manifest's flag that is not set but would allow the item's
// operation; "" if it may be called.
func (it *item) undeclared() string {
	operation := it.method.Name[strings.LastIndexByte(it.method.Name, '.')+1:]
	if p, optional := it.phases[operation]; optional && !p.has {
		return p.flag
	}
	return ""
}

// items lists all callable operations of a module. A surface with several methods has one
// item for each: NAME.shouldRun, NAME.prepare, TYPE.method.
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
			target: e.Name, name: e.Name, description: e.Description, rank: Rank(e.Priority, in.Priority),
			phases: map[string]phase{"prepare": {"hasPrepare", e.HasPrepare}, "process": {"hasProcessor", e.HasProcessor}},
		})
	}
	for _, e := range in.ResponseHandlerEvaluators {
		add("responseHandlerEvaluator", item{target: e.Name, name: e.Name, description: e.Description, rank: Rank(e.Priority, in.Priority)})
	}
	for _, f := range in.ResponseHandlerFieldEvaluators {
		add("responseHandlerFieldEvaluator", item{
			target: f.Name, name: f.Name, description: f.Description, rank: Rank(f.Priority, in.Priority),
			phases: map[string]phase{"parse": {"hasParse", f.HasParse}, "handle": {"hasHandle", f.HasHandle}},
		})
	}
	for _, e := range in.Events {
		add("event", item{target: e.EventName, name: e.EventName})
	}
	for _, model := range in.Models {
		add("model", item{target: model.ModelType, name: model.ModelType, rank: Rank(model.Priority, in.Priority)})
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

// inputSchema returns the JSON Schema of an action's parameters: a schema stays as it is,
// a list of {name, description, required, schema} becomes an object schema, and anything
// else yields no constraint.
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
		var list []router.ActionParameter
		if jsonx.Unmarshal(trimmed, &list) != nil || len(list) == 0 {
			return nil
		}
		properties := make(map[string]jsonx.Raw, len(list))
		required := []string{}
		for _, p := range list {
			if p.Name == "" {
				return nil
			}
			properties[p.Name] = jsonx.Raw(p.Schema)
			if properties[p.Name].Kind() != '{' {
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
