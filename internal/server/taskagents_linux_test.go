package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/cast"
	"github.com/junctor-run/junctor/internal/testkit/fakecli"
	"github.com/junctor-run/junctor/internal/testkit/programfile"
)

// claudeMain is an agent's program that is started as Claude Code is, tells by the hooks
// of its settings what it does, and does what these say.
func claudeMain(args []string) error {
	if done, err := claudeFacts(args); done {
		return err
	}
	if slices.Contains(args, "--input-format=stream-json") {
		return claudeStructured(args)
	}
	settings, task, conversation, err := claudeStart(args)
	if err != nil {
		return err
	}
	hook := hooksOf(settings, conversation)
	fakecli.Run(context.Background(), os.Stdin, os.Stdout, func(ctx context.Context, s *fakecli.Screen) {
		if strings.HasSuffix(task, "sign in first") { // and then it is forgotten
			s.Ask(ctx, fakecli.Dialog{
				Question: "Select login method:",
				Options:  []string{"Claude account with subscription", "Anthropic Console account"},
			})
			task = ""
			s.Idle()
		}
		for text, ok := task, true; ok; text, ok = s.Prompt(ctx) {
			if text == "" {
				continue
			}
			if task != "" {
				s.Say("❯ " + text)
				task = ""
			}
			hook("UserPromptSubmit", map[string]any{"prompt": text})
			if _, rate, found := strings.Cut(text, "stream "); found {
				stream(ctx, s, rate)
				return
			}
			s.Work(ctx, 300*time.Millisecond)
			for _, path := range []string{"hello.txt", "../outside.txt"} {
				tool := map[string]any{"tool_name": "Write", "tool_input": map[string]any{"file_path": path, "content": "hello"}}
				reply := hook("PreToolUse", tool)
				if !strings.Contains(reply, "deny") {
					reply = hook("PermissionRequest", tool)
				}
				if strings.Contains(reply, `"allow"`) {
					_ = os.WriteFile(path, []byte("hello"), 0o600)
				}
				s.Say("● Write("+path+")", "  ⎿  "+reply)
			}
			answer := "DECISION: wrote hello.txt because the task asked for it.\n\nDone: " + text
			s.Done(strings.Split(answer, "\n")...)
			hook("Stop", map[string]any{"last_assistant_message": answer})
		}
	})
	return nil
}

// claudeFacts answers what the program is asked about itself.
func claudeFacts(args []string) (done bool, err error) {
	switch strings.Join(args, " ") {
	case "--version":
		_, err = fmt.Println("2.1.197 (Claude Code)")
	case "auth status":
		_, err = fmt.Println(`{"loggedIn":true,"authMethod":"test"}`)
	case "auth login":
		err = loginMain()
	default:
		return false, nil
	}
	return true, err
}

// claudeStart reads the command line and takes the terminal.
func claudeStart(args []string) (settings, task, conversation string, err error) {
	for i, a := range args {
		if path, found := strings.CutPrefix(a, "--settings="); found {
			settings = path
		}
		for _, flag := range []string{"--session-id=", "--resume="} {
			if id, found := strings.CutPrefix(a, flag); found {
				conversation = id
			}
		}
		if a == "--" && i+1 < len(args) {
			task = args[i+1]
		}
	}
	t, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		return "", "", "", err
	}
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	t.Iflag &^= unix.ICRNL
	return settings, task, conversation, unix.IoctlSetTermios(0, unix.TCSETS, t)
}

// stream prints so many bytes a second, ten times in each, as a long answer is printed.
func stream(ctx context.Context, s *fakecli.Screen, rate string) {
	each, _ := strconv.Atoi(rate)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	const words = "\x1b[1mthe\x1b[0m answer goes on, and on, with ✳ signs, \x1b[38;5;114mcolours\x1b[0m and lines\r\n"
	text := strings.Repeat(words, each/10/len(words)+1)[:each/10]
	for n := 0; ; n++ {
		select {
		case <-ticker.C:
			s.Print(text + fmt.Sprintf("\x1b[0m %d\r\n\x1b]0;%s working\a", n, []string{"⠂", "⠐"}[n/10%2]))
		case <-ctx.Done():
			return
		}
	}
}

// hooksOf posts to the hooks that settings name, with their headers.
func hooksOf(settings, conversation string) func(event string, body map[string]any) string {
	var doc struct {
		Hooks map[string][]struct {
			Hooks []struct {
				URL     string
				Headers map[string]string
			}
		}
	}
	data, err := os.ReadFile(settings)
	if err == nil {
		err = json.Unmarshal(data, &doc)
	}
	return func(event string, body map[string]any) string {
		of := event
		if event == "decision" { // not the program's: its helpers tell it
			of = "Stop"
		}
		if err != nil || len(doc.Hooks[of]) == 0 {
			return fmt.Sprintf("no hook for %s: %v", event, err)
		}
		dir, _ := os.Getwd()
		body["hook_event_name"], body["session_id"], body["cwd"] = event, conversation, dir
		text, _ := json.Marshal(body)
		h := doc.Hooks[of][0].Hooks[0]
		req, err := http.NewRequest(http.MethodPost, h.URL, bytes.NewReader(text))
		if err != nil {
			return err.Error()
		}
		for name, value := range h.Headers {
			req.Header.Set(name, os.ExpandEnv(value))
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		out, _ := io.ReadAll(res.Body)
		return strings.TrimSpace(string(out))
	}
}

// agentHome is a machine on which the program is installed, and its user's home.
func agentHome(t *testing.T) (user string, env []string) {
	t.Helper()
	return homeOf(t, "claude")
}

// scriptedHome is one whose program does what its task says.
func scriptedHome(t *testing.T) (user string, env []string) {
	t.Helper()
	return homeOf(t, "scripted")
}

func homeOf(t *testing.T, role string) (user string, env []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, user := t.TempDir(), t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n%s=%s GORACE=atexit_sleep_ms=0 exec '%s' \"$@\"\n", roleVariable, role, self)
	programfile.Write(t, filepath.Join(bin, "claude"), script, 0o700)
	if err := os.WriteFile(filepath.Join(user, ".claude.json"), []byte(userSettings), 0o600); err != nil {
		t.Fatal(err)
	}
	return user, []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + user, "JUNCTOR_AGENTS_MODE=terminal"}
}

const userSettings = "{\n  \"theme\": \"light\",\n  \"projects\": {\"/somewhere\": {\"hasTrustDialogAccepted\": true}}\n}\n"

type shownAgent struct {
	ID, Status, Phase, Workdir, ResumeToken, ApprovalPreset string
	AgentType, Mode                                         string
	Decisions                                               []string
	Metadata                                                json.RawMessage
	Pid, Cols, Rows, CompletedTurns                         int
	Usage                                                   struct {
		InputTokens int
		CostUSD     float64
	}
}

func (n *node) spawnAgent(t *testing.T, body string) shownAgent {
	t.Helper()
	a := n.request(t, "POST", "/api/coding-agents/spawn", n.token(t, "admin"), body)
	var out struct{ Session shownAgent }
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || a.status != http.StatusCreated {
		t.Fatalf("%d %s; want no error, a.status = http.StatusCreated", a.status, a.body)
	}
	return out.Session
}

func (n *node) shown(t *testing.T, id string) (s shownAgent) {
	t.Helper()
	a := n.request(t, "GET", "/api/task-agents/"+id, n.token(t, "admin"), "")
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %s; want no error, a.status = http.StatusOK", a.status, a.body)
	}
	return s
}

// TestATaskAgent follows a task agent from its start to its end.
func TestATaskAgent(t *testing.T) {
	t.Parallel()
	user, env := agentHome(t)
	n := serve(t, t.TempDir(), append(env, "JUNCTOR_AGENTS_RECORD=true")...)
	admin := n.token(t, "admin")
	spawned := n.spawnAgent(t, `{"agentType":"Claude Code","task":"say hello","metadata":{"label":"greeter"}}`)
	if spawned.Status != "starting" || spawned.ApprovalPreset != "autonomous" || spawned.ResumeToken == "" {
		t.Errorf(`%+v; want spawned.Status = "starting", spawned.ApprovalPreset = "autonomous", spawned.ResumeToken other than ""`,
			spawned)
	}
	var done shownAgent
	eventually(t, "the turn is done, and its decision read from what it printed", func() bool {
		done = n.shown(t, spawned.ID)
		return done.Phase == "done" && len(done.Decisions) > 0
	})
	if len(done.Decisions) != 1 || !strings.HasPrefix(done.Decisions[0], "wrote hello.txt because") ||
		done.ResumeToken != spawned.ResumeToken {
		t.Errorf(`%+v; want len(done.Decisions) = 1, done.Decisions[0] beginning with "wrote hello.txt because", done.ResumeToken = %v`,
			done, spawned.ResumeToken)
	}
	if data, err := os.ReadFile(filepath.Join(done.Workdir, "hello.txt")); string(data) != "hello" {
		t.Errorf(`%v; want string(data) = "hello"`, err)
	}
	if exists(filepath.Join(done.Workdir, "..", "outside.txt")) {
		t.Error("a file was written outside of the folder")
	}
	entries, err := os.ReadDir(done.Workdir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v; want no error, len(entries) = 1", entries)
	}
	path := "/api/coding-agents/" + done.ID
	for suffix, want := range map[string]string{
		"/output?lines=30": "DECISION: wrote hello.txt", "/screen": "✻ Churned for 3s", "/explain": `"state":"ready"`,
		"/buffered-output": `"seq"`,
	} {
		// What it told by its hooks may be known before what it printed.
		eventually(t, suffix+" says "+want, func() bool {
			a := n.request(t, "GET", path+suffix, admin, "")
			return a.status == 200 && strings.Contains(a.body, want)
		})
	}
	// A word in time keeps it from being stopped.
	a := n.request(t, "POST", path+"/send", admin, `{"input":"and again"}`)
	if a.status != 200 || !strings.Contains(a.body, `"delivered"`) {
		t.Errorf(`%d %s; want a.status = 200, a.body with "\"delivered\""`, a.status, a.body)
	}
	eventually(t, "it is done once more", func() bool {
		return strings.Contains(n.request(t, "GET", path+"/output", admin, "").body, "Done: and again")
	})
	if a := n.request(t, "GET", "/api/v1/audit?event=agent_permission", admin, ""); !strings.Contains(a.body, `"verdict":"allow"`) ||
		!strings.Contains(a.body, `"verdict":"deny"`) {
		t.Errorf(`the record of what was allowed: %d %s; want a.body with "\"verdict\":\"allow\"", a.body with "\"verdict\":\"deny\""`,
			a.status, a.body)
	}
	eventually(t, "it is stopped, because nobody goes on", func() bool { return n.shown(t, done.ID).Status == "stopped" })
	eventually(t, "nothing is left of it", func() bool {
		left, _ := os.ReadDir(filepath.Join(n.home, "agents", "sessions"))
		return len(left) == 0
	})
	if data, err := os.ReadFile(filepath.Join(user, ".claude.json")); string(data) != userSettings {
		t.Errorf("the user's settings are %s %v; want string(data) = %v", data, err, userSettings)
	}
	if a := n.request(t, "POST", path+"/send", admin, `{"input":"hello?"}`); a.status != 503 || !strings.Contains(a.body, "session_ended") {
		t.Errorf(`%d %s; want a.status = 503, a.body with "session_ended"`, a.status, a.body)
	}
	n.replayed(t, done.ID, "done")
	// The conversation can be gone on with.
	again := n.spawnAgent(t, `{"agentType":"claude","workdir":"`+done.Workdir+`","task":"go on","resumeToken":"`+done.ResumeToken+`"}`)
	eventually(t, "it goes on", func() bool { return n.shown(t, again.ID).Phase == "done" })
	if got := n.shown(t, again.ID); got.ResumeToken != done.ResumeToken {
		t.Errorf("%+v; want got.ResumeToken = %v", got, done.ResumeToken)
	}
	if kept, err := os.ReadDir(filepath.Join(n.home, "agents", "kept")); err != nil || len(kept) != 1 {
		t.Errorf("%v %v; want no error, len(kept) = 1", kept, err)
	}
	n.terminate(t)
}

// TestAServerIsKilledWithAgents: what outlived it is ended, and undone, at the next start.
func TestAServerIsKilledWithAgents(t *testing.T) {
	t.Parallel()
	user, env := agentHome(t)
	home := t.TempDir()
	n := serve(t, home, env...)
	work := filepath.Join(home, "workspaces")
	s := n.spawnAgent(t, `{"agentType":"claude","workdir":"`+work+`","task":"stay","metadata":{"keepAliveAfterComplete":true}}`)
	if s.ApprovalPreset != "permissive" {
		t.Errorf(`%+v; want s.ApprovalPreset = "permissive"`, s)
	}
	eventually(t, "the turn is done", func() bool { return n.shown(t, s.ID).Phase == "done" })
	if data, err := os.ReadFile(filepath.Join(user, ".claude.json")); err != nil || string(data) == userSettings {
		t.Skipf("this program's trust is not kept in the user's settings any more: %v", err)
	}
	n.kill()
	n = serve(t, home, env...)
	if data, err := os.ReadFile(filepath.Join(user, ".claude.json")); string(data) != userSettings {
		t.Errorf("the user's settings are %s %v; want string(data) = %v", data, err, userSettings)
	}
	if data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Pid)); err == nil && !strings.Contains(string(data), ") Z ") {
		t.Errorf(`process %d is left: %s; want not (err == nil && !strings.Contains(string(data), ") Z "))`, s.Pid, data)
	}
	left, err := os.ReadDir(filepath.Join(home, "agents", "sessions"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v %v; want no error, len(left) at most 0", left, err)
	}
	n.terminate(t)
}

func TestWhoMayDoWhatToAgents(t *testing.T) {
	t.Parallel()
	_, env := agentHome(t)
	n := serve(t, t.TempDir(), env...)
	admin := n.token(t, "admin")
	s := n.spawnAgent(t, `{"agentType":"claude","task":"one","metadata":{"keepAliveAfterComplete":true}}`)
	type call struct {
		method, path, token, body string
		status                    int
		says                      string
	}
	for name, c := range map[string]call{
		"nobody lists":              {"GET", "", "", "", 401, ""},
		"an agent does not spawn":   {"POST", "/spawn", n.token(t, "agent"), `{}`, 403, ""},
		"a type that is none":       {"POST", "/spawn", admin, `{"agentType":"emacs"}`, 400, "unknown_agent_type"},
		"one that is not installed": {"POST", "/spawn", admin, `{"agentType":"codex"}`, 503, "agent_not_installed"},
		"an unknown field":          {"POST", "/spawn", admin, `{"agentTyp":"codex"}`, 400, "agentTyp"},
		"a folder outside":          {"POST", "/spawn", admin, `{"agentType":"claude","workdir":"/etc"}`, 403, "workdir_outside_allowed"},
		"a folder that is not there": {
			"POST", "/spawn", admin, `{"agentType":"claude","workdir":"` + n.home + `/workspaces/nowhere"}`, 403,
			"workdir_outside_allowed",
		},
		"a preset that is none":         {"POST", "/spawn", admin, `{"agentType":"claude","approvalPreset":"yolo"}`, 400, "adapter_preset"},
		"a session that is none":        {"GET", "/pty-1-ab", admin, "", 404, "session_not_found"},
		"neither text nor keys":         {"POST", "/" + s.ID + "/send", admin, `{}`, 400, "no_input"},
		"a key that is none":            {"POST", "/" + s.ID + "/send", admin, `{"keys":["hyper"]}`, 400, "unknown_key"},
		"a choice without a dialog":     {"POST", "/" + s.ID + "/choose", admin, `{"label":"Yes"}`, 409, "no_dialog"},
		"a number that is none":         {"GET", "/" + s.ID + "/output?lines=x", admin, "", 400, "bad_query"},
		"hooks without a token":         {"POST", "/hooks", "", `{"hook_event_name":"Stop"}`, 401, ""},
		"hooks with another's token":    {"POST", "/hooks", admin, `{"hook_event_name":"Stop"}`, 401, "not_a_task"},
		"the table of presets":          {"GET", "/approval-presets", admin, "", 200, "autonomous"},
		"a preset in a program's words": {"GET", "/approval-config?agentType=codex&preset=readonly", admin, "", 200, "cliFlags"},
		"the files of a program":        {"GET", "/workspace-files?agentType=gemini", admin, "", 200, "GEMINI.md"},
		"what is installed":             {"GET", "/preflight", admin, "", 200, `"version":"2.1.197"`},
		"the sessions":                  {"GET", "", admin, "", 200, s.ID},
		"a method that is not allowed":  {"DELETE", "/spawn", admin, "", 405, ""},
	} {
		if a := n.request(t, c.method, "/api/coding-agents"+c.path, c.token, c.body); a.status != c.status || !strings.Contains(a.body, c.says) {
			t.Errorf("%s: %d %s; want a.status = %v, a.body with %v", name, a.status, a.body, c.status, c.says)
		}
	}
	n.console(t, s.ID)
	left, err := os.ReadDir(filepath.Join(n.home, "agents", "sessions"))
	if err != nil || len(left) != 1 {
		t.Errorf("what failed has left %v %v; want no error, len(left) = 1", left, err)
	}
	if a := n.request(t, "POST", "/api/coding-agents/"+s.ID+"/stop", admin, `{"force":true}`); a.status != 200 {
		t.Errorf("%d %s; want a.status = 200", a.status, a.body)
	}
	n.terminate(t)
}

// console looks at what the console says to a client that does not know its words.
func (n *node) console(t *testing.T, session string) {
	t.Helper()
	at := "ws" + strings.TrimPrefix(n.url, "http") + "/api/task-agents/console"
	header := http.Header{"Authorization": {"Bearer " + n.token(t, "admin")}}
	for name, h := range map[string]http.Header{
		"no token":    {},
		"an agent's":  {"Authorization": {"Bearer " + n.token(t, "agent")}},
		"from a page": {"Authorization": header["Authorization"], "Origin": {"https://example.com"}},
	} {
		if conn, res, err := websocket.Dial(t.Context(), at, &websocket.DialOptions{HTTPHeader: h}); err == nil || res == nil ||
			res.StatusCode/100 != 4 {
			t.Errorf("%s: %v; want an error, res not nil, res.StatusCode / 100 = 4", name, err)
			if conn != nil {
				_ = conn.CloseNow()
			}
		}
	}
	conn, _, err := websocket.Dial(t.Context(), at, &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(1 << 20)
	for _, c := range [][2]string{
		{`nonsense`, "bad_message"},
		{`{"type":"dance"}`, "bad_message"},
		{`{"type":"subscribe","sessionId":"pty-1-a"}`, "session_not_found"},
		{`{"type":"subscribe","sessionId":"` + session + `"}`, `"type":"snapshot"`},
		{`{"type":"resize","sessionId":"` + session + `","cols":1,"rows":1}`, "bad_size"},
		{`{"type":"keys","sessionId":"` + session + `","keys":["hyper"]}`, "unknown_key"},
		{`{"type":"message","sessionId":"` + session + `","text":" "}`, "not_delivered"},
		{`{"type":"control","sessionId":"` + session + `","take":true}`, `"taken"`},
		{`{"type":"control","sessionId":"` + session + `","take":false}`, `"released"`},
	} {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(c[0])); err != nil {
			t.Fatal(err)
		}
		for {
			_, data, err := conn.Read(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", c[0], err)
			}
			if strings.Contains(string(data), c[1]) {
				break
			}
			if strings.Contains(string(data), `"type":"error"`) {
				t.Errorf(`%s: %s; want string(data) without "\"type\":\"error\""`, c[0], data)
				break
			}
		}
	}
	var taken struct {
		Records []struct {
			UserID    string `json:"user_id"`
			SessionID string `json:"session_id"`
		}
	}
	if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/audit?event=terminal_taken", nil, &taken); err != nil ||
		len(taken.Records) != 1 || taken.Records[0].UserID != "admin:local-admin" || taken.Records[0].SessionID != session {
		t.Errorf("records of who took the terminal over: got %+v, %v, want one of admin:local-admin for %s", taken, err, session)
	}
}

// replayed sees that the recording of a session goes through a state, as junctor frameworks
// replay tells.
func (n *node) replayed(t *testing.T, session, word string) {
	t.Helper()
	a := n.request(t, "GET", "/api/coding-agents/"+session+"/recording", n.token(t, "admin"), "")
	rec, err := cast.Read(strings.NewReader(a.body))
	if err != nil || a.status != 200 {
		t.Fatalf("%d %v; want no error, a.status = 200", a.status, err)
	}
	subject, err := detect.GuessProgram(rec, "")
	if err != nil || subject.Framework != programs.Claude {
		t.Fatalf("GuessProgram = %+v, error %v, want %v", subject, err, programs.Claude)
	}
	files, err := detect.Load(filepath.Join(n.home, "frameworks"))
	if err != nil {
		t.Fatal(err)
	}
	rules, _, err := detect.Pick(files, subject.Framework, subject.Version)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	if err := detect.Replay(rec, rules, subject.Version, func(s detect.ReplayStep) error {
		words = append(words, s.To)
		return nil
	}); err != nil || !slices.Contains(words, word) {
		t.Errorf("it went through %v: %v; want no error, words with %v", words, err, word)
	}
}
