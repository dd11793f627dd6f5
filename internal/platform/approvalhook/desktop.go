package approvalhook

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// Desktop shows notifications on the desktop of the user who started the server.
type Desktop struct {
	program string
	env     []string // the session of the desktop, and nothing else
	run     func(ctx context.Context, program string, env []string, args ...string) error
}

// FindDesktop returns the desktop of this process, or nil if mode is "off", or it has none or no
// program that shows notifications.
func FindDesktop(mode string, env func(string) string) *Desktop {
	program := "notify-send"
	if mode == "off" {
		return nil
	}
	if runtime.GOOS == "darwin" {
		program = "osascript"
	} else if env("DISPLAY") == "" && env("WAYLAND_DISPLAY") == "" {
		return nil
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return nil
	}
	d := &Desktop{program: path, run: runDesktop}
	for _, name := range []string{"HOME", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "LANG"} {
		if value := env(name); value != "" {
			d.env = append(d.env, name+"="+value)
		}
	}
	return d
}

func runDesktop(ctx context.Context, program string, env []string, args ...string) error {
	c := exec.CommandContext(ctx, program, args...)
	c.Env, c.WaitDelay = env, time.Second
	return c.Run()
}

// toast is one notification.
type toast struct{ title, body string }

// approvalToast contains no value of the call.
func approvalToast(a policy.Approval) toast {
	return toast{"junctor: an approval is needed", fmt.Sprintf("%s wants %s\njunctor approvals show %s", line(a.Principal),
		line(string(a.Capability)), line(a.ID))}
}

// taskToast returns the notification of the end of a task, from the data of an event agent.message; ok is false
// for other messages.
func taskToast(data []byte) (n toast, ok bool) {
	var m struct {
		Thread  string `json:"thread_id"`
		Session string `json:"session_id"`
		Title   string `json:"title"`
		Status  string `json:"status"`
	}
	if json.Unmarshal(data, &m) != nil || m.Thread == "" || m.Session != "" {
		return toast{}, false
	}
	title := "junctor: a task has ended"
	switch m.Status {
	case "done":
		title = "junctor: a task is done"
	case "failed":
		title = "junctor: a task has failed"
	}
	return toast{title, line(m.Title) + "\njunctor tasks show " + line(m.Thread)}, true
}

func line(s string) string { return text.Line(text.Visible(s), maxDesktopRunes) }

// show shows a notification. Its texts come from strangers, so they are arguments without markup.
func (d *Desktop) show(ctx context.Context, n toast) error {
	ctx, cancel := context.WithTimeout(ctx, desktopTimeout)
	defer cancel()
	if runtime.GOOS == "darwin" {
		return d.run(ctx, d.program, d.env, "-e", "on run argv", "-e", "display notification (item 2 of argv) with title (item 1 of argv)",
			"-e", "end run", n.title, n.body)
	}
	body := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(n.body)
	return d.run(ctx, d.program, d.env, "--app-name=junctor", "--", n.title, body)
}
