package mcpserve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/serve/mcpserve/exchange"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

const (
	// humanAnswer is how long somebody who was asked on the spot has.
	humanAnswer = 2 * time.Minute
	// askID begins the ids of requests of ours to clients.
	askID = "junctor-"
)

// abilities are what a client says it can be asked.
type abilities struct {
	raw                 json.RawMessage // as the client has it; nil: nothing was said
	form, url, sampling bool
}

func readAbilities(raw json.RawMessage) abilities {
	a := abilities{raw: raw}
	if len(raw) == 0 || raw[0] != '{' {
		return a
	}
	_ = jsonx.Members(raw, func(name string, value []byte) {
		switch name {
		case "sampling":
			a.sampling = value[0] == '{'
		case "elicitation":
			if value[0] != '{' {
				return
			}
			modes := 0
			_ = jsonx.Members(value, func(mode string, _ []byte) {
				a.form, a.url = a.form || mode == "form", a.url || mode == "url"
				modes++
			})
			a.form = a.form || modes == 0 // what it meant before there were modes
		}
	})
	return a
}

func (a *abilities) any() bool { return a.form || a.url || a.sampling }

// answers reports whether the client can answer q.
func (a *abilities) answers(q capability.Question) bool {
	switch q.Method {
	case "sampling/createMessage":
		return a.sampling
	case "elicitation/create":
		mode := "form"
		if len(q.Params) > 0 && q.Params[0] == '{' {
			_ = jsonx.Members(q.Params, func(name string, value []byte) {
				if name == "mode" {
					mode, _ = jsonx.Text(value)
				}
			})
		}
		return mode == "form" && a.form || mode == "url" && a.url
	}
	return false
}

func cannotAnswer(q capability.Question) error {
	return capability.Errorf(capability.CodeUnavailable, "mcp", "the provider asks something (%s) that this client cannot be asked", q.Method).
		With("caller_cannot_answer", "use a client that declares it")
}

// asker asks the client of a session on the stream of the call.
func (s *Surface) asker(sess *session, x *exchange.Exchange) capability.Asker {
	if !x.Streams || !sess.abilities.any() {
		return nil
	}
	return func(ctx context.Context, q capability.Question) (json.RawMessage, error) {
		if !sess.abilities.answers(q) {
			return nil, cannotAnswer(q)
		}
		id := askID + rand.Text()
		answer := make(chan mcpwire.Message, 1)
		sess.mu.Lock()
		sess.asked[id] = answer
		sess.mu.Unlock()
		defer func() {
			sess.mu.Lock()
			delete(sess.asked, id)
			sess.mu.Unlock()
		}()
		if !x.Event(jsonrpc.AppendRequest(nil, jsonx.AppendString(nil, id), q.Method, questionParams(q))) {
			return nil, cannotAnswer(q)
		}
		timer := time.NewTimer(humanAnswer)
		defer timer.Stop()
		select {
		case m := <-answer:
			return answerOf(&m)
		case <-ctx.Done():
		case <-timer.C:
		}
		x.Event(jsonrpc.AppendRequest(nil, nil, "notifications/cancelled", append(jsonx.AppendString([]byte(`{"requestId":`), id), '}')))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, capability.Errorf(capability.CodeTimeout, "mcp", "nobody answered the provider's question within %s", humanAnswer).With("timeout", "")
	}
}

// answered takes a response of the client to a request of ours; false when it is
// none of those.
func (sess *session) answered(m *mcpwire.Message) bool {
	id, ok := jsonx.Text(m.ID)
	if !ok || !strings.HasPrefix(id, askID) {
		return false
	}
	sess.mu.Lock()
	answer := sess.asked[id]
	delete(sess.asked, id)
	sess.mu.Unlock()
	if answer != nil {
		answer <- *m
	}
	return true
}

// questionParams are the parameters of a request, which may have been left out.
func questionParams(q capability.Question) json.RawMessage {
	if len(q.Params) == 0 {
		return json.RawMessage("{}")
	}
	return q.Params
}

// questionMembers are the members of a request, and the end of it.
func questionMembers(q capability.Question) []byte {
	dst := jsonx.AppendString([]byte(`"method":`), q.Method)
	dst = append(append(dst, `,"params":`...), questionParams(q)...)
	return append(dst, '}')
}

// answerOf is the result of a response.
func answerOf(m *mcpwire.Message) (json.RawMessage, error) {
	if len(m.Result) > 0 && m.Result[0] == '{' {
		return bytes.Clone(m.Result), nil
	}
	return nil, capability.Errorf(capability.CodeFailed, "mcp", "the client could not answer the provider's question").With("question_failed", "")
}

// confirmation is the form in which a person is asked for a yes.
func confirmation(err *capability.Error) capability.Question {
	summary, _ := err.Details["summary"].(string)
	params, _ := jsonx.Marshal(map[string]any{
		"mode": "form", "message": "junctor asks for your approval: " + summary,
		"requestedSchema": map[string]any{
			"type": "object", "required": []string{"decision"},
			"properties": map[string]any{"decision": map[string]any{
				"type": "string", "title": "Decision", "description": "What may be done, and for how long.",
				"enum":      []policy.Decision{policy.DecideOnce, policy.DecideTimed, policy.DecideAlways, policy.DecideDeny},
				"enumNames": []string{"Allow once", "Allow for 15 minutes", "Always allow", "Deny"},
			}},
		},
	})
	return capability.Question{Method: "elicitation/create", Params: params}
}

// decisionOf reads the answer to such a form. Whatever is not a clear yes is a no.
func decisionOf(answer json.RawMessage) policy.Decision {
	var form struct {
		Action  string `json:"action"`
		Content struct {
			Decision policy.Decision `json:"decision"`
		} `json:"content"`
	}
	if jsonx.Unmarshal(answer, &form) != nil || form.Action != "accept" {
		return policy.DecideDeny
	}
	switch form.Content.Decision {
	case policy.DecideOnce, policy.DecideTimed, policy.DecideAlways:
		return form.Content.Decision
	}
	return policy.DecideDeny
}
