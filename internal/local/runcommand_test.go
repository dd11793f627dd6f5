//go:build unix

package local

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/platform/roots"
	"github.com/junctor-run/junctor/internal/testkit/programfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newCommandHost(t *testing.T) (*host.Host, string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(base, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	set, err := roots.Open([]roots.Root{{ID: "main", Path: base}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	h := host.New(host.Config{})
	if err := h.Register(CommandFunctions(CommandConfig{Enabled: true, Roots: set, Grace: 100 * time.Millisecond})...); err != nil {
		t.Fatal(err)
	}
	return h, base
}

func runCommand(ctx context.Context, h *host.Host, input string) (commandResult, *capability.Error) {
	r, err := h.Invoke(ctx, capability.Call{Action: opCommandRun, Input: json.RawMessage(input)})
	if err != nil {
		return commandResult{}, capability.AsError(err)
	}
	var out commandResult
	if err := json.Unmarshal(r.Value, &out); err != nil {
		return commandResult{}, capability.AsError(err)
	}
	return out, nil
}

func TestRun(t *testing.T) {
	t.Parallel()
	h, base := newCommandHost(t)
	programfile.Write(t, filepath.Join(base, "sub/own"), "#!/bin/sh\necho own $1\n", 0o700)
	tests := []struct {
		name, input, output string
		code                int
	}{
		{"a line goes through the shell", `{"command":"echo a | tr a b"}`, "b\n", 0},
		{"with args no shell", `{"command":"echo","args":["$HOME; a | b","*"]}`, "$HOME; a | b *\n", 0},
		{"empty args are none", `{"command":"echo a | tr a b","args":[]}`, "b\n", 0},
		{"program of the working directory", `{"command":"./own","args":["x"],"cwd":"sub"}`, "own x\n", 0},
		{"stderr follows", `{"command":"echo e >&2; echo o; exit 3"}`, "o\n\ne\n", 3},
		{"working directory", `{"command":"pwd","cwd":"sub"}`, base + "/sub\n", 0},
		{"default working directory", `{"command":"pwd"}`, base + "\n", 0},
		{"given environment", `{"command":"echo $X","env":{"X":"y"}}`, "y\n", 0},
		{"path may be replaced", `{"command":"echo $PATH","env":{"PATH":"/x"}}`, "/x\n", 0},
		{"no input", `{"command":"cat"}`, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, err := runCommand(t.Context(), h, tt.input)
			if err != nil {
				t.Fatal(err)
			}
			if out.Output != tt.output || out.ExitCode == nil || *out.ExitCode != tt.code || out.TimedOut {
				t.Errorf("got %q, %v, %v; want out.Output = %v, out.ExitCode not nil, *out.ExitCode = %v, out.TimedOut = false",
					out.Output, out.ExitCode, out.TimedOut, tt.output, tt.code)
			}
		})
	}
}

func TestOurEnvironmentStaysOurs(t *testing.T) {
	t.Setenv("JUNCTOR_TOKEN", "sekrit")
	t.Setenv("SOME_API_KEY", "sekrit")
	h, _ := newCommandHost(t)
	out, err := runCommand(t.Context(), h, `{"command":"env"}`)
	if err != nil || strings.Contains(out.Output, "sekrit") {
		t.Errorf(`got %q, %v; want no error, out.Output without "sekrit"`, out.Output, err)
	}
}

func TestTimeIsUp(t *testing.T) {
	t.Parallel()
	h, _ := newCommandHost(t)
	out, err := runCommand(t.Context(), h, `{"command":"echo begun; trap '' TERM; while :; do sleep 1; done","timeoutMs":200}`)
	if err != nil {
		t.Fatal(err)
	}
	if !out.TimedOut || out.ExitCode != nil || out.Output != "begun\n" {
		t.Errorf(`got %+v; want out.TimedOut = true, out.ExitCode = nil, out.Output = "begun\n"`, out)
	}
}

func TestTheCallersEndIsAnError(t *testing.T) {
	t.Parallel()
	h, _ := newCommandHost(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := runCommand(ctx, h, `{"command":"sleep 60"}`); err == nil || err.Code != capability.CodeTimeout {
		t.Errorf("got %v; want an error, err.Code = capability.CodeTimeout", err)
	}
}

func TestLargeOutputKeepsHeadAndTail(t *testing.T) {
	t.Parallel()
	h, _ := newCommandHost(t)
	out, err := runCommand(t.Context(), h, `{"command":"echo first; yes | head -c 3000000; echo last"}`)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.Output, "first\n") || !strings.HasSuffix(out.Output, "last\n") ||
		!strings.Contains(out.Output, "bytes of output omitted") || len(out.Output) > 1<<20+100 {
		t.Errorf(`got %d bytes; want out.Output beginning with "first\n", out.Output ending with "last\n", out.Output with `+
			`"bytes of output omitted", len(out.Output) at most 1<<20 + 100`, len(out.Output))
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	h, base := newCommandHost(t)
	tests := []struct {
		name, input string
		code        capability.Code
	}{
		{"no command", `{"command":" "}`, capability.CodeInvalidInput},
		{"NUL", `{"command":"a\u0000"}`, capability.CodeInvalidInput},
		{"too large", `{"command":"` + strings.Repeat("x", maxCommandBytes+1) + `"}`, capability.CodeInvalidInput},
		{"time below the range", `{"command":"true","timeoutMs":0}`, capability.CodeInvalidInput},
		{"time above the range", `{"command":"true","timeoutMs":1800001}`, capability.CodeInvalidInput},
		{"loader variable", `{"command":"true","env":{"LD_PRELOAD":"x"}}`, capability.CodeDenied},
		{"shell variable", `{"command":"true","env":{"BASH_ENV":"x"}}`, capability.CodeDenied},
		{"bad variable", `{"command":"true","env":{"A=B":"x"}}`, capability.CodeInvalidInput},
		{"directory outside", `{"command":"true","cwd":"/etc"}`, capability.CodeDenied},
		{"directory above", `{"command":"true","cwd":".."}`, capability.CodeDenied},
		{"directory missing", `{"command":"true","cwd":"gone"}`, capability.CodeNotFound},
		{"program missing", `{"command":"no-such-program","args":["x"]}`, capability.CodeNotFound},
		{"wrong type", `{"command":["ls"]}`, capability.CodeInvalidInput},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := runCommand(t.Context(), h, tt.input)
			if err == nil || err.Code != tt.code {
				t.Fatalf("got %v, want %q", err, tt.code)
			}
			if strings.Contains(err.Error(), base) {
				t.Errorf("the message names a host path: %v; want err.Error() without %v", err, base)
			}
		})
	}
}

func TestOffUnlessTurnedOn(t *testing.T) {
	t.Parallel()
	if f := CommandFunctions(CommandConfig{})[0]; f.Unavailable != "running commands is turned off" {
		t.Errorf(`got %q; want f.Unavailable = "running commands is turned off"`, f.Unavailable)
	}
	if f := CommandFunctions(CommandConfig{Enabled: true})[0]; f.Unavailable != roots.NoneReason {
		t.Errorf("got %q; want f.Unavailable = roots.NoneReason", f.Unavailable)
	}
}
