package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/internal/core/policy"
)

// clientSteps runs a node program and reads its lines, each with the step that is meant.
func (w *world) clientSteps(t *testing.T, args ...string) (next func(want string) delegateStep, goOn func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout) // it ends by itself, after the test
	t.Cleanup(cancel)
	cmd := w.command(ctx, args...)
	cmd.Env = append(cmd.Env, "INTEROP_BASE="+strings.TrimSuffix(w.url, "/mcp"))
	cmd.Stderr = logWriter{t, args[0]}
	in, err := cmd.StdinPipe()
	ok(t, err)
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	t.Cleanup(func() {
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("%v: %v; want not (err != nil && !t.Failed())", args, err)
		}
	})
	next = func(want string) (s delegateStep) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the client ended before %q: %v; want lines.Scan()", want, lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil || s.Step != want {
			t.Fatalf("%s instead of %q", lines.Text(), want)
		}
		return s
	}
	return next, func() {
		t.Helper()
		_, err := io.WriteString(in, "\n")
		ok(t, err)
	}
}

// delegateStep is one line of delegate.mjs or delegatea2a.mjs.
type delegateStep struct {
	Step, ID, State, Text string
	Names                 []string
	IsError               bool
}

// approve says yes to what a text names.
func (w *world) approve(t *testing.T, text string) {
	t.Helper()
	id := approvalID.FindString(text)
	if id == "" {
		t.Fatalf(`nothing to approve: %s; want id other than ""`, text)
	}
	w.cli("approvals", "approve", id)
}

// follow asks for a task over MCP, as a client does that declares the extension.
func (w *world) follow(t *testing.T, method, id, rest string) string {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"taskId":"` + id + `",` + rest +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url, strings.NewReader(body))
	ok(t, err)
	for name, value := range map[string]string{
		"Authorization": "Bearer " + w.tok, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": id,
	} {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	ok(t, err)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	ok(t, err)
	return string(data)
}

// TestDelegatingOverMCP: an agent finds the actions, is asked, and follows what it began.
func TestDelegatingOverMCP(t *testing.T) {
	w := newWorld(t, func(home string) {
		ok(t, os.WriteFile(filepath.Join(home, "catalog.yaml"), []byte("exposure: {own: listed}\n"), 0o600))
	})
	for _, kind := range []string{"v1", "v2-legacy", "v2-modern"} {
		t.Run(kind, func(t *testing.T) {
			next, goOn := w.clientSteps(t, "delegate.mjs", kind)
			names := next("tools").Names
			for _, name := range []string{"task-agent_task_create", "task-agent_list", "workspace_finalize"} {
				if !slices.Contains(names, name) {
					t.Errorf("no tool %s among %v; want names with %v", name, names, name)
				}
			}
			if slices.Contains(names, "CREATE_TASK") {
				t.Error("an alias is a tool of its own")
			}
			if s := next("found"); s.IsError || !strings.Contains(s.Text, "task-agent.task.create") {
				t.Errorf(`%+v; want s.IsError = false, s.Text with "task-agent.task.create"`, s)
			}
			asked := next("asked")
			if !asked.IsError {
				t.Errorf("%+v; want asked.IsError = true", asked)
			}
			w.approve(t, asked.Text)
			goOn()
			made := next("made")
			if made.IsError || !strings.HasPrefix(made.ID, "tsk_") {
				t.Fatalf(`%+v; want made.IsError = false, made.ID beginning with "tsk_"`, made)
			}
			if s := next("history"); s.IsError || !strings.Contains(s.Text, "it is "+kind) || !strings.Contains(s.Text, "done") {
				t.Errorf(`%+v; want s.IsError = false, s.Text with "it is " + kind, s.Text with "done"`, s)
			}
			if s := next("context"); !strings.Contains(s.Text, "# Task agents") || len(s.Text) > 4096 {
				t.Errorf(`%+v; want s.Text with "# Task agents", len(s.Text) at most 4096`, s)
			}
			if s := next("examples"); !strings.Contains(s.Text, "CREATE_TASK") || len(s.Text) > 4096 {
				t.Errorf(`%+v; want s.Text with "CREATE_TASK", len(s.Text) at most 4096`, s)
			}
			until(t, "the handle has ended", func() bool { return strings.Contains(w.follow(t, "tasks/get", made.ID, ""), `"status":"completed"`) })
			if got := w.follow(t, "tasks/get", made.ID, ""); !strings.Contains(got, "it is "+kind) || !strings.Contains(got, `"structuredContent"`) {
				t.Errorf("w.follow(t, \"tasks/get\", made.ID, \"\") = %q, want it to contain %q and it to contain \"\\\"structuredContent\\\"\"",
					got, "it is "+kind)
			}
		})
	}
}

var (
	handleID  = regexp.MustCompile(`tsk_[0-9a-f]+`)
	threadID  = regexp.MustCompile(`thr_[0-9a-f]+`)
	sessionID = regexp.MustCompile(`pty-[0-9]+-[0-9a-f]+`)
)

// TestDelegatingOverA2A: the same task, asked whether it goes on, and cancelled.
func TestDelegatingOverA2A(t *testing.T) {
	w := newWorld(t)
	next, goOn := w.clientSteps(t, "delegatea2a.mjs")
	asked := next("asked")
	if asked.State != "TASK_STATE_AUTH_REQUIRED" {
		t.Errorf(`%+v; want asked.State = "TASK_STATE_AUTH_REQUIRED"`, asked)
	}
	w.approve(t, asked.Text)
	goOn()
	made := next("made")
	thread := threadID.FindString(made.Text)
	next("works")
	w.cli("tasks", "control", thread, "pause")
	goOn()
	if s := next("paused"); !strings.Contains(s.Text, "Is it to go on?") {
		t.Errorf(`%+v; want s.Text with "Is it to go on?"`, s)
	}
	if s := next("answered"); s.State == "TASK_STATE_INPUT_REQUIRED" {
		t.Errorf(`the question is still there: %+v; want s.State other than "TASK_STATE_INPUT_REQUIRED"`, s)
	}
	if s := next("resumed"); s.ID == made.ID {
		t.Errorf("%+v; want s.ID other than %v", s, made.ID)
	}
	next("cancelled")
	until(t, "nothing runs", func() bool {
		return !strings.Contains(w.output(t, "--json", "tasks", "show", thread), `"status":"active"`)
	})
}

// agentOf is the world as another agent sees it.
func (w *world) agentOf(t *testing.T, name string) *world {
	t.Helper()
	var made struct{ Token string }
	ok(t, json.Unmarshal([]byte(w.output(t, "--json", "tokens", "create", "--role", "agent", "--name", name)), &made))
	return &world{t: t, node: w.node, binary: w.binary, home: w.home, url: w.url, tok: made.Token}
}

// sdk is a session of the Go SDK.
func (w *world) sdk(t *testing.T) (*mcp.ClientSession, error) {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	t.Cleanup(cancel)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "interop-go", Version: "1.0.0"}, nil).
		Connect(ctx, &mcp.StreamableClientTransport{Endpoint: w.url, HTTPClient: &http.Client{Transport: bearer{w.tok}}}, nil)
	if err == nil {
		t.Cleanup(func() { _ = session.Close() }) // the token may be gone
	}
	return session, err
}

// call uses a tool and returns its text; failed is whether it reports that it failed.
func call(t *testing.T, s *mcp.ClientSession, name string, args map[string]any) (text string, failed bool) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return err.Error(), true
	}
	return r.Content[0].(*mcp.TextContent).Text, r.IsError
}

// delegated is a task of an agent, approved and begun.
func (w *world) delegated(t *testing.T, s *mcp.ClientSession, task string) (text string) {
	t.Helper()
	args := map[string]any{"agentType": "shell", "task": task}
	asked, failed := call(t, s, "CREATE_TASK", args)
	if !failed {
		t.Fatalf("failed = false, want true; asked = %q", asked)
	}
	w.approve(t, asked)
	text, failed = call(t, s, "CREATE_TASK", args)
	if failed {
		t.Fatalf("failed = true, want false; text = %q", text)
	}
	return text
}

// TestATaskAgentHasItsCreatorsRights: what a task agent can do over MCP with its own
// token, and that agents do not see each other's work.
func TestATaskAgentHasItsCreatorsRights(t *testing.T) {
	w := newWorld(t, func(home string) {
		folder := filepath.Join(home, "policy")
		ok(t, os.Mkdir(folder, 0o700))
		ok(t, os.WriteFile(filepath.Join(folder, "default.cedar"), []byte(policy.DefaultRules()), 0o600))
		ok(t, os.WriteFile(filepath.Join(folder, "narrow.cedar"), []byte(
			`@id("narrow") forbid (principal == Principal::"agent:narrow", action == Action::"fs.readText", resource);`), 0o600))
	})
	const keepToken = `printf %s "$ELIZA_HOOK_TOKEN" > token.new && mv token.new token; sleep 600`
	type begun struct {
		*world
		agent, child              *mcp.ClientSession
		childToken, session, task string
	}
	begin := func(name string) begun {
		b := begun{world: w.agentOf(t, name)}
		var err error
		b.agent, err = b.sdk(t)
		ok(t, err)
		text := b.delegated(t, b.agent, keepToken)
		b.session, b.task = sessionID.FindString(text), handleID.FindString(text)
		var made struct {
			Data struct{ Agents []struct{ Workdir string } }
		}
		ok(t, json.Unmarshal([]byte(text), &made))
		until(t, "the program runs", func() bool {
			data, err := os.ReadFile(filepath.Join(made.Data.Agents[0].Workdir, "token"))
			b.childToken = string(data)
			return err == nil
		})
		b.child, err = (&world{url: w.url, tok: b.childToken}).sdk(t)
		ok(t, err)
		return b
	}
	wide, narrow := begin("wide"), begin("narrow")

	read := map[string]any{"path": "here.txt", "selector": map[string]any{"node": "local"}}
	if text, failed := call(t, wide.child, "fs_readText", read); failed || !strings.Contains(text, `"here"`) {
		t.Errorf(`what both may: %s; want failed = false, text with "\"here\""`, text)
	}
	for name, s := range map[string]*mcp.ClientSession{"the agent": narrow.agent, "its task agent": narrow.child} {
		if text, failed := call(t, s, "fs_readText", read); !failed {
			t.Errorf("%s may what no rule permits: %s; want failed = true", name, text)
		}
		list, err := s.ListTools(t.Context(), nil)
		ok(t, err)
		if slices.ContainsFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == "fs_readText" }) {
			t.Errorf("%s sees it", name)
		}
		if !slices.ContainsFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == "fs_list" }) {
			t.Errorf("%s sees nothing", name)
		}
	}
	write := map[string]any{"path": "made.txt", "text": "x", "selector": map[string]any{"node": "local"}}
	asked, failed := call(t, wide.child, "fs_writeText", write)
	if !failed {
		t.Fatalf("failed = false, want true; asked = %q", asked)
	}
	if list := w.output(t, "approvals", "list"); !strings.Contains(list, "task:"+wide.session+", for agent:wide, asks for fs.writeText") {
		t.Errorf(`w.output(t, "approvals", "list") = %q, want it to contain %q`,
			list, "task:"+wide.session+", for agent:wide, asks for fs.writeText")
	}
	w.approve(t, asked)
	if text, failed := call(t, wide.child, "fs_writeText", write); failed {
		t.Errorf(`call(t, wide.child, "fs_writeText", write): failed = true, want false; text = %q`, text)
	}
	if log := w.output(t, "--json", "audit", "query", "--limit", "200"); !strings.Contains(strings.ReplaceAll(log, " ", ""),
		`"on_behalf_of":"agent:wide"`) {
		t.Error("the record does not say on whose behalf")
	}
	// Its token opens no other door.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(w.url, "/mcp")+"/api/v1/tasks", nil)
	ok(t, err)
	req.Header.Set("Authorization", "Bearer "+wide.childToken)
	res, err := http.DefaultClient.Do(req)
	ok(t, err)
	ok(t, res.Body.Close())
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("/api/v1: %d; want res.StatusCode = http.StatusForbidden", res.StatusCode)
	}

	// Each agent has its own work, and its task agents have not even that.
	for name, s := range map[string]*mcp.ClientSession{"an agent": narrow.agent, "a task agent": wide.child} {
		if text, failed := call(t, s, "task-agent_list", nil); failed || strings.Contains(text, wide.session) {
			t.Errorf("%s is told: %s; want failed = false, text without %v", name, text, wide.session)
		}
	}
	if text, failed := call(t, wide.agent, "LIST_AGENTS", nil); failed || !strings.Contains(text, wide.session) ||
		strings.Contains(text, narrow.session) {
		t.Errorf("its own: %s; want failed = false, text with %v, text without %v", text, wide.session, narrow.session)
	}
	if got := narrow.follow(t, "tasks/get", wide.task, ""); !strings.Contains(got, "unknown task") {
		t.Errorf(`narrow.follow(t, "tasks/get", wide.task, "") = %q, want it to contain "unknown task"`, got)
	}
	if got := wide.follow(t, "tasks/get", wide.task, ""); !strings.Contains(got, `"status":"working"`) {
		t.Errorf("wide.follow(t, \"tasks/get\", wide.task, \"\") = %q, want it to contain \"\\\"status\\\":\\\"working\\\"\"", got)
	}
	w.cli("tasks", "control", threadID.FindString(w.output(t, "--json", "tasks", "show", wide.session)), "pause")
	until(t, "it asks", func() bool { return strings.Contains(wide.follow(t, "tasks/get", wide.task, ""), "Is it to go on?") })
	_ = wide.follow(t, "tasks/update", wide.task, `"inputResponses":{"resume":{"action":"accept","content":{"text":"resume"}}},`)
	until(t, "it goes on", func() bool { return strings.Contains(wide.follow(t, "tasks/get", wide.task, ""), `"status":"working"`) })
	_ = wide.follow(t, "tasks/cancel", wide.task, "")
	until(t, "it is cancelled", func() bool {
		return strings.Contains(wide.follow(t, "tasks/get", wide.task, ""), `"status":"cancelled"`)
	})

	// It ends with its creator's token.
	w.cli("tokens", "revoke", "narrow")
	if _, err := (&world{url: w.url, tok: narrow.childToken}).sdk(t); err == nil {
		t.Error("the task agent of a revoked agent is let in; want an error")
	}
	if text, failed := call(t, narrow.child, "fs_list", map[string]any{"path": "."}); !failed {
		t.Errorf("it goes on: %s; want failed = true", text)
	}
}
