package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/secret"
)

// variables are those of a session's program.
func (n *node) variables(t *testing.T, id string) map[string]string {
	t.Helper()
	var out map[string]string
	eventually(t, "its program has begun", func() bool { // while it does, it has none
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", n.shown(t, id).Pid))
		if err != nil {
			t.Fatal(err)
		}
		out = map[string]string{}
		for entry := range strings.SplitSeq(string(data), "\x00") {
			name, value, _ := strings.Cut(entry, "=")
			out[name] = value
		}
		return out["ELIZA_HOOK_TOKEN"] != ""
	})
	return out
}

// sessionToken is the token that the program of a session has.
func (n *node) sessionToken(t *testing.T, id string) string {
	t.Helper()
	return n.variables(t, id)["ELIZA_HOOK_TOKEN"]
}

type parentContext struct {
	Room      *struct{ ID, Thread_ID string } // as on the wire
	Character *struct {
		Name        string
		Bio, Topics []string
	}
}

type parentMemory struct {
	RoomID   string `json:"room_id"`
	Count    int
	Messages []struct {
		Speaker, Text string
		CreatedAt     string `json:"created_at"`
	}
	Code string
}

// bridge asks what a session's parent knows.
func (n *node) bridge(t *testing.T, id, token, what string, status int, into any) {
	t.Helper()
	a := n.request(t, "GET", "/api/coding-agents/"+id+"/"+what, "", "", func(r *http.Request) { r.Header.Set("X-Parallax-Hook-Token", token) })
	if a.status != status {
		t.Fatalf("%s of %s: %d %s; want a.status = %v", what, id, a.status, a.body, status)
	}
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		t.Fatalf("%s: %v in %s", what, err, a.body)
	}
}

// TestTheRoomOfATask requires that agents can read the conversation in which their task was
// given, and no other.
func TestTheRoomOfATask(t *testing.T) {
	t.Parallel()
	_, env := scriptedHome(t)
	n := serve(t, t.TempDir(), append(env, "JUNCTOR_AGENTS_CHARACTER_NAME=Ada", "JUNCTOR_AGENTS_CHARACTER_BIO=She counts, and writes.",
		"JUNCTOR_AGENTS_CHARACTER_TOPICS=engines,looms")...)
	var made struct{ Token string }
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/tokens", map[string]string{"role": "operator", "name": "olga"},
		&made); err != nil {
		t.Fatal(err)
	}
	people := map[string]string{"admin": n.token(t, "admin"), "olga": made.Token}
	sessions := map[string]string{}
	for who, token := range people {
		for i := range 12 {
			body := mustJSON(t, map[string]any{"session_id": "lounge", "text": fmt.Sprintf("%s wants the port to be %d", who, 8000+i)})
			if a := n.request(t, "POST", "/api/v1/chat/messages", token, body); a.status >= 400 {
				t.Fatalf("%d %s; want a.status less than 400", a.status, a.body)
			}
		}
		a := n.request(t, "POST", "/api/coding-agents/coordinator/threads", token, `{"task":"linger","agentType":"claude","roomId":"lounge"}`)
		var thread createdThread
		if err := json.Unmarshal([]byte(a.body), &thread); err != nil || len(thread.Agents) != 1 || thread.Agents[0].SessionID == "" {
			t.Fatalf(`%d %s; want no error, len(thread.Agents) = 1, thread.Agents[0].SessionID other than ""`, a.status, a.body)
		}
		sessions[who] = thread.Agents[0].SessionID
		token := n.sessionToken(t, sessions[who])
		var about parentContext
		n.bridge(t, sessions[who], token, "parent-context", http.StatusOK, &about)
		if about.Room == nil || about.Room.ID != "lounge" || about.Room.Thread_ID != thread.ThreadID {
			t.Errorf(`%s: %+v; want about.Room not nil, about.Room.ID = "lounge", about.Room.Thread_ID = %v`,
				who, about.Room, thread.ThreadID)
		}
		if c := about.Character; c == nil || c.Name != "Ada" || len(c.Bio) != 1 || len(c.Topics) != 2 {
			t.Errorf(`%s: %+v; want c not nil, c.Name = "Ada", len(c.Bio) = 1, len(c.Topics) = 2`, who, c)
		}
	}
	for who, other := range map[string]string{"admin": "olga", "olga": "admin"} {
		token, id := n.sessionToken(t, sessions[who]), sessions[who]
		var said parentMemory
		n.bridge(t, id, token, "memory?q=PORT", http.StatusOK, &said)
		if said.Count != 10 || said.RoomID != "lounge" || said.Messages[9].Speaker != "user" || said.Messages[9].CreatedAt == "" {
			t.Errorf(`%s: %+v; want said.Count = 10, said.RoomID = "lounge", said.Messages[9].Speaker = "user", `+
				`said.Messages[9].CreatedAt other than ""`, who, said)
		}
		for _, m := range said.Messages {
			if !strings.HasPrefix(m.Text, who+" wants") {
				t.Errorf(`%s reads %+v; want m.Text beginning with who + " wants"`, who, m)
			}
		}
		for query, want := range map[string]int{"q=port&limit=3": 3, "q=port&limit=1000": 12, "q=port&limit=0": 1, "q=" + other: 0} {
			var said parentMemory
			if n.bridge(t, id, token, "memory?"+query, http.StatusOK, &said); said.Count != want {
				t.Errorf("%s: %s: %d messages; want said.Count = %v", who, query, said.Count, want)
			}
		}
		for query, code := range map[string]string{
			"": "missing_query", "?q=%20": "missing_query", "?q=port&limit=many": "bad_query",
			"?q=" + strings.Repeat("x", 501): "query_too_long",
		} {
			var refused parentMemory
			if n.bridge(t, id, token, "memory"+query, http.StatusBadRequest, &refused); refused.Code != code {
				t.Errorf("%s: %s; want refused.Code = %v", query, refused.Code, code)
			}
		}
		for _, what := range []string{"parent-context", "memory?q=port", "active-workspaces"} {
			var refused parentMemory
			if n.bridge(t, sessions[other], token, what, http.StatusForbidden, &refused); refused.Code != "other_session" {
				t.Errorf(`%s: %+v; want refused.Code = "other_session"`, what, refused)
			}
		}
	}
	// A verb says by itself where it was used.
	var used struct {
		Result struct {
			Data struct {
				Agents []struct{ SessionID string }
			}
		}
	}
	n.ask(t, "POST", "/api/v1/invocations", `{"target":"task-agent.task.create","session":"lounge","input":{"task":"linger","agentType":"claude"}}`, http.StatusOK, &used)
	if len(used.Result.Data.Agents) != 1 {
		t.Fatalf("%+v; want len(used.Result.Data.Agents) = 1", used)
	}
	verb := used.Result.Data.Agents[0].SessionID
	var heard parentMemory
	if n.bridge(t, verb, n.sessionToken(t, verb), "memory?q=port&limit=1", http.StatusOK, &heard); heard.Count != 1 ||
		!strings.HasPrefix(heard.Messages[0].Text, "admin wants") {
		t.Errorf(`%+v; want heard.Count = 1, heard.Messages[0].Text beginning with "admin wants"`, heard)
	}
	// A task without a conversation, and the end of one.
	alone := n.spawnAgent(t, `{"agentType":"claude","task":"linger","metadata":{"threadId":"none-of-ours","roomId":"lounge"}}`)
	token := n.sessionToken(t, alone.ID)
	var about parentContext
	var refused parentMemory
	if n.bridge(t, alone.ID, token, "parent-context", http.StatusOK, &about); about.Room != nil {
		t.Errorf("%+v; want about.Room = nil", about.Room)
	}
	if n.bridge(t, alone.ID, token, "memory?q=port", http.StatusServiceUnavailable, &refused); refused.Code != "parent_context_unavailable" {
		t.Errorf(`%+v; want refused.Code = "parent_context_unavailable"`, refused)
	}
	n.ask(t, "POST", "/api/coding-agents/"+alone.ID+"/stop", `{"force":true}`, http.StatusOK, nil)
	eventually(t, "it has ended", func() bool { return n.shown(t, alone.ID).Status == "stopped" })
	for _, what := range []string{"parent-context", "memory?q=port", "active-workspaces"} {
		if n.bridge(t, alone.ID, token, what, http.StatusGone, &refused); refused.Code != "task_no_longer_active" {
			t.Errorf(`%s: %+v; want refused.Code = "task_no_longer_active"`, what, refused)
		}
	}
	n.terminate(t)
}

// TestAParentService: a service of a module decides and answers in the parent's place.
func TestAParentService(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]map[string]any{}
	answers := map[string]any{
		"decide":  map[string]any{"action": "complete", "reasoning": "it is what I wanted"},
		"context": map[string]any{"character": map[string]any{"name": "Grace", "bio": []string{"She compiles."}}},
		"memory": map[string]any{"messages": []any{map[string]string{
			"speaker": "Grace", "text": "use the short one",
			"created_at": "2026-01-02T03:04:05Z",
		}}},
	}
	mind, err := host.NewEndpoint(host.Module{
		ID: "mind", Name: "mind",
		Services: []host.Service{{Type: "agent", Methods: []host.ServiceMethod{{
			Name: "ask", Call: func(_ context.Context, args []json.RawMessage) (any, error) {
				var q map[string]any
				if len(args) != 1 || json.Unmarshal(args[0], &q) != nil {
					return nil, fmt.Errorf("%s", args)
				}
				op, _ := q["op"].(string)
				mu.Lock()
				defer mu.Unlock()
				asked[op] = q
				return answers[op], nil
			},
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	far := httptest.NewServer(mind.Handler(secret.Value{}))
	t.Cleanup(far.Close)
	_, env := scriptedHome(t)
	n := serve(t, t.TempDir(), append(env, "JUNCTOR_AGENTS_PARENT=mind:service:agent.ask", "JUNCTOR_AGENTS_CHARACTER_NAME=Ada")...)
	n.connect(t, "far", far.URL, false)
	var made createdThread
	n.ask(t, "POST", "/api/coding-agents/coordinator/threads", mustJSON(t, map[string]any{
		"task": "Write.", "agents": []any{
			map[string]any{"label": "one", "agentType": "claude", "task": "say Which of the two shall it be?"},
			map[string]any{"label": "two", "agentType": "claude", "task": "linger"},
		},
	}), http.StatusCreated, &made)
	one, two := made.Agents[0].SessionID, made.Agents[1].SessionID
	token := n.sessionToken(t, two)
	var about parentContext
	if n.bridge(t, two, token, "parent-context", http.StatusOK, &about); about.Character == nil || about.Character.Name != "Grace" ||
		about.Room != nil {
		t.Errorf(`%+v; want about.Character not nil, about.Character.Name = "Grace", about.Room = nil`, about)
	}
	var said parentMemory
	if n.bridge(t, two, token, "memory?q=short", http.StatusOK, &said); said.Count != 1 || said.Messages[0].Text != "use the short one" {
		t.Errorf(`%+v; want said.Count = 1, said.Messages[0].Text = "use the short one"`, said)
	}
	// What it says about the question is done, without a model.
	eventually(t, "the first is done", func() bool {
		for _, s := range n.thread(t, made.ThreadID).Sessions {
			if s.SessionID == one {
				return s.Status == "completed"
			}
		}
		return false
	})
	mu.Lock()
	defer mu.Unlock()
	if q := asked["decide"]; q["sessionId"] != one || q["threadId"] != made.ThreadID || q["event"] != "turn_complete" ||
		!strings.Contains(fmt.Sprint(q["prompt"]), "Which of the two") {
		t.Errorf(`it was asked %v; want q["sessionId"] = %v, q["threadId"] = %v, q["event"] = "turn_complete", `+
			`fmt.Sprint(q["prompt"]) with "Which of the two"`, q, one, made.ThreadID)
	}
	if q := asked["memory"]; q["query"] != "short" || q["limit"] != 10.0 {
		t.Errorf(`it was asked %v; want q["query"] = "short", q["limit"] = 10.0`, q)
	}
	n.terminate(t)
}

// TestAParentServiceIsNoOneElses: with the rights of an agent that needs an approval for it
// the service is not asked, and no approval is requested.
func TestAParentServiceIsNoOneElses(t *testing.T) {
	t.Parallel()
	mind, err := host.NewEndpoint(host.Module{
		ID: "mind", Name: "mind",
		Services: []host.Service{{Type: "agent", Methods: []host.ServiceMethod{{
			Name: "ask", Call: func(context.Context, []json.RawMessage) (any, error) {
				t.Error("it was asked")
				return nil, nil
			},
		}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	far := httptest.NewServer(mind.Handler(secret.Value{}))
	t.Cleanup(far.Close)
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "policy"), 0o700); err != nil {
		t.Fatal(err)
	}
	const rules = `@id("people") permit (principal in Role::"admin", action, resource);
@id("tasks") permit (principal in Role::"agent", action == Action::"task-agent.task.create", resource);
@id("rest") @consent("operator") permit (principal in Role::"agent", action, resource);`
	if err := os.WriteFile(filepath.Join(home, "policy", "own.cedar"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	_, env := scriptedHome(t)
	n := serve(t, home, append(env, "JUNCTOR_AGENTS_PARENT=mind:service:agent.ask", "JUNCTOR_AGENTS_CHARACTER_NAME=Ada")...)
	n.connect(t, "far", far.URL, false)
	var used struct {
		Result struct {
			Data struct {
				Agents []struct{ SessionID string }
			}
		}
	}
	if err := n.agent.Do(t.Context(), http.MethodPost, "/api/v1/invocations", map[string]any{
		"target": "task-agent.task.create", "session": "lounge", "input": map[string]string{"task": "linger", "agentType": "claude"},
	}, &used); err != nil || len(used.Result.Data.Agents) != 1 {
		t.Fatalf("%+v %v; want no error, len(used.Result.Data.Agents) = 1", used, err)
	}
	id := used.Result.Data.Agents[0].SessionID
	token := n.sessionToken(t, id)
	var about parentContext
	if n.bridge(t, id, token, "parent-context", http.StatusOK, &about); about.Character == nil || about.Character.Name != "Ada" {
		t.Errorf(`%+v; want about.Character not nil, about.Character.Name = "Ada"`, about)
	}
	var said parentMemory
	if n.bridge(t, id, token, "memory?q=port", http.StatusServiceUnavailable, &said); said.Code != "parent_context_unavailable" {
		t.Errorf(`%+v; want said.Code = "parent_context_unavailable"`, said)
	}
	if list := n.ask(t, "GET", "/api/v1/confirmations", "", http.StatusOK, nil); strings.Contains(list, "mind") {
		t.Errorf(`people are asked: %s; want list without "mind"`, list)
	}
	n.terminate(t)
}
