//go:build unix

package signin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// helper is a program that does what a script says, and an account that is there once the
// file "account" is.
func helper(t *testing.T, script string) (h Helper, dir string) {
	t.Helper()
	dir = t.TempDir()
	mark := "SIGNIN_TEST=" + filepath.Base(dir) + t.Name()
	return Helper{
		Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin", mark}, Dir: dir, Mark: mark,
		LoggedIn: func(context.Context) bool {
			_, err := os.Stat(filepath.Join(dir, "account"))
			return err == nil
		},
	}, dir
}

// run begins the helper and returns what is shown until enough is.
func run(t *testing.T, h Helper, enough func(Prompt) bool) (p Prompt, end func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	shown, over := make(chan Prompt, 100), make(chan error, 1)
	go func() { over <- h.Run(ctx, func(p Prompt) { shown <- p }, nil) }()
	for {
		select {
		case p = <-shown:
			if enough(p) {
				return p, func() error { return <-over }
			}
		case err := <-over:
			t.Fatalf("it ended: %v, after %+v", err, p)
		}
	}
}

func wrapped(address string) string {
	var b strings.Builder
	b.WriteString("  ")
	for at := 2; address != ""; at = 0 {
		n := min(len(address), cols-at)
		b.WriteString(address[:n] + "\\r\\n")
		address = address[n:]
	}
	return strings.ReplaceAll(b.String(), "%", "%%")
}

// TestALoginWhoseAddressIsWrapped: the recorded form of Codex, on a screen of its own,
// until the account is there.
func TestALoginWhoseAddressIsWrapped(t *testing.T) {
	t.Parallel()
	h, dir := helper(t, `printf '\033[?1049h\033[2J\033[H  Finish signing in via your browser\r\n\r\n`+wrapped(codexAddress)+
		`\r\n  Press esc to cancel'; (sleep 300 & echo $! > child; wait) & sleep 300`)
	p, end := run(t, h, func(p Prompt) bool { return p.URL == codexAddress })
	if p.DeviceCode != "" || !strings.HasPrefix(p.Instructions, "Open the address") {
		t.Errorf(`%+v; want p.DeviceCode = "", p.Instructions beginning with "Open the address"`, p)
	}
	if err := os.WriteFile(filepath.Join(dir, "account"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || syscall.Kill(pid, 0) == nil && !zombie(pid) {
		t.Errorf("process %d is left, %v; want no error, not (syscall.Kill(pid, 0) == nil && !zombie(pid))", pid, err)
	}
}

func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(data), ") Z ")
}

func TestFormsOfLogins(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ script, url, code, says string }{
		"a link with a short text": {
			`printf 'Sign in: \033]8;;https://auth.openai.com/oauth/authorize?state=1\033\\here\033]8;;\033\\\r\n'`,
			"https://auth.openai.com/oauth/authorize?state=1", "", "Open the address",
		},
		"a device code": {
			`printf 'Open https://auth.openai.com/codex/device\r\nand enter this code:\r\n\r\n   ABCD-12345\r\n'`,
			"https://auth.openai.com/codex/device", "ABCD-12345", "enter the code",
		},
		"a host of somebody else":  {`printf 'Open https://login.example/x\r\n'`, "", "", "https://login.example/x"},
		"no address at all":        {`printf 'Choose:\r\n 1. This\r\n'`, "", "", "on the machine of the server"},
		"a terminal that is asked": {`printf '\033[c'; i=0; while [ $i -lt 500 ]; do printf '\033[6n\033]10;?\033\\'; i=$((i+1)); done; printf '\r\nhttps://claude.ai/x\r\n'`, "https://claude.ai/x", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, dir := helper(t, tt.script+`; while [ ! -e account ]; do sleep 0.1; done`)
			p, end := run(t, h, func(p Prompt) bool { return p.URL == tt.url && p.DeviceCode == tt.code })
			if !strings.Contains(p.Instructions, tt.says) {
				t.Errorf("%+v; want p.Instructions with %v", p, tt.says)
			}
			if err := os.WriteFile(filepath.Join(dir, "account"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := end(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestALoginThatEndsWithoutAnAccount(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script, says string
		before       bool
	}{
		"it fails":        {"echo 'Error: the login service is out of order'; exit 1", "out of order", false},
		"it says nothing": {"exit 0", "it said nothing", false},
		"a token in its last words": {
			"echo 'bad token sk-ant-api03-" + strings.Repeat("a", 60) + "'; exit 1", "bad token", false,
		},
		"the account from before does not count": {"exit 3", "without a login", true},
	} {
		h, dir := helper(t, tt.script)
		if tt.before {
			if err := os.WriteFile(filepath.Join(dir, "account"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := h.Run(t.Context(), func(Prompt) {}, nil)
		if capability.AsError(err).Reason != "login_failed" || !strings.Contains(err.Error(), tt.says) ||
			strings.Contains(err.Error(), "aaaaaa") {
			t.Errorf(`%s: %v; want capability.AsError(err).Reason = "login_failed", err.Error() with %v, err.Error() without "aaaaaa"`,
				name, err, tt.says)
		}
	}
	// A user who logs in again is logged in when the program says so.
	h, dir := helper(t, "exit 0")
	if err := os.WriteFile(filepath.Join(dir, "account"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context(), func(Prompt) {}, nil); err != nil {
		t.Error(err)
	}
	h.Argv = []string{filepath.Join(dir, "nothing")}
	if err := h.Run(t.Context(), func(Prompt) {}, nil); capability.AsError(err).Reason != "program_missing" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "program_missing"`, err)
	}
}

func TestALoginIsGivenUp(t *testing.T) {
	t.Parallel()
	h, _ := helper(t, `trap '' TERM HUP INT; while :; do printf 'https://claude.ai/x %s\r\n' "$(head -c 2000 /dev/zero | tr '\0' x)"; done`)
	ctx, cancel := context.WithCancel(t.Context())
	err := h.Run(ctx, func(Prompt) { cancel() }, nil)
	if capability.CodeOf(err) != capability.CodeCancelled {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeCancelled", err)
	}
}

// TestAPastedCode: the recorded form of Claude Code 2.1.330.
func TestAPastedCode(t *testing.T) {
	t.Parallel()
	h, dir := helper(t, `printf 'Opening browser to sign in…\r\nIf the browser didn'"'"'t open, visit:\r\n\033]8;;https://claude.ai/oauth/authorize?code=true\007\033[94mhttps://claude.ai/oauth/authorize?code=true\033[39m\033]8;;\007\r\nPaste code here if prompted > '; read -r code; [ "$code" = 'abc#d$e' ] && touch account`)
	typed, asked := make(chan string, 1), false
	err := h.Run(t.Context(), func(p Prompt) {
		if p.URL == "https://claude.ai/oauth/authorize?code=true" && strings.Contains(p.Instructions, "code") && !asked {
			asked = true
			typed <- "abc#d$e"
		}
	}, typed)
	if _, missing := os.Stat(filepath.Join(dir, "account")); err != nil || missing != nil || !asked {
		t.Errorf("%v %v; want no error, missing = nil, asked = true", err, missing)
	}
}

// TestAWrongCodeIsNotRepeated: what was typed may stand in the last words.
func TestAWrongCodeIsNotRepeated(t *testing.T) {
	t.Parallel()
	h, _ := helper(t, `printf 'https://claude.ai/x\r\nPaste code > '; read -r code; echo "wrong: $code"; exit 1`)
	typed := make(chan string, 1)
	typed <- "s3cret"
	if err := h.Run(t.Context(), func(Prompt) {}, typed); capability.AsError(err).Reason != "login_failed" ||
		strings.Contains(err.Error(), "s3cret") {
		t.Errorf(`%v; want capability.AsError(err).Reason = "login_failed", err.Error() without "s3cret"`, err)
	}
}
