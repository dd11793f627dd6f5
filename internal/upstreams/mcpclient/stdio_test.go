//go:build linux

package mcpclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
)

func TestProgramsThatGreetStrangely(t *testing.T) {
	for role, version := range map[string]string{"plain": "2024-11-05", "mute": "2024-11-05", "touchy": "2024-11-05", "strange": ""} {
		t.Run(role, func(t *testing.T) {
			g := &rig{}
			newClient(t, g, program(t, role))
			server, err := g.Connect(t.Context())
			if server.Version != version {
				t.Errorf("%q %v; want server.Version = %v", server.Version, err, version)
			}
			if version == "" {
				wantCode(t, err, capability.CodeUnavailable, "unsupported_version")
			}
		})
	}
	g := &rig{}
	newClient(t, g, mcpclient.Config{Command: []string{"/no/such/program"}})
	_, err := g.Connect(t.Context())
	wantCode(t, err, capability.CodeUnavailable, "program_missing")
	if strings.Contains(capability.AsError(err).Message, "/no/such") {
		t.Errorf(`%v; want capability.AsError(err).Message without "/no/such"`, err)
	}
}

func TestProgramThatStartsSlowlyIsConnected(t *testing.T) {
	t.Parallel()
	g := &rig{marks: newMarks()}
	newClient(t, g, program(t, "late"))
	server, err := g.Connect(t.Context())
	if err != nil || !server.Modern() {
		t.Fatalf("connect = %+v, %v, want a modern server", server, err)
	}
	if out, err := g.Call(t.Context(), mcpclient.Request{Method: "tools/list"}); err != nil {
		t.Errorf("list the tools: got %s, %v, want no error", out, err)
	}
}

func TestProgramsThatBreakTheRules(t *testing.T) {
	begin := func(t *testing.T) *rig {
		g := &rig{}
		newClient(t, g, program(t, "plain"))
		return g.connect(t)
	}
	for name, want := range map[string]string{"garbage": `{"content":[]}`, "strangers": `{"content":[1]}`, "batch": `{"content":[]}`} {
		t.Run(name, func(t *testing.T) {
			g := begin(t)
			for range 3 { // nine bad lines are allowed, each time
				if out, err := g.Call(t.Context(), tool(name, "{}")); err != nil || string(out) != want {
					t.Errorf("%s %v; want no error, string(out) = %v", out, err, want)
				}
			}
		})
	}
	t.Run("flood", func(t *testing.T) {
		g := begin(t)
		_, err := g.Call(t.Context(), tool("flood", "{}"))
		wantCode(t, err, capability.CodeFailed, "connection_failed")
		if err := await(t, "word of the loss", g.down); !strings.Contains(err.Error(), "10 lines in a row") {
			t.Errorf(`%v; want err.Error() with "10 lines in a row"`, err)
		}
		if _, err := g.connect(t).Call(t.Context(), tool("echo", "{}")); err != nil {
			t.Error(err)
		}
	})
	t.Run("huge", func(t *testing.T) {
		g := begin(t)
		_, err := g.Call(t.Context(), tool("huge", "{}"))
		wantCode(t, err, capability.CodeTooLarge, "")
		if _, err := g.Call(t.Context(), tool("echo", "{}")); err != nil {
			t.Errorf("the line cost more than its own call: %v", err)
		}
		long := strings.Repeat("x", 17<<20)
		_, err = g.Call(t.Context(), tool("echo", `"`+long+`"`))
		wantCode(t, err, capability.CodeTooLarge, "")
	})
	t.Run("never", func(t *testing.T) {
		g := begin(t)
		r := tool("never", "{}")
		r.Idle = 50 * time.Millisecond
		_, err := g.Call(t.Context(), r)
		wantCode(t, err, capability.CodeTimeout, "idle_timeout")
	})
}

// A question over a pipe says nothing of whose it is: it is the only call's, or of none.
func TestQuestionsOverAPipe(t *testing.T) {
	g := &rig{}
	cfg := program(t, "plain")
	cfg.Roots = []string{"/srv"}
	newClient(t, g, cfg)
	g.connect(t)
	var logged string
	call := func(name string, ask capability.Asker) string {
		logged = ""
		r := tool(name, "{}")
		r.Ask = ask
		r.Progress = func(c capability.Chunk) { logged = string(c.Data) }
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := g.Call(ctx, r); err != nil {
			t.Fatal(err)
		}
		return logged
	}
	yes := func(context.Context, capability.Question) (json.RawMessage, error) {
		return json.RawMessage(`{"action":"accept"}`), nil
	}
	for _, tt := range []struct {
		tool string
		ask  capability.Asker
		want string
	}{
		{"question", yes, `{"action":"accept"}`},
		{"question", nil, `{"action":"cancel"}`},
		{"roots", nil, `{"roots":[{"uri":"file:///srv","name":"srv"}]}`},
		{"ping", nil, `{}`},
	} {
		if got := call(tt.tool, tt.ask); got != `{"level":"info","data":`+tt.want+`}` {
			t.Errorf("%s: %s, want %s", tt.tool, got, tt.want)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	other := make(chan error, 1)
	go func() { _, err := g.Call(ctx, tool("never", "{}")); other <- err }()
	until(t, "a refused question", func() bool {
		asked := false
		r := tool("question", "{}")
		r.Idle = 300 * time.Millisecond
		r.Ask = func(context.Context, capability.Question) (json.RawMessage, error) {
			asked = true
			return json.RawMessage(`{"action":"accept"}`), nil
		}
		_, _ = g.Call(t.Context(), r)
		return !asked // the other call is in flight by now
	})
	cancel()
	wantCode(t, await(t, "end of the other call", other), capability.CodeCancelled, "")
}

func TestStoppingTakesTheWholeGroup(t *testing.T) {
	mark := t.TempDir() + "/pid"
	g := &rig{}
	newClient(t, g, program(t, "orphan", "MCPCLIENT_TEST_MARK="+mark))
	g.connect(t)
	text, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the child is not there: %v", err)
	}
	began := time.Now()
	g.Close()
	if d := time.Since(began); d > time.Minute {
		t.Errorf("closing took %s; want d at most a minute", d)
	}
	until(t, "end of the child", func() bool {
		state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return true
		}
		_, after, _ := strings.Cut(string(state), ") ")
		return strings.HasPrefix(after, "Z") // it is not reaped where init does not
	})
}

func TestAProgramThatDoesNotWantToEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the grace times")
	}
	g := &rig{}
	cfg := program(t, "stubborn")
	newClient(t, g, cfg)
	g.connect(t)
	g.Close()
	id, err := os.ReadFile(filepath.Join(cfg.Dir, "waiting"))
	if err != nil {
		t.Fatalf("after its input ended: got %v, want a program that waits", err)
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, "asked")); err != nil {
		t.Errorf("after SIGTERM: got %v, want a program that was asked to end, and did not", err)
	}
	pid, err := strconv.Atoi(string(id))
	if err != nil {
		t.Fatalf("its process id: got %v, want a number", err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("signal 0 to the program after Close: got %v, want no such process", err)
	}
}
