package interop

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestAProviderForgetsItsSessions(t *testing.T) {
	r := newRecovering(t)
	f := newFar(t, false)
	r.cli("upstreams", "add", "far", "--url", f.url, "--local")
	s := r.goClient(t, "2025-11-25", nil)
	ok(t, r.echo(t.Context(), s))
	for range 10 {
		f.begin(false)
		began := time.Now()
		if err := r.echo(t.Context(), s); err != nil {
			t.Fatalf("the call after the provider has forgotten: %v", err)
		}
		t.Logf("renewed within %s", time.Since(began).Round(time.Millisecond))
	}
	r.cli("upstreams", "remove", "far")

	// A server from npm, whose process ends; it says 400 where the others say 404.
	address := freeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	run := func() (stop func()) {
		cmd := exec.CommandContext(t.Context(), r.node, npmServer("server-everything"), "streamableHttp")
		cmd.Env = append(environment(), "PORT="+port)
		ok(t, cmd.Start())
		awaitListener(t, address)
		return func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // killed: its status says so
		}
	}
	stop := run()
	r.cli("upstreams", "add", "web", "--url", "http://"+address+"/mcp", "--local")
	ok(t, r.echo(t.Context(), s))
	stop()
	stop = run()
	defer stop()
	if err := r.echo(t.Context(), s); err != nil {
		t.Errorf("the call after the restart: %v", err)
	}
}

// children are the processes below one, whose command line holds a word.
func children(t *testing.T, pid int, word string) []int {
	t.Helper()
	var found []int
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	ok(t, err)
	for _, name := range tasks {
		list, _ := os.ReadFile(name) // a task may have ended
		for _, field := range strings.Fields(string(list)) {
			child, err := strconv.Atoi(field)
			ok(t, err)
			line, _ := os.ReadFile("/proc/" + field + "/cmdline")
			if strings.Contains(string(line), word) {
				found = append(found, child)
			}
			found = append(found, children(t, child, word)...)
		}
	}
	return found
}

func TestAProviderIsKilled(t *testing.T) {
	r := newRecovering(t)
	r.addProgram("everything", "server-everything", "")
	const calls = 3
	told := make(chan any, 64*calls)
	s := r.goClient(t, "2025-11-25", &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context,
		r *mcp.ProgressNotificationClientRequest,
	) {
		told <- r.Params.ProgressToken
	}})
	ok(t, r.echo(t.Context(), s))
	type ending struct {
		r   *mcp.CallToolResult
		err error
	}
	ends := make(chan ending, calls)
	for i := range calls {
		p := &mcp.CallToolParams{Name: slow, Arguments: map[string]any{"duration": 60, "steps": 60}}
		p.SetProgressToken(i + 1)
		go func() {
			res, err := s.CallTool(t.Context(), p)
			ends <- ending{res, err}
		}()
	}
	// Only its own word tells that the provider has a call: one that it does not have
	// yet goes to the next process.
	for running := map[any]bool{}; len(running) < calls; {
		select {
		case token := <-told:
			running[token] = true
		case <-time.After(waitTimeout):
			t.Fatalf("the provider tells of %d calls", len(running))
		}
	}
	before := children(t, r.cmd.Process.Pid, "server-everything")
	if len(before) == 0 {
		t.Skip("this system does not tell which processes a process has started")
	}
	for _, pid := range before {
		p, err := os.FindProcess(pid)
		ok(t, err)
		_ = p.Kill() // one may have gone with another
	}
	killed := time.Now()
	for range calls {
		e := <-ends
		if e.err != nil || !e.r.IsError {
			t.Errorf("a call in flight: %+v, %v; want e.err = nil, e.r.IsError = true", e.r, e.err)
			continue
		}
		text, _ := e.r.Content[0].(*mcp.TextContent)
		if text == nil || !strings.Contains(text.Text, "everything") {
			t.Errorf(`a call in flight is told %+v; want text not nil, text.Text with "everything"`, e.r.Content[0])
		} else {
			t.Log(text.Text)
		}
	}
	until(t, "the provider is back", func() bool { return r.echo(t.Context(), s) == nil })
	t.Logf("back %s after the kill", time.Since(killed).Round(time.Millisecond))
	if after := children(t, r.cmd.Process.Pid, "server-everything"); len(after) > len(before) {
		t.Errorf("processes %v where %v were; want len(after) at most %v", after, before, len(before))
	}
}

func TestAToolIsAddedAtTheProvider(t *testing.T) {
	r := newRecovering(t)
	for _, cell := range [][2]string{{"legacy", "2025-11-25"}, {"legacy", "2026-07-28"}, {"modern", "2025-11-25"}, {"modern", "2026-07-28"}} {
		provider, version := cell[0], cell[1]
		t.Run(provider+" provider to "+version, func(t *testing.T) {
			f := newFar(t, provider == "modern")
			r.cli("upstreams", "add", "far", "--url", f.url, "--local")
			defer r.cli("upstreams", "remove", "far")
			if shown := r.output(t, "upstreams", "show", "far"); strings.Contains(shown, "MCP 2026-07-28") != (provider == "modern") {
				t.Errorf(`the provider: %s; want strings.Contains(shown, "MCP 2026-07-28") = (provider == "modern")`, shown)
			}
			changed := make(chan struct{}, 1)
			s := r.goClient(t, version, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
				select {
				case changed <- struct{}{}:
				default:
				}
			}})
			if got := s.InitializeResult().ProtocolVersion; got != version {
				t.Fatalf("negotiated %s; want got = %v", got, version)
			}
			ok(t, r.echo(t.Context(), s))
			for i := range 5 {
				name := "late-" + version + "-" + strconv.Itoa(i)
				for len(changed) > 0 {
					<-changed
				}
				began := time.Now()
				f.add(name, "comes later")
				// Before the first tool, the announcement of the provider itself may still be
				// under way. Every later announcement must find its tool in the list.
				deadline := time.After(waitTimeout)
				for found := false; !found; {
					select {
					case <-changed:
					case <-deadline:
						t.Fatalf("%s is not both announced and listed within %s", name, waitTimeout)
					}
					tools, err := s.ListTools(t.Context(), nil)
					ok(t, err)
					found = slices.ContainsFunc(tools.Tools, func(tool *mcp.Tool) bool { return tool.Name == name })
					if !found && i > 0 {
						t.Errorf("the list after the announcement lacks %s; want not (!found && i > 0)", name)
					}
				}
				t.Logf("announced after %s", time.Since(began).Round(time.Millisecond))
			}
		})
	}
}

func TestThePlaneIsRestarted(t *testing.T) {
	t.Run("in order", func(t *testing.T) { restarted(t, (*recovering).down) })
	t.Run("killed", func(t *testing.T) { restarted(t, (*recovering).kill) })
}

func restarted(t *testing.T, end func(*recovering)) {
	t.Helper()
	r := newRecovering(t)
	r.addProgram("everything", "server-everything", "")
	shared := sharedDir(t)
	r.addProgram("filesystem", "server-filesystem", shared, shared)
	f := newFar(t, false)
	r.cli("upstreams", "add", "far", "--url", f.url, "--local")
	r.cli("grants", "create", "--principal", "agent:local-agent", "--action", "fs.writeText", "--expires", "8h")

	legacy, modern := r.goClient(t, "2025-11-25", nil), r.goClient(t, "2026-07-28", nil)
	_, opened := r.post(t, `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if !strings.Contains(opened, "2025-11-25") {
		t.Fatalf(`opened = %q, want it to contain "2025-11-25"`, opened)
	}
	for _, s := range []*mcp.ClientSession{legacy, modern} {
		if _, err := s.ListTools(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	_, asked := r.modern(t, "tools/call", "write_file", `"name":"write_file","arguments":{"path":"x","content":"y"},`)
	approval := approvalID.FindString(asked)
	if approval == "" {
		t.Fatalf(`approval = %q, want other than ""; asked = %q`, approval, asked)
	}
	_, body := r.modern(t, "tools/call", slow, `"name":"`+slow+`","arguments":{"duration":1,"steps":1},`)
	var made struct{ Result struct{ TaskID string } }
	ok(t, json.Unmarshal([]byte(body), &made))
	task := func() string {
		_, body := r.modern(t, "tasks/get", made.Result.TaskID, `"taskId":"`+made.Result.TaskID+`",`)
		return body
	}
	until(t, "the task is done", func() bool { return strings.Contains(task(), `"status":"completed"`) })
	f.add("echo", "means something else now")
	diff := func() string { return r.output(t, "upstreams", "diff", "far") }
	until(t, "the changed definition waits", func() bool { return strings.Contains(diff(), "something else") })

	end(r)
	r.up()

	if got := task(); !strings.Contains(got, `"status":"completed"`) || !strings.Contains(got, "Long running operation completed") {
		t.Errorf(`the task: %s; want got with "\"status\":\"completed\"", got with "Long running operation completed"`, got)
	}
	if got := diff(); !strings.Contains(got, "something else") {
		t.Errorf(`what waits for an approval: %s; want got with "something else"`, got)
	}
	for command, want := range map[string]string{"grants": "fs.writeText", "approvals": approval} {
		if out := r.output(t, command, "list"); !strings.Contains(out, want) {
			t.Errorf("%s: %s; want out with %v", command, out, want)
		}
	}
	r.cli("approvals", "approve", approval)
	until(t, "the upstreams are there", func() bool {
		_, body := r.modern(t, "tools/list", "", "")
		return strings.Contains(body, "write_file") && strings.Contains(body, "trigger-long")
	})
	if _, body := r.modern(t, "tools/call", "write_file", `"name":"write_file","arguments":{"path":"x","content":"y"},`); strings.Contains(
		body, "confirmation_required") {
		t.Errorf(`the approval of before the restart: %s; want body without "confirmation_required"`, body)
	}
	if _, body := r.modern(t, "tools/call", "far__echo", `"name":"far__echo","arguments":{},`); !strings.Contains(body, "pin_held") {
		t.Errorf(`the held definition: %s; want body with "pin_held"`, body)
	}
	// A modern client notices nothing; a legacy one gets 404 and begins again.
	if _, err := modern.ListTools(t.Context(), nil); err != nil {
		t.Errorf("the modern client: %v", err)
	}
	if status, body := r.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Mcp-Session-Id",
		legacy.ID()); status != http.StatusNotFound {
		t.Errorf("the legacy session: %d %s; want status = http.StatusNotFound", status, body)
	}
	if _, err := r.goClient(t, "2025-11-25", nil).ListTools(t.Context(), nil); err != nil {
		t.Errorf("the legacy client, beginning again: %v", err)
	}
}
