package approvalhook

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/core/policy"
)

func TestDesktopIsFoundWhereADisplayIs(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the program is that of Linux")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "notify-send")
	script := "#!/bin/sh\nprintf '%s\\n' \"$@\" > " + filepath.Join(dir, "shown") + "\n/usr/bin/env > " + filepath.Join(dir, "env") + "\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatalf("writing the program: %v", err)
	}
	t.Setenv("PATH", dir)
	values := map[string]string{"DISPLAY": ":0", "JUNCTOR_TOKEN": "very-secret", "HOME": "/home/ann"}
	env := func(name string) string { return values[name] }
	if d := FindDesktop("off", env); d != nil {
		t.Errorf("FindDesktop(off) = %v, want none", d)
	}
	if d := FindDesktop("auto", func(string) string { return "" }); d != nil {
		t.Errorf("FindDesktop without a display = %v, want none", d)
	}
	d := FindDesktop("auto", env)
	if d == nil {
		t.Fatal("FindDesktop with a display = none, want one")
	}
	a := policy.Approval{ID: "apr_1", Summary: "writes very-secret"}
	a.Principal, a.Capability = "agent:a", "mcp.x:tool:--<b>y</b>\n\x1b[31mz"
	if err := d.show(t.Context(), approvalToast(a)); err != nil {
		t.Fatalf("showing: %v", err)
	}
	shown, err := os.ReadFile(filepath.Join(dir, "shown"))
	want := "--app-name=junctor\n--\njunctor: an approval is needed\nagent:a wants mcp.x:tool:--&lt;b&gt;y&lt;/b&gt;"
	got := string(shown)
	if err != nil || !strings.HasPrefix(got, want) || strings.ContainsAny(got, "\x1b") || strings.Contains(got, "very-secret") {
		t.Errorf("shown = %q, %v; want %q and neither control characters nor values", got, err, want)
	}
	environ, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil || strings.Contains(string(environ), "very-secret") {
		t.Errorf("environment = %q, %v; want no secret", environ, err)
	}
	t.Setenv("PATH", t.TempDir())
	if d := FindDesktop("auto", env); d != nil {
		t.Errorf("FindDesktop without the program = %v, want none", d)
	}
}

func TestADesktopThatFailsDelaysNoWebhook(t *testing.T) {
	r := &hookReceiver{statuses: []int{204}}
	var shown []string
	desktop := &Desktop{run: func(_ context.Context, _ string, _ []string, args ...string) error {
		shown = append(shown, args[len(args)-1])
		return errors.New("no session bus")
	}}
	events := slices.Repeat([]string{policy.EventApprovalAsked}, maxDesktopQueue+5)
	h := hookedOn(t, r, desktop, policy.ChannelOperator, append(events, policy.EventApprovalDecided)...)
	if len(r.bodies) != maxDesktopQueue+6 || h.fault != "" {
		t.Errorf("delivered %d notices (%q), want %d and no fault", len(r.bodies), h.fault, maxDesktopQueue+6)
	}
	if n := len(shown); n < maxDesktopQueue || n > maxDesktopQueue+1 { // one is being shown, the others wait
		t.Errorf("shown = %d notifications, want at most %d and no more", n, maxDesktopQueue+1)
	}
	if New("", "", nil, nil, nil, nil, nil) != nil {
		t.Error("a hook without a URL and a desktop = one, want none")
	}
}

func TestDesktopShowsEndsOfTasksOnly(t *testing.T) {
	for name, tt := range map[string]struct {
		data string
		want toast
		ok   bool
	}{
		"done":       {`{"thread_id":"thr_1","title":"a\nb","status":"done","text":"very-secret"}`, toast{"junctor: a task is done", "a\\nb\njunctor tasks show thr_1"}, true},
		"failed":     {`{"thread_id":"thr_1","title":"a","status":"failed"}`, toast{"junctor: a task has failed", "a\njunctor tasks show thr_1"}, true},
		"stopped":    {`{"thread_id":"thr_1","title":"a","status":"stopped"}`, toast{"junctor: a task has ended", "a\njunctor tasks show thr_1"}, true},
		"a question": {`{"thread_id":"thr_1","session_id":"s","title":"a","status":"active"}`, toast{}, false},
		"no task":    {`{}`, toast{}, false},
		"not JSON":   {`{`, toast{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := taskToast([]byte(tt.data)); got != tt.want || ok != tt.ok {
				t.Errorf("taskToast(%s) = %+v, %t, want %+v, %t", tt.data, got, ok, tt.want, tt.ok)
			}
		})
	}
}
