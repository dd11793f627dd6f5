package a2aserve

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/protocol/a2awire"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// askCapability is the key of the question for the capability to call.
const askCapability = "capability"

// howToName is the answer to a message without a capability.
const howToName = `name the capability to call: send a data part {"capability": "<skill id>", "arguments": {…}}; the authenticated extended card lists the skills`

// checkSend returns the fault of a message that cannot be accepted, or nil.
func checkSend(p *a2awire.SendParams) *fault {
	bad := func(format string, args ...any) *fault {
		return refuse(a2a.ErrInvalidParams, fmt.Sprintf(format, args...))
	}
	m := p.Message
	switch {
	case p.Tenant != "":
		return bad("there is no tenant of that name here")
	case m == nil:
		return bad("message is required")
	case m.ID == "" || len(m.ID) > maxID:
		return bad("message.messageId is required and has %d bytes at most", maxID)
	case m.Role != a2awire.RoleUser:
		return bad("message.role must be that of a user")
	case len(m.Parts) == 0 || len(m.Parts) > maxParts:
		return bad("message.parts has 1 to %d parts", maxParts)
	case len(m.TaskID) > maxID:
		return notFound(m.TaskID)
	case m.ContextID != "" && !validContext(m.ContextID):
		return bad("message.contextId has at most %d letters, digits, and . _ : @ -", maxContext)
	case len(p.Metadata) > 0 && p.Metadata.Kind() != '{', len(m.Metadata) > 0 && m.Metadata.Kind() != '{':
		return bad("metadata must be an object")
	}
	for i := range m.Parts {
		if f := checkPart(&m.Parts[i]); f != nil {
			return f
		}
	}
	if c := p.Configuration; c != nil {
		if c.HistoryLength != nil && *c.HistoryLength < 0 {
			return bad("historyLength must not be negative")
		}
		if !accepts(c.AcceptedOutputModes) {
			return refuse(a2a.ErrUnsupportedContentType, "results are application/json and text/plain; acceptedOutputModes has neither")
		}
	}
	return nil
}

func accepts(modes []string) bool {
	return len(modes) == 0 || slices.ContainsFunc(modes, func(m string) bool {
		m, _, _ = strings.Cut(strings.ToLower(m), ";")
		switch strings.TrimSpace(m) {
		case "application/json", "text/plain", "text", "text/*", "application/*", "*/*", "*":
			return true
		}
		return false
	})
}

func validContext(id string) bool {
	return len(id) <= maxContext && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:@-", r)
	})
}

func checkPart(p *a2awire.Part) *fault {
	n := 0
	for _, set := range []bool{p.Text != nil, p.Raw != nil, p.URL != nil, p.Data != nil} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return refuse(a2a.ErrInvalidParams, "a part has exactly one of text, raw, url and data")
	case p.Raw != nil || p.URL != nil:
		return refuse(a2a.ErrUnsupportedContentType, "files are not taken; put what a capability needs into its arguments")
	}
	return nil
}

// wanted is the call that a message requests.
type wanted struct {
	name      string
	arguments json.RawMessage
	selector  capability.Selector
	key       string
}

// wantedBy returns the call that a message requests: a data part with "capability", or
// "skill" or "capability" in the metadata of the message or the request, with the
// arguments in a data part. ok is false if the message names none.
func wantedBy(p *a2awire.SendParams) (w wanted, ok bool, f *fault) {
	var data []jsonx.Raw
	for i := range p.Message.Parts {
		if d := p.Message.Parts[i].Data; d != nil {
			data = append(data, d)
		}
	}
	for _, d := range data {
		var in struct {
			Capability string              `json:"capability"`
			Arguments  jsonx.Raw           `json:"arguments"`
			Select     capability.Selector `json:"select"`
			Key        string              `json:"idempotencyKey"`
		}
		if d.Kind() != '{' || read(d, &in) != nil || in.Capability == "" {
			continue
		}
		if ok {
			return w, false, refuse(a2a.ErrInvalidParams, "a message names one capability, not several")
		}
		if len(in.Arguments) > 0 && in.Arguments.Kind() != '{' && in.Arguments.Kind() != 'n' {
			return w, false, refuse(a2a.ErrInvalidParams, "arguments must be an object")
		}
		if in.Arguments.Kind() == 'n' {
			in.Arguments = nil
		}
		w, ok = wanted{name: in.Capability, arguments: json.RawMessage(in.Arguments), selector: in.Select, key: in.Key}, true
	}
	if ok {
		return w, true, nil
	}
	for _, meta := range []jsonx.Raw{p.Message.Metadata, p.Metadata} {
		var in struct {
			Capability string `json:"capability"`
			Skill      string `json:"skill"`
			SkillID    string `json:"skillId"`
		}
		if len(meta) == 0 || read(meta, &in) != nil {
			continue
		}
		for _, name := range []string{in.Capability, in.Skill, in.SkillID} {
			if name == "" {
				continue
			}
			w.name = name
			for _, d := range data {
				if d.Kind() == '{' {
					w.arguments = json.RawMessage(d)
					break
				}
			}
			return w, true, nil
		}
	}
	return w, false, nil
}

// answerIn builds the answer to an open question from a message: a data part that is the result of
// the question's method, or the content of an accepted form; for people, text: yes or no, or the
// one string that a form requests. ok is false if the message does not answer the question.
func answerIn(m *a2awire.Message, r *tasks.Request) (answer json.RawMessage, ok bool) {
	for i := range m.Parts {
		d := m.Parts[i].Data
		if d.Kind() != '{' {
			continue
		}
		var in struct {
			Action string    `json:"action"`
			Role   string    `json:"role"`
			Nested jsonx.Raw `json:"response"`
		}
		if read(d, &in) != nil {
			continue
		}
		switch {
		case in.Nested.Kind() == '{':
			return json.RawMessage(in.Nested), true
		case in.Action != "" || r.Method != methodElicit:
			return json.RawMessage(d), true
		}
		return accepted(json.RawMessage(d)), true
	}
	text := strings.TrimSpace(m.Text())
	if text == "" {
		return nil, false
	}
	switch strings.ToLower(text) {
	case "no", "deny", "decline", "reject":
		return json.RawMessage(`{"action":"decline"}`), true
	case "cancel":
		return json.RawMessage(`{"action":"cancel"}`), true
	case "yes", "approve", "accept", "once", "ok":
		if r.Approval != "" {
			return json.RawMessage(`{"action":"accept","content":{"decision":"once"}}`), true
		}
	case "timed", "always":
		if r.Approval != "" {
			return accepted(mustMarshal(map[string]string{"decision": strings.ToLower(text)})), true
		}
	}
	switch {
	case r.Approval != "":
		return nil, false
	case r.Method == methodSample:
		return mustMarshal(map[string]any{
			"role": "assistant", "model": "unknown", "content": map[string]string{"type": "text", "text": text},
		}), true
	}
	if name := onlyString(r.Params); name != "" {
		return accepted(mustMarshal(map[string]string{name: text})), true
	}
	return nil, false
}

const (
	methodElicit = "elicitation/create"
	methodSample = "sampling/createMessage"
)

func accepted(content json.RawMessage) json.RawMessage {
	return append(append(json.RawMessage(`{"action":"accept","content":`), content...), '}')
}

func mustMarshal(v any) json.RawMessage {
	data, err := jsonx.Marshal(v)
	if err != nil { // only for text that is not UTF-8
		return json.RawMessage(`{}`)
	}
	return data
}

// onlyString returns the name of the only field of a form if it is a string, else "".
func onlyString(params json.RawMessage) string {
	var p struct {
		Schema struct {
			Properties map[string]struct {
				Type string `json:"type"`
			} `json:"properties"`
		} `json:"requestedSchema"`
	}
	if json.Unmarshal(params, &p) != nil || len(p.Schema.Properties) != 1 {
		return ""
	}
	for name, field := range p.Schema.Properties {
		if field.Type == "string" {
			return name
		}
	}
	return ""
}

// validBase64 reports whether s is the content of a file part.
func validBase64(s string) bool {
	_, err := base64.StdEncoding.DecodeString(s)
	return err == nil
}
