package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// claudeStructured is the same program in structured mode: it asks before it writes, by
// its protocol, and tells by its hooks too, which is not to be believed there.
func claudeStructured(args []string) error {
	var settings, conversation string
	for _, a := range args {
		if path, found := strings.CutPrefix(a, "--settings="); found {
			settings = path
		}
		for _, flag := range []string{"--session-id=", "--resume="} {
			if id, found := strings.CutPrefix(a, flag); found {
				conversation = id
			}
		}
	}
	hook := hooksOf(settings, conversation)
	in := bufio.NewScanner(os.Stdin)
	type message struct {
		Type      string
		RequestID string `json:"request_id"`
		Request   struct{ Subtype string }
		Message   struct{ Content string }
		Response  struct {
			RequestID string `json:"request_id"`
			Response  struct{ Behavior, Message string }
		}
	}
	hear := func() (m message, ok bool) {
		ok = in.Scan() && json.Unmarshal(in.Bytes(), &m) == nil
		return m, ok
	}
	say := func(doc map[string]any) {
		data, _ := json.Marshal(doc)
		fmt.Println(string(data))
	}
	words := func(text string) {
		say(map[string]any{"type": "assistant", "message": map[string]any{
			"role":    "assistant",
			"content": []any{map[string]any{"type": "text", "text": text}},
		}})
	}
	for {
		m, ok := hear()
		switch {
		case !ok:
			return nil
		case m.Type == "control_request" && m.Request.Subtype == "initialize":
			say(map[string]any{"type": "control_response", "response": map[string]any{
				"subtype": "success", "request_id": m.RequestID,
				"response": map[string]any{},
			}})
		case m.Type == "user":
			hook("UserPromptSubmit", map[string]any{"prompt": m.Message.Content})
			say(map[string]any{"type": "system", "subtype": "init", "session_id": conversation})
			words("I was told: " + m.Message.Content + " with " + os.Getenv("MY_SECRET"))
			hook("Stop", map[string]any{"last_assistant_message": "not yet"})
			for n, path := range []string{"hello.txt", "../outside.txt"} {
				id := fmt.Sprintf("ask-%d", n)
				say(map[string]any{"type": "control_request", "request_id": id, "request": map[string]any{
					"subtype": "can_use_tool", "tool_name": "Write", "input": map[string]any{"file_path": path, "content": "hello"},
				}})
				m, ok := hear()
				if !ok || m.Response.RequestID != id {
					return fmt.Errorf("the answer was %+v", m)
				}
				if m.Response.Response.Behavior == "allow" {
					_ = os.WriteFile(path, []byte("hello"), 0o600)
				}
				words(path + ": " + m.Response.Response.Behavior + " " + m.Response.Response.Message)
			}
			say(map[string]any{
				"type": "result", "subtype": "success", "is_error": false, "session_id": conversation, "total_cost_usd": 0.25,
				"modelUsage": map[string]any{"one": map[string]int{"inputTokens": 12, "outputTokens": 3}},
				"result":     "DECISION: wrote hello.txt because the task asked for it, not " + os.Getenv("MY_SECRET"),
			})
		}
	}
}

// TestATaskAgentWithoutATerminal: one in structured mode is spawned, judged, watched,
// answered, undone and resumed as one in a terminal is.
func TestATaskAgentWithoutATerminal(t *testing.T) {
	t.Parallel()
	_, env := agentHome(t)
	n := serve(t, t.TempDir(), append(env, "JUNCTOR_AGENTS_MODE=structured")...) // the default
	admin := n.token(t, "admin")
	spawned := n.spawnAgent(t, `{"agentType":"claude","task":"say hello","customCredentials":{"MY_SECRET":"hush-hush-hush"},"metadata":{"keepAliveAfterComplete":true,"roomId":"r1","validator":{"any":[1]}}}`)
	var done shownAgent
	eventually(t, "the turn is done, and its decision is kept", func() bool {
		done = n.shown(t, spawned.ID)
		return done.Phase == "done" && len(done.Decisions) > 0
	})
	if done.Mode != "structured" || done.ResumeToken == "" || len(done.Decisions) != 1 || done.Usage.InputTokens != 12 ||
		done.Usage.CostUSD != 0.25 || done.CompletedTurns != 1 {
		t.Errorf(`%+v; want done.Mode = "structured", done.ResumeToken other than "", len(done.Decisions) = 1, `+
			"done.Usage.InputTokens = 12, done.Usage.CostUSD = 0.25, done.CompletedTurns = 1", done)
	}
	if string(done.Metadata) != `{"keepAliveAfterComplete":true,"roomId":"r1","validator":{"any":[1]}}` {
		t.Errorf("its metadata are %s; want string(done.Metadata) = "+
			`"{\"keepAliveAfterComplete\":true,\"roomId\":\"r1\",\"validator\":{\"any\":[1]}}"`, done.Metadata)
	}
	if data, err := os.ReadFile(filepath.Join(done.Workdir, "hello.txt")); string(data) != "hello" {
		t.Errorf(`%v; want string(data) = "hello"`, err)
	}
	if exists(filepath.Join(done.Workdir, "..", "outside.txt")) {
		t.Error("a file was written outside of the folder")
	}
	if a := n.request(t, "GET", "/api/v1/audit?event=agent_permission", admin, ""); strings.Count(a.body, `"verdict":"allow"`) != 1 ||
		strings.Count(a.body, `"verdict":"deny"`) != 1 {
		t.Errorf("the record of what was allowed: %d %s; want strings.Count(a.body, `\"verdict\":\"allow\"`) = 1, "+
			"strings.Count(a.body, `\"verdict\":\"deny\"`) = 1", a.status, a.body)
	}
	path := "/api/coding-agents/" + done.ID
	for _, suffix := range []string{"", "/output", "/explain"} {
		if a := n.request(t, "GET", path+suffix, admin, ""); strings.Contains(a.body, "hush") || !strings.Contains(a.body, "•••") {
			t.Errorf(`%s shows what must not be seen, or nothing: %s; want a.body without "hush", a.body with "•••"`,
				suffix, a.body)
		}
	}
	for request, want := range map[string]string{
		"GET /output": "../outside.txt: deny That path is outside", "GET /buffered-output": "I was told", "GET /explain": `"class":1`,
		"GET /screen": "409 no_terminal", "GET /recording": "404 agents.record", `POST /send {"keys":["down"]}`: "409 no_terminal",
		`POST /send {"keys":["hyper"]}`:  "400 unknown_key",
		`POST /send {"keys":["escape"]}`: "409 no_turn", `POST /choose {"label":"Yes"}`: "409 no_dialog",
	} {
		method, rest, _ := strings.Cut(request, " ")
		suffix, body, _ := strings.Cut(rest, " ")
		status, says := "200", want
		if want[0] == '4' {
			status, says, _ = strings.Cut(want, " ")
		}
		if a := n.request(t, method, path+suffix, admin, body); fmt.Sprint(a.status) != status || !strings.Contains(a.body, says) {
			t.Errorf("%s: %d %s; want fmt.Sprint(a.status) = %v, a.body with %v", request, a.status, a.body, status, says)
		}
	}
	if a := n.request(t, "POST", path+"/send", admin, `{"input":"and again"}`); a.status != 200 || !strings.Contains(a.body, `"delivered"`) {
		t.Errorf(`%d %s; want a.status = 200, a.body with "\"delivered\""`, a.status, a.body)
	}
	n.structuredConsole(t, done.ID)
	eventually(t, "both messages are worked off", func() bool { return n.shown(t, done.ID).CompletedTurns == 3 })
	eventually(t, "what they cost is counted once", func() bool {
		var m map[string]struct {
			Completed, TokensIn, TokensOut int
			CostUSD                        float64
		}
		n.ask(t, "GET", "/api/coding-agents/metrics", "", http.StatusOK, &m)
		return m["claude"].Completed == 3 && m["claude"].TokensIn == 12 && m["claude"].TokensOut == 3 && m["claude"].CostUSD == 0.25
	})
	if a := n.request(t, "POST", path+"/stop", admin, ""); a.status != 200 {
		t.Errorf("%d %s; want a.status = 200", a.status, a.body)
	}
	eventually(t, "nothing is left of it", func() bool {
		left, _ := os.ReadDir(filepath.Join(n.home, "agents", "sessions"))
		return n.shown(t, done.ID).Status == "stopped" && len(left) == 0
	})
	again := n.spawnAgent(t, `{"agentType":"claude","mode":"structured","workdir":"`+done.Workdir+`","task":"go on","resumeToken":"`+
		done.ResumeToken+`"}`)
	eventually(t, "it goes on", func() bool { return n.shown(t, again.ID).Phase == "done" })
	if got := n.shown(t, again.ID); got.ResumeToken != done.ResumeToken {
		t.Errorf("%+v; want got.ResumeToken = %v", got, done.ResumeToken)
	}
	eventually(t, "it is stopped, because nobody goes on", func() bool { return n.shown(t, again.ID).Status == "stopped" })
	for body, want := range map[string]string{
		`{"agentType":"shell","mode":"structured"}`: "no_structured_mode",
		`{"agentType":"claude","mode":"telepathy"}`: "bad_mode",
	} {
		if a := n.request(t, "POST", "/api/coding-agents/spawn", admin, body); a.status != http.StatusBadRequest ||
			!strings.Contains(a.body, want) {
			t.Errorf("%s: %d %s; want a.status = http.StatusBadRequest, a.body with %v", body, a.status, a.body, want)
		}
	}
	n.terminate(t)
}

// structuredConsole watches a session without a terminal, and sends it a message.
func (n *node) structuredConsole(t *testing.T, session string) {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(n.url, "http")+"/api/task-agents/console", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + n.token(t, "admin")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(1 << 20)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of a test that fails
	defer cancel()
	for _, c := range [][2]string{
		{`{"type":"subscribe","sessionId":"` + session + `"}`, "I was told: "},
		{`{"type":"control","sessionId":"` + session + `","take":true}`, "no_terminal"},
		{`{"type":"input","sessionId":"` + session + `","data":"x"}`, "no_terminal"},
		{`{"type":"resize","sessionId":"` + session + `","cols":100,"rows":30}`, "no_terminal"},
		{`{"type":"message","sessionId":"` + session + `","text":"from the console"}`, "I was told: from the console"},
	} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(c[0])); err != nil {
			t.Fatal(err)
		}
		for seen := ""; !strings.Contains(seen, c[1]); {
			_, data, err := conn.Read(ctx)
			if err != nil {
				t.Fatalf("%s: %v after %s", c[0], err, seen)
			}
			seen += string(data)
		}
	}
}
