package eliza

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/protocol/router"
)

// Decision is what becomes of a message.
type Decision string

// The decisions.
const (
	Respond Decision = "RESPOND"
	Ignore  Decision = "IGNORE"
	Stop    Decision = "STOP"
)

// The fields of the first answer that every turn has. Modules cannot declare one of these names.
const (
	fieldRespond    = "shouldRespond"
	fieldContexts   = "contexts"
	fieldTool       = "requiresTool"
	fieldCandidates = "candidateActionNames"
	fieldReply      = "replyText"
)

// base are the fields of every turn, in order.
func base() []Field {
	field := func(name, about, schema string) Field {
		return Field{Item: Item{Name: name}, Description: about, Schema: jsonx.Raw(schema)}
	}
	return []Field{
		field(fieldRespond, "RESPOND if the message is for you and wants an answer, IGNORE if it does not, STOP if it asks you to be silent.",
			`{"type":"string","enum":["RESPOND","IGNORE","STOP"]}`),
		field(fieldContexts, "Contexts that the message is about, of those that are listed below.",
			`{"type":"array","items":{"type":"string"}}`),
		field(fieldTool, "true if the answer needs a tool: to look something up, or to do something. false if you can answer at once.",
			`{"type":"boolean"}`),
		field(fieldCandidates, "Names of tools that may be needed, if you know some.", `{"type":"array","items":{"type":"string"}}`),
		field(fieldReply, "The whole answer if requiresTool is false, and empty otherwise.", `{"type":"string"}`),
	}
}

func reserved(name string) bool {
	return name == "" || len(name) > maxName || slices.ContainsFunc(base(), func(f Field) bool { return f.Name == name })
}

// Schema returns the JSON Schema of the first answer. Its bytes depend on the fields only, so that
// they are the same in every turn. All fields are required.
func Schema(fields []Field) (jsonx.Raw, error) {
	out := []byte(`{"type":"object","additionalProperties":false,"properties":{`)
	var names []string
	for i, f := range append(base(), fields...) {
		if i > 0 {
			out = append(out, ',')
		}
		schema := f.Schema
		if len(schema) == 0 {
			schema = jsonx.Raw("{}")
		}
		out = append(append(jsonx.AppendString(out, f.Name), ':'), schema...)
		names = append(names, f.Name)
	}
	required, err := jsonx.Marshal(names)
	if err != nil {
		return nil, err
	}
	return append(append(append(out, `},"required":`...), required...), '}'), nil
}

// Instructions returns the system text of Stage 1: the schema first, then a section for each field.
// The section of a field that is not active requests its empty value.
func Instructions(fields []Field, active map[string]bool, contexts []string) (string, error) {
	schema, err := Schema(fields)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("Read the last message of the conversation, and answer with one JSON object that matches this schema, and nothing else:\n")
	b.Write(schema)
	b.WriteString("\n")
	for _, f := range append(base(), fields...) {
		about := text.ClipBytes(f.Description, maxText)
		if f.Module != "" && !active[f.Name] {
			about = "N/A this turn; emit empty value."
		}
		b.WriteString("\n### " + f.Name + "\n" + about + "\n")
	}
	if len(contexts) > 0 {
		b.WriteString("\n### Contexts\n" + strings.Join(contexts, ", ") + "\n")
	}
	return b.String(), nil
}

// Plan is the result of Stage 1. The zero value is a turn that is answered with tools.
type Plan struct {
	Decision   Decision
	NeedsTool  bool
	Contexts   []string
	Candidates []string // names of tools to describe first
	Hints      []string // names of actions that these belong to
	Slices     []string // names of providers that are wanted
	Reply      string
	// Foreign reports whether Reply is the text of a module.
	Foreign bool
	Values  map[string]json.RawMessage // of all fields
	// Preempt ends the stages: no further handler is asked.
	Preempt *Preempt
	Trace   []string // what modules changed and reported, for the journal
}

// Preempt ends a turn early.
type Preempt struct {
	Mode   string `json:"mode"`
	Reason string `json:"reason"`
}

// The modes of a preempt.
const (
	ackAndStop  = "ack-and-stop"
	ignoreTurn  = "ignore"
	directReply = "direct-reply"
)

// NewPlan returns the plan of a model's first answer. A field that it lacks has the empty value of its
// schema. An answer that is not a JSON object is a turn that is answered with tools; ok is false.
func NewPlan(answer string, fields []Field, available []string) (p Plan, ok bool) {
	values, ok := decodeObject(answer)
	if !ok {
		return Plan{Decision: Respond, NeedsTool: true, Values: map[string]json.RawMessage{}}, false
	}
	p.Values = make(map[string]json.RawMessage)
	for _, f := range append(base(), fields...) {
		p.Values[f.Name] = values[f.Name]
		if values[f.Name] == nil {
			p.Values[f.Name] = emptyValue(f.Schema)
		}
	}
	decode := func(name string, to any) { _ = jsonx.Unmarshal(p.Values[name], to) } // another type counts as the empty value
	// A message that reaches the agent is for it; only modules decide otherwise.
	p.Decision = Respond
	decode(fieldTool, &p.NeedsTool)
	decode(fieldContexts, &p.Contexts)
	decode(fieldCandidates, &p.Candidates)
	decode(fieldReply, &p.Reply)
	p.Contexts, p.Candidates = among(p.Contexts, available), unique(p.Candidates)
	p.Reply = text.ClipBytes(strings.TrimSpace(p.Reply), maxReply)
	if p.Reply == "" {
		p.NeedsTool = true
	}
	return p, true
}

// emptyValue returns the empty value of a schema's type.
func emptyValue(schema jsonx.Raw) json.RawMessage {
	var s struct {
		Type any `json:"type"`
	}
	if jsonx.Unmarshal(schema, &s) != nil {
		return json.RawMessage("null")
	}
	kind, _ := s.Type.(string)
	if list, ok := s.Type.([]any); ok {
		for _, one := range list {
			if name, _ := one.(string); name != "null" {
				kind = name
				break
			}
		}
	}
	switch kind {
	case "string":
		return json.RawMessage(`""`)
	case "array":
		return json.RawMessage(`[]`)
	case "object":
		return json.RawMessage(`{}`)
	case "boolean":
		return json.RawMessage(`false`)
	case "integer", "number":
		return json.RawMessage(`0`)
	}
	return json.RawMessage("null")
}

// unique returns names without repetitions, bounded.
func unique(list []string) (out []string) {
	for _, s := range list {
		s = strings.TrimSpace(s)
		if s == "" || len(s) > maxName || len(out) == maxListed || slices.ContainsFunc(out, func(o string) bool { return strings.EqualFold(o, s) }) {
			continue
		}
		out = append(out, s)
	}
	return out
}

// among returns the names that are available; all, if nothing is.
func among(list, available []string) []string {
	return slices.DeleteFunc(unique(list), func(s string) bool { return len(available) > 0 && !slices.Contains(available, s) })
}

// Apply applies a patch of an item to the plan. A patch can stop or ignore a message, but not answer
// one that is stopped or ignored. A patch with a member of another type changes nothing.
func (p *Plan) Apply(by Item, raw json.RawMessage, available []string) {
	var patch router.ResponsePatch
	if err := jsonx.Unmarshal(raw, &patch); err != nil {
		p.trace(by, "its patch cannot be read: "+err.Error())
		return
	}
	changed := func(what string) { p.trace(by, what) }
	switch d := Decision(patch.ProcessMessage); {
	case d == "" || d == p.Decision:
	case p.Decision == Respond && (d == Ignore || d == Stop):
		p.Decision = d
		changed("processMessage: " + string(d))
	default:
		changed("processMessage was not changed: a module only narrows")
	}
	needs := patch.RequiresTool
	if needs == nil && patch.Simple != nil {
		not := !*patch.Simple
		needs = &not
	}
	if needs != nil {
		p.NeedsTool = *needs
		changed("requiresTool")
	}
	if patch.SetContexts != nil {
		p.Contexts = among(patch.SetContexts, available)
		changed("contexts")
	}
	add := func(name string, to *[]string, more []string) {
		if len(more) > 0 {
			*to = unique(append(*to, more...))
			changed(name)
		}
	}
	add("contexts", &p.Contexts, among(patch.AddContexts, available))
	add("candidateActions", &p.Candidates, patch.AddCandidateActions)
	add("parentActionHints", &p.Hints, patch.AddParentActionHints)
	add("contextSlices", &p.Slices, patch.AddContextSlices)
	if patch.ClearReply {
		p.Reply, p.Foreign = "", false
		changed("reply")
	}
	if patch.Reply != nil {
		p.Reply, p.Foreign = text.ClipBytes(strings.TrimSpace(*patch.Reply), maxReply), true
		changed("reply")
	}
	for _, line := range patch.Debug {
		p.trace(by, line)
	}
}

// Effect is the consequence of a field's value.
type Effect struct {
	Patch   json.RawMessage `json:"patch"`
	Preempt *Preempt        `json:"preempt"`
	Debug   []string        `json:"debug"`
}

// ApplyEffect applies the effect of a field. Members of its patch that are names of fields become their
// values, the others are those of a [router.ResponsePatch].
func (p *Plan) ApplyEffect(f Field, e Effect, fields []Field, available []string) {
	for _, line := range e.Debug {
		p.trace(f.Item, line)
	}
	if len(e.Patch) > 0 {
		patch := e.Patch
		var values map[string]json.RawMessage
		if jsonx.Unmarshal(e.Patch, &values) == nil && values != nil {
			for _, other := range fields {
				if v, ok := values[other.Name]; ok {
					p.Values[other.Name] = v
				}
			}
			for name, member := range map[string]string{
				fieldRespond: "processMessage", fieldContexts: "setContexts", fieldTool: "requiresTool",
				fieldCandidates: "addCandidateActions", fieldReply: "reply",
			} {
				if v, ok := values[name]; ok {
					values[member] = v
				}
			}
			if renamed, err := jsonx.Marshal(values); err == nil {
				patch = renamed
			}
		}
		p.Apply(f.Item, patch, available)
	}
	if pre := e.Preempt; pre != nil && (pre.Mode == ackAndStop || pre.Mode == ignoreTurn || pre.Mode == directReply) {
		p.Preempt = pre
		p.trace(f.Item, "preempt: "+pre.Mode+" "+pre.Reason)
	}
}

// Fail records that an item failed.
func (p *Plan) Fail(by Item, what string) { p.trace(by, "failed: "+what) }

func (p *Plan) trace(by Item, what string) {
	if len(p.Trace) < maxTrace {
		p.Trace = append(p.Trace, by.String()+": "+text.Line(what, maxTraceLine))
	}
}

// Route is what a turn does next.
type Route string

// The routes.
const (
	RouteNone  Route = "none"  // no reply
	RouteReply Route = "reply" // the plan's reply is the reply
	RouteTools Route = "tools" // the model answers with tools
)

// Route returns what the plan leads to. A reply that is missing where one is due is that of the model
// with tools.
func (p *Plan) Route() Route {
	switch {
	case p.Preempt != nil && p.Preempt.Mode == ignoreTurn, p.Decision == Ignore, p.Decision == Stop:
		return RouteNone
	case p.Preempt != nil && p.Reply != "":
		return RouteReply
	case p.Preempt != nil && p.Preempt.Mode == ackAndStop:
		return RouteNone
	case p.NeedsTool || p.Reply == "":
		return RouteTools
	}
	return RouteReply
}
