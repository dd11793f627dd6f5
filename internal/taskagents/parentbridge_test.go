package taskagents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/testkit/sessiontest"
)

func conversation(t *testing.T) *session.Messages {
	t.Helper()
	m := session.NewMessages(session.MessagesConfig{Store: sessiontest.NewMemory()})
	for n := range 120 {
		say(t, m, "agent:a", "r", session.RoleUser, fmt.Sprintf("The port is %d", n))
	}
	say(t, m, "agent:a", "r", session.RoleAssistant, "Long: "+strings.Repeat("ä", 700))
	say(t, m, "agent:a", "r", session.RoleUser, "the key is ghp_0123456789abcdefghijABCDEFGHIJ012345")
	say(t, m, "agent:b", "r", session.RoleUser, "The port is somebody else's")
	return m
}

func say(t *testing.T, m *session.Messages, who, in, role, text string) {
	t.Helper()
	if _, err := m.Append(t.Context(), session.Owner{Principal: who, Session: in}, role, text, nil); err != nil {
		t.Fatal(err)
	}
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

func TestMemoryOfAConversation(t *testing.T) {
	t.Parallel()
	p := &parentBridge{rooms: conversation(t), logger: slog.New(slog.DiscardHandler)}
	from := func(who, in string) taskOrigin { return taskOrigin{Creator: who, Session: "s", Room: in} }
	for name, tt := range map[string]struct {
		from   taskOrigin
		query  string
		limit  int
		count  int
		reason string
		last   string
	}{
		"in any case of its letters":     {from("agent:a", "r"), "PORT is 7", 50, 11, "", "The port is 79"},
		"the newest":                     {from("agent:a", "r"), "port", 3, 3, "", "The port is 119"},
		"at most fifty":                  {from("agent:a", "r"), "port", 1000, 50, "", "The port is 119"},
		"at least one":                   {from("agent:a", "r"), "port", -4, 1, "", "The port is 119"},
		"nothing of it":                  {from("agent:a", "r"), "harbour", 10, 0, "", ""},
		"cut":                            {from("agent:a", "r"), "long:", 10, 1, "", "Long: " + strings.Repeat("ä", 593) + "…"},
		"another one's room of the name": {from("agent:b", "r"), "port", 10, 1, "", "The port is somebody else's"},
		"no message of somebody else's":  {from("agent:a", "r"), "somebody", 10, 0, "", ""},
		"a credential is not found":      {from("agent:a", "r"), "ghp_0123", 10, 0, "", ""},
		"somebody without that room":     {from("agent:c", "r"), "port", 10, 0, "parent_context_unavailable", ""},
		"no room":                        {from("agent:a", ""), "port", 10, 0, "parent_context_unavailable", ""},
		"nobody":                         {from("", "r"), "port", 10, 0, "parent_context_unavailable", ""},
		"a room that is not a session":   {from("agent:a", "../r"), "port", 10, 0, "parent_context_unavailable", ""},
		"no query":                       {from("agent:a", "r"), " \n", 10, 0, "missing_query", ""},
		"a query of a book":              {from("agent:a", "r"), strings.Repeat("x", 501), 10, 0, "query_too_long", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := p.memory(t.Context(), tt.from, tt.query, tt.limit)
			if reasonOf(err) != tt.reason || got.Count != tt.count || len(got.Messages) != tt.count {
				t.Fatalf("%+v %v; want reasonOf(err) = %v, got.Count = %v, len(got.Messages) = %v",
					got, err, tt.reason, tt.count, tt.count)
			}
			if tt.count > 0 && (got.Messages[tt.count-1].Text != tt.last || got.RoomID != "r" || got.Messages[0].Speaker == "" ||
				got.Messages[0].CreatedAt == "") {
				t.Errorf("%+v", got)
			}
		})
	}
	got, err := p.memory(t.Context(), from("agent:a", "r"), "the key", 1)
	if err != nil || len(got.Messages) != 1 || strings.Contains(got.Messages[0].Text, "ghp_") {
		t.Errorf(`%+v %v; want no error, len(got.Messages) = 1, got.Messages[0].Text without "ghp_"`, got, err)
	}
	// Messages that the creator passed along count if the room is not ours.
	told := taskOrigin{Creator: "agent:c", Session: "s", Room: "elsewhere", Said: []string{"The Port is 1", "no", "port 2"}}
	got, err = p.memory(t.Context(), told, "port", 10)
	if err != nil || got.Count != 2 || got.Messages[0].Text != "The Port is 1" || got.Messages[0].Speaker != "conversation" {
		t.Errorf(`%+v %v; want no error, got.Count = 2, got.Messages[0].Text = "The Port is 1", got.Messages[0].Speaker = "conversation"`,
			got, err)
	}
	// On the wire a list is a list.
	none, _ := p.memory(t.Context(), from("agent:a", "r"), "harbour", 1)
	if raw, err := jsonx.Marshal(none); err != nil || !strings.Contains(string(raw), `"messages":[]`) {
		t.Errorf(`%s %v; want no error, string(raw) with "\"messages\":[]"`, raw, err)
	}
}

// service answers each op with a text, or fails if it has none.
func service(answers map[string]string, asked *[]string) func(context.Context, taskOrigin, json.RawMessage) (json.RawMessage, error) {
	return func(_ context.Context, o taskOrigin, question json.RawMessage) (json.RawMessage, error) {
		var q struct{ Op string }
		if err := json.Unmarshal(question, &q); err != nil {
			return nil, err
		}
		*asked = append(*asked, o.Creator+" "+string(question))
		if a, ok := answers[q.Op]; ok {
			return json.RawMessage(a), nil
		}
		return nil, errors.New("that it does not know")
	}
}

func TestParentServiceAnswers(t *testing.T) {
	t.Parallel()
	o := taskOrigin{Creator: "agent:a", Session: "s", Thread: "t", Room: "r"}
	var asked []string
	p := &parentBridge{
		rooms: conversation(t), logger: slog.New(slog.DiscardHandler), character: agents.Character{Name: "of the configuration"},
		service: service(map[string]string{
			"decide":  `{"content":[{"type":"text","text":"{\"action\":\"ignore\"}"}]}`,
			"context": `{"character":{"name":"Ada","bio":"She counts.","topics":["engines"]}}`,
			"memory": `{"messages":[{"speaker":"Ada","text":"one","created_at":"then"},{"speaker":"Ada","text":"` + strings.Repeat("x", 700) +
				`"},{"text":"three"}]}`,
		}, &asked),
	}
	if text, err := p.decide(t.Context(), o, "blocked", "What now?"); err != nil || text != `{"action":"ignore"}` {
		t.Errorf(`%s %v; want no error, text = "{\"action\":\"ignore\"}"`, text, err)
	}
	who, in := p.context(t.Context(), o)
	if who == nil || who.Name != "Ada" || len(who.Bio) != 1 || len(who.Topics) != 1 || in == nil || in.ID != "r" || in.ThreadID != "t" {
		t.Errorf(`%+v %+v; want who not nil, who.Name = "Ada", len(who.Bio) = 1, len(who.Topics) = 1, in not nil, in.ID = "r", `+
			`in.ThreadID = "t"`, who, in)
	}
	got, err := p.memory(t.Context(), o, "engine", 2)
	if err != nil || got.Count != 2 || len([]rune(got.Messages[0].Text)) != 600 || got.Messages[1].Text != "three" {
		t.Errorf(`%+v %v; want no error, got.Count = 2, len([]rune(got.Messages[0].Text)) = 600, got.Messages[1].Text = "three"`,
			got, err)
	}
	for i, part := range []string{`"op":"decide"`, `"op":"context"`, `"query":"engine"`} {
		if len(asked) != 3 || !strings.HasPrefix(asked[i], "agent:a {") || !strings.Contains(asked[i], part) ||
			!strings.Contains(asked[i], `"roomId":"r"`) || !strings.Contains(asked[i], `"threadId":"t"`) {
			t.Errorf(`%d: %q; want len(asked) = 3, asked[i] beginning with "agent:a {", asked[i] with %v, asked[i] with `+
				`"\"roomId\":\"r\"", asked[i] with "\"threadId\":\"t\""`, i, asked, part)
		}
	}
}

// A service whose answer is missing or malformed counts as none.
func TestParentServiceWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	o := taskOrigin{Creator: "agent:a", Session: "s", Room: "r"}
	for name, answers := range map[string]map[string]string{
		"it fails":       {},
		"null":           {"context": "null", "memory": "null"},
		"another answer": {"context": `{"character":{"name":7}}`, "memory": `{"messages":"many"}`},
		"no name":        {"context": `{"character":{"name":"","bio":["x"]}}`, "memory": `{}`},
		"words":          {"context": `"I am Ada"`, "memory": `"I forgot"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			p := &parentBridge{
				rooms: conversation(t), service: service(answers, &asked),
				character: agents.Character{Name: "of the configuration", Bio: []string{"b"}}, logger: slog.New(slog.DiscardHandler),
			}
			if who, _ := p.context(t.Context(), o); who == nil || who.Name != "of the configuration" || who.Topics == nil {
				t.Errorf(`%+v; want who not nil, who.Name = "of the configuration", who.Topics not nil`, who)
			}
			if got, err := p.memory(t.Context(), o, "port", 5); err != nil || got.Count != 5 {
				t.Errorf("%+v %v; want no error, got.Count = 5", got, err)
			}
		})
	}
	p := &parentBridge{rooms: conversation(t), logger: slog.New(slog.DiscardHandler)}
	if who, in := p.context(t.Context(), taskOrigin{Session: "s"}); who != nil || in != nil {
		t.Errorf("%+v %+v; want who = nil, in = nil", who, in)
	}
	if _, err := p.decide(t.Context(), o, "blocked", "?"); reasonOf(err) != "parent_context_unavailable" {
		t.Errorf(`%v; want reasonOf(err) = "parent_context_unavailable"`, err)
	}
}

type slowRooms struct{}

func (slowRooms) List(ctx context.Context, _ session.Owner, _ int64, _ int) ([]session.Message, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestParentBridgeHasFiveSeconds(t *testing.T) {
	t.Parallel()
	o := taskOrigin{Creator: "agent:a", Session: "s", Room: "r"}
	waits := func(ctx context.Context, _ taskOrigin, _ json.RawMessage) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, p := range map[string]*parentBridge{"the store": {rooms: slowRooms{}}, "the service": {rooms: slowRooms{}, service: waits}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p.logger = slog.New(slog.DiscardHandler)
				began := time.Now()
				_, err := p.memory(t.Context(), o, "port", 5)
				if took := time.Since(began); reasonOf(err) != "parent_context_timeout" || capability.CodeOf(err) != capability.CodeUnavailable ||
					took != 5*time.Second {
					t.Errorf(`%v after %v; want reasonOf(err) = "parent_context_timeout", capability.CodeOf(err) = `+
						"capability.CodeUnavailable, took = 5 * time.Second", err, took)
				}
				began = time.Now()
				if who, in := p.context(t.Context(), o); who != nil || in == nil || time.Since(began) > 5*time.Second {
					t.Errorf("%v %v after %v; want who = nil, in not nil, time.Since(began) at most 5 * time.Second",
						who, in, time.Since(began))
				}
			})
		})
	}
}

func TestResultText(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`"words"`: "words", `{"result":{"a":1}}`: `{"a":1}`, `{"result":"b"}`: "b", `{"result":1,"of":2}`: `{"result":1,"of":2}`,
		`{"text":"said","data":{}}`: "said", `{"text":7}`: `{"text":7}`,
		`{"output":"a\n"}`: "a\n", `{"content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}`: "a\nb",
		`{"content":[]}`: `{"content":[]}`, `{"content":"a"}`: `{"content":"a"}`, `{"a":1}`: `{"a":1}`, `[1]`: `[1]`, ``: ``, `null`: `null`,
	} {
		if got := resultText(json.RawMessage(raw)); got != want {
			t.Errorf("%s: %q; want got = %v", raw, got, want)
		}
	}
}
