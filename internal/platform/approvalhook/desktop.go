package approvalhook

import (
	"context"
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

// show shows one approval. It contains no value of the call, and its texts come from strangers, so
// they are arguments without markup.
func (d *Desktop) show(ctx context.Context, a policy.Approval) error {
	ctx, cancel := context.WithTimeout(ctx, desktopTimeout)
	defer cancel()
	title := "junctor: an approval is needed"
	body := fmt.Sprintf("%s wants %s\njunctor approvals show %s", text.Line(text.Visible(a.Principal), maxDesktopRunes),
		text.Line(text.Visible(string(a.Capability)), maxDesktopRunes), text.Line(a.ID, maxDesktopRunes))
	if runtime.GOOS == "darwin" {
		return d.run(ctx, d.program, d.env, "-e", "on run argv", "-e", "display notification (item 2 of argv) with title (item 1 of argv)",
			"-e", "end run", title, body)
	}
	body = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(body)
	return d.run(ctx, d.program, d.env, "--app-name=junctor", "--", title, body)
}
