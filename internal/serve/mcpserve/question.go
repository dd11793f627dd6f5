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

// askID is the prefix of the ids of the server's requests to clients.
const askID = "junctor-"

// abilities are the kinds of questions that a client declares to support.
type abilities struct {
	raw                 json.RawMessage // as the client sent it; nil if it sent none
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
			a.form = a.form || modes == 0 // its meaning before modes existed
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

// asker returns an Asker that asks the client of a session on the stream of the call.
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
		timer := time.NewTimer(humanAnswerTimeout)
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
		return nil, capability.Errorf(capability.CodeTimeout, "mcp", "the provider's question was not answered within %s",
			humanAnswerTimeout).With("timeout", "")
	}
}

// answered handles a client's response to a request of the server. It returns false if the
// message is not such a response.
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

// questionParams returns the parameters of a question, {} if it has none.
func questionParams(q capability.Question) json.RawMessage {
	if len(q.Params) == 0 {
		return json.RawMessage("{}")
	}
	return q.Params
}

// questionMembers returns the members method and params of a question, and the brace that
// closes the request.
func questionMembers(q capability.Question) []byte {
	dst := jsonx.AppendString([]byte(`"method":`), q.Method)
	dst = append(append(dst, `,"params":`...), questionParams(q)...)
	return append(dst, '}')
}

// answerOf returns the result of a response, or its error.
func answerOf(m *mcpwire.Message) (json.RawMessage, error) {
	if len(m.Result) > 0 && m.Result[0] == '{' {
		return bytes.Clone(m.Result), nil
	}
	return nil, capability.Errorf(capability.CodeFailed, "mcp", "the client could not answer the provider's question").With("question_failed",
		"")
}

// confirmation returns the form by which a person is asked for approval.
func confirmation(err *capability.Error) capability.Question {
	summary, _ := err.Details["summary"].(string)
	params, _ := jsonx.Marshal(map[string]any{
		"mode": "form", "message": "junctor asks for your approval: " + summary,
		"requestedSchema": map[string]any{
			"type": "object", "required": []string{"decision"},
			"properties": map[string]any{"decision": map[string]any{
				"type": "string", "title": "Decision", "description": "What may be done, and for how long.",
				"enum":      []policy.Decision{policy.DecideOnce, policy.DecideTimed, policy.DecideAlways, policy.DecideDeny},
				"enumNames": []string{"Allow once", "Allow for one hour", "Always allow", "Deny"},
			}},
		},
	})
	return capability.Question{Method: "elicitation/create", Params: params}
}

// decisionOf parses the answer to such a form. Every unclear answer is a denial.
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
