package fault_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

func TestFailuresSayWhatTheSpecWants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err          *capability.Error
		code, reason string
		want         []string
	}{
		{fault.InvalidArgs("usage: /x", "no"), "invalid_input", "invalid_args", []string{"no", "usage: /x"}},
		{fault.UnsupportedRunner("foo.bar", []string{"exec", "api"}), "invalid_input", "unsupported_runner", []string{"foo.bar", "exec, api"}},
		{fault.ToolNotFound("curl"), "unavailable", "tool_not_found", []string{"curl", "install"}},
		{
			fault.PermissionDenied("network", "the extension does not declare it"), "denied", "permission_denied",
			[]string{"network", "does not declare", "grants"},
		},
		{fault.SecurityViolation("a path outside"), "denied", "security_violation", []string{"policy", "working directory"}},
		{fault.SandboxUnavailable("T3", "T1"), "unavailable", "sandbox_unavailable", []string{"T3", "T1", "sandbox status"}},
		{fault.SandboxSetupFailed("T3", fmt.Errorf("/secret/path")), "failed", "sandbox_setup_failed", []string{"T3", "sandbox status"}},
		{fault.TimedOut(30 * time.Second), "timeout", "timeout", []string{"30 seconds", "raise"}},
		{fault.Cancelled(), "cancelled", "", []string{"cancelled"}},
		{fault.ResourceLimit("memory", "512 MiB"), "failed", "resource_limit", []string{"memory", "512 MiB"}},
		{fault.OutputLimit(1024), "failed", "output_limit", []string{"1024"}},
		{fault.ExecutionFailed(7, "first\n\x1b[31mlast "+strings.Repeat("é", 600)+"\n"), "failed", "execution_failed", []string{"7", "last"}},
		{fault.QueueFull(100, time.Second), "overloaded", "queue_full", []string{"full", "1s"}},
	} {
		text := fault.Text(c.err, "/home/al")
		if string(c.err.Code) != c.code || c.err.Reason != c.reason {
			t.Errorf("%s %s: want %s %s", c.err.Code, c.err.Reason, c.code, c.reason)
		}
		for _, part := range c.want {
			if !strings.Contains(text, part) {
				t.Errorf("%q lacks %q; want text with %v", text, part, part)
			}
		}
		if strings.Contains(text, "/secret") || strings.ContainsRune(text, '\x1b') || strings.Contains(text, "first") || len([]rune(text)) > 560 {
			t.Errorf(`%q tells too much; want text without "/secret", not strings.ContainsRune(text, '\x1b'), text without `+
				`"first", len([]rune(text)) at most 560`, text)
		}
	}
	err := capability.Errorf(capability.CodeFailed, "x", "in /home/al/work, not /home/alice").With("", "look into /home/al")
	if got := fault.Text(err, "/home/al/"); got != "in ~/work, not /home/alice\n\nHint: look into ~" {
		t.Errorf(`fault.Text(err, "/home/al/") = %v, want %v`, got, "in ~/work, not /home/alice\n\nHint: look into ~")
	}
	if fault.Text(nil, "") != "" {
		t.Error(`nothing has a text; want fault.Text(nil, "") = ""`)
	}
}
