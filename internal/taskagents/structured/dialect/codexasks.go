package dialect

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
)

// requestPermissions is the tool by which Codex requests more of its sandbox.
const requestPermissions = "request_permissions"

// wider returns the question about a wider sandbox: files or the network, for this turn or the session.
// It is a question, not a permission, because neither a preset nor a model may widen the sandbox.
func (c *codex) wider(q *Question, p *codexParams) Step {
	if p.Granted.Kind() != '{' || len(p.Granted) > maxShown {
		return c.unshown(q, requestPermissions, "more permissions were refused because they are too large to be shown, or malformed")
	}
	q.Type, q.Tool, q.Input = "question", requestPermissions, encoded(object{"permissions": p.Granted, "cwd": p.Cwd})
	q.Prompt = "Widen its sandbox: " + text.ShortenBytes(string(p.Granted), maxPrompt-len("Widen its sandbox: "))
	q.Cwd, q.Reason = text.ShortenBytes(p.Cwd, maxPrompt), text.ShortenBytes(p.Reason, maxPrompt)
	q.Options = []Option{
		{Label: "Allow for this turn", Kind: "allow_once", answer: encoded(object{"permissions": p.Granted, "scope": "turn"})},
		{Label: "Allow in this session", Kind: "allow_always", answer: encoded(object{"permissions": p.Granted, "scope": "session"})},
		{Label: "Deny", Kind: "reject_once", answer: jsonx.Raw(`{"permissions":{},"scope":"turn"}`)},
	}
	return told(Told{Kind: Asked, Question: q})
}

// unshown refuses a request that cannot be shown whole.
func (c *codex) unshown(q *Question, tool, why string) Step {
	s := sent(c.failure(q.id, jsonrpc.CodeInvalidParams, why))
	s.tell(Told{Kind: Denied, Tool: tool, Call: q.Call, Input: []byte("{}")})
	s.tell(Told{Kind: Warned, Text: why})
	return s
}

// The answers to an elicitation.
var (
	accepted = jsonx.Raw(`{"action":"accept","content":{}}`)
	rejected = jsonx.Raw(`{"action":"decline"}`)
)

// elicitation is a question of an MCP server, or of Codex about a call of one of its tools.
type elicitation struct {
	Server  string `json:"serverName"`
	Mode    string `json:"mode"`
	Message string `json:"message"`
	URL     string `json:"url"`
	Schema  struct {
		Properties map[string]field `json:"properties"`
		Required   []string         `json:"required"`
	} `json:"requestedSchema"`
	Meta struct {
		Kind    string    `json:"codex_approval_kind"`
		Tool    string    `json:"tool_name"`
		Params  jsonx.Raw `json:"tool_params"`
		Persist jsonx.Raw `json:"persist"` // how long an answer may count: a word or a list
	} `json:"_meta"`
}

// elicited returns the question of an MCP server to the user, or the request to call one of its tools.
func (c *codex) elicited(q *Question, params jsonx.Raw) Step {
	var e elicitation
	if len(params) > maxShown || jsonx.Unmarshal(params, &e) != nil {
		return c.unshown(q, "elicitation", "a question of an MCP server was refused because it is too large to be shown, or malformed")
	}
	if e.Meta.Kind == "mcp_tool_call" && e.Mode == "form" && len(e.Schema.Properties) == 0 {
		return c.mcpCall(q, &e)
	}
	q.Type, q.Tool, q.Input = "question", text.ShortenBytes("elicitation of "+e.Server, maxLabel), json.RawMessage(params)
	q.Prompt = text.ShortenBytes(e.Message, maxPrompt)
	deny := Option{Label: "Decline", Kind: "reject_once", answer: rejected}
	switch {
	case e.Mode == "url" && e.URL != "":
		q.Prompt = text.ShortenBytes(e.Message, maxPrompt/2) + "\n" + text.ShortenBytes(e.URL, maxPrompt/2)
		q.Options = []Option{{Label: "I agree to open this address", answer: jsonx.Raw(`{"action":"accept"}`)}, deny}
	case e.Mode == "form" && len(e.Schema.Properties) == 0:
		q.Options = []Option{{Label: "Accept", answer: accepted}, deny}
	case e.Mode == "form":
		if !q.ask(e.form()) {
			return c.unshown(q, q.Tool, "a question of an MCP server was refused because its form cannot be shown whole")
		}
		q.Prompt = text.ShortenBytes(e.Message+"\n"+q.Prompt, maxPrompt)
		q.Options[len(q.Options)-1], q.fields = deny, e.Schema.Properties
	default:
		return c.unshown(q, q.Tool, "a question of an MCP server was refused because its form is unknown: "+text.ShortenBytes(e.Mode, maxLabel))
	}
	return told(Told{Kind: Asked, Question: q})
}

// mcpCall returns the request for permission to call a tool of an MCP server. A server could send the same
// members with a question of its own, so that no preset answers it with yes; one that allows such calls
// has Codex make them without a request.
func (c *codex) mcpCall(q *Question, e *elicitation) Step {
	q.Refusable = true
	if e.Meta.Params.Kind() != '{' {
		e.Meta.Params = jsonx.Raw("{}")
	}
	q.Tool = text.ShortenBytes("mcp__"+e.Server+"__"+e.Meta.Tool, maxLabel)
	q.Input, q.Prompt = json.RawMessage(e.Meta.Params), text.ShortenBytes(e.Message, maxPrompt)
	q.Options = []Option{{Label: "Allow", Kind: "allow_once", answer: accepted}}
	if strings.Contains(string(e.Meta.Persist), `"session"`) {
		q.Options = append(q.Options, Option{
			Label: "Always allow in this session", Kind: "allow_always",
			answer: jsonx.Raw(`{"action":"accept","content":{},"_meta":{"persist":"session"}}`),
		})
	}
	q.Options = append(q.Options, Option{Label: "Deny", Kind: "reject_once", answer: rejected},
		Option{Label: "Stop the turn", Kind: "reject_always", answer: jsonx.Raw(`{"action":"cancel"}`)})
	return told(Told{Kind: Asked, Question: q})
}

// field is one value of a form.
type field struct {
	Type        string   `json:"type"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Enum        []string `json:"enum"`
	Names       []string `json:"enumNames"`
	OneOf       []titled `json:"oneOf"`
	Items       struct {
		Enum  []string `json:"enum"`
		AnyOf []titled `json:"anyOf"`
	} `json:"items"`
}

// titled is one of the possible values.
type titled struct {
	Const string `json:"const"`
	Title string `json:"title"`
}

// values returns the possible values with their titles, which differ; none if any fits.
func (f *field) values() []titled {
	if f.Type == "boolean" {
		return []titled{{"true", "Yes"}, {"false", "No"}}
	}
	list := append(slices.Clone(f.OneOf), f.Items.AnyOf...)
	for i, v := range append(slices.Clone(f.Enum), f.Items.Enum...) {
		one := titled{Const: v, Title: v}
		if i < len(f.Names) {
			one.Title = f.Names[i]
		}
		list = append(list, one)
	}
	seen := make(map[string]bool)
	for i := range list {
		v := &list[i]
		if v.Title = cmp.Or(v.Title, v.Const); seen[v.Title] {
			v.Title += " (" + v.Const + ")"
		}
		seen[v.Title] = true
	}
	return list
}

// form returns the fields as questions, sorted by name. The program validates the values.
func (e *elicitation) form() (form []detect.Question) {
	for _, name := range slices.Sorted(maps.Keys(e.Schema.Properties)) {
		f := e.Schema.Properties[name]
		q := detect.Question{ID: name, Text: cmp.Or(f.Title, name), Multiple: f.Type == "array"}
		if f.Description != "" {
			q.Text += " (" + f.Description + ")"
		}
		if f.Type != "boolean" && !slices.Contains(e.Schema.Required, name) {
			q.Text += " (optional)"
		}
		for _, v := range f.values() {
			q.Options = append(q.Options, detect.Choice{Label: v.Title})
		}
		q.FreeText = len(q.Options) == 0
		form = append(form, q)
	}
	return form
}

// content returns the values of a form with the types of its fields.
func (q *Question) content(answers map[string][]string) object {
	content := make(object, len(answers))
	for name, given := range answers {
		f, ok := q.fields[name]
		if !ok || len(given) == 0 {
			continue
		}
		given = slices.Clone(given)
		for i, g := range given {
			for _, v := range f.values() {
				if v.Title == g {
					given[i] = v.Const
					break
				}
			}
		}
		var number json.Number
		switch {
		case f.Type == "array":
			content[name] = given
		case f.Type == "boolean":
			content[name] = given[0] == "true"
		case (f.Type == "number" || f.Type == "integer") && json.Unmarshal([]byte(given[0]), &number) == nil:
			content[name] = jsonx.Raw(number)
		default:
			content[name] = given[0]
		}
	}
	return content
}
