package tool_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/exec/tool"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/testkit/programfile"
	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) {
	if sandbox.IsHelper(os.Args) {
		syscall.Exit(sandbox.HelperMain(os.Args)) // os.Exit waits a second with the race detector
	}
	os.Exit(m.Run())
}

// program writes an executable script and returns its path and hash.
func program(t *testing.T, dir, name, text string, mode os.FileMode) (path, sum string) {
	t.Helper()
	path = filepath.Join(dir, name)
	programfile.Write(t, path, text, mode)
	h := sha256.Sum256([]byte(text))
	return path, hex.EncodeToString(h[:])
}

// guarded is the weakest confinement: what these tests are about is not the walls.
func guarded(t *testing.T) sandbox.Confinement {
	t.Helper()
	work := t.TempDir()
	return sandbox.Confinement{MinTier: sandbox.T1, MaxTier: sandbox.T1, Work: work, AllowUnfiltered: true}
}

func executor(dirs ...string) *tool.Executor {
	return tool.New(tool.Config{Walls: sandbox.New(sandbox.Config{}), Dirs: dirs})
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

func TestWhichToolMayRun(t *testing.T) {
	t.Parallel()
	shared, pack, link := t.TempDir(), t.TempDir(), t.TempDir()
	program(t, shared, "hello", "#!/bin/sh\necho shared\n", 0o755)
	program(t, shared, "loose", "#!/bin/sh\necho loose\n", 0o757)
	program(t, shared, "text", "not a program\n", 0o644)
	program(t, shared, "bash", "#!/bin/sh\necho bash\n", 0o755)
	program(t, shared, "python3.12", "#!/bin/sh\necho python\n", 0o755)
	if err := os.Symlink(filepath.Join(shared, "bash"), filepath.Join(link, "friendly")); err != nil {
		t.Fatal(err)
	}
	path, sum := program(t, pack, "hello", "#!/bin/sh\necho own\n", 0o755)
	x := executor(shared, link, "relative")
	may, interpreter := []string{"exec"}, []string{"exec", "exec.interpreter"}
	for _, tt := range []struct {
		name        string
		tool        string
		permissions []string
		own         map[string]tool.Own
		want, says  string
	}{
		{"a shared tool", "hello", may, nil, "", "shared"},
		{"the package's own before it", "hello", may, map[string]tool.Own{"hello": {Path: path, SHA256: strings.ToUpper(sum)}}, "", "own"},
		{
			"one that was changed since", "hello", may,
			map[string]tool.Own{"hello": {Path: path, SHA256: strings.Repeat("0", 64)}},
			"security_violation", "",
		},
		{"one that is gone", "hello", may, map[string]tool.Own{"hello": {Path: filepath.Join(pack, "gone"), SHA256: sum}}, "tool_not_found", ""},
		{"without the permission", "hello", []string{"network"}, nil, "permission_denied", ""},
		{"one that nobody has", "nothing", may, nil, "tool_not_found", ""},
		{"one that everybody may write", "loose", may, nil, "tool_not_found", ""},
		{"a file that is not a program", "text", may, nil, "tool_not_found", ""},
		{"an interpreter", "bash", may, nil, "permission_denied", ""},
		{"an interpreter with a version", "python3.12", may, nil, "permission_denied", ""},
		{"an interpreter under another name", "friendly", may, nil, "permission_denied", ""},
		{"an interpreter that is permitted", "bash", interpreter, nil, "", "bash"},
		{"one that takes on rights", "sudo", interpreter, nil, "security_violation", ""},
		{"a path", "../hello", may, nil, "security_violation", ""},
		{"an absolute path", "/bin/true", may, nil, "security_violation", ""},
		{"an option", "-c", may, nil, "security_violation", ""},
		{"nothing", "", may, nil, "security_violation", ""},
		{"dots", "..", may, nil, "security_violation", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := x.Execute(t.Context(), tool.Request{
				Tool: tt.tool, Permissions: tt.permissions, Own: tt.own, Confinement: guarded(t),
				Environment: tool.Environment{},
			})
			if reason(err) != tt.want || strings.TrimSpace(r.Output) != tt.says {
				t.Errorf("%q %v; want reason(err) = %v, strings.TrimSpace(r.Output) = %v", r.Output, err, tt.want, tt.says)
			}
		})
	}
}

func TestHowARunEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good":   "echo out; echo err >&2",
		"only":   "echo err >&2",
		"bad":    "echo kept; echo first >&2; echo last >&2; exit 3",
		"killed": "kill -9 $$",
		"slow":   "echo begun; sleep 30",
		"echo":   "cat; echo \"$1\"",
		"bytes":  "printf 'a\\000b'",
		"colour": "printf '\\033[31mred\\033[0m \\033]0;title\\007plain\\n'",
		"secret": "echo \"$API\"; echo \"in $API error\" >&2",
	} {
		program(t, dir, name, "#!/bin/sh\n"+text+"\n", 0o755)
	}
	x := executor(dir, "/usr/bin", "/bin")
	run := func(ctx context.Context, req tool.Request) (tool.Result, error) {
		req.Permissions, req.Confinement = []string{"exec"}, guarded(t)
		return x.Execute(ctx, req)
	}
	if r, err := run(t.Context(), tool.Request{Tool: "good"}); err != nil || !r.Success || r.Output != "out\n" || r.Stderr != "err\n" ||
		r.ExitCode != 0 {
		t.Errorf(`%+v %v; want no error, r.Success = true, r.Output = "out\n", r.Stderr = "err\n", r.ExitCode = 0`, r, err)
	}
	if r, err := run(t.Context(), tool.Request{Tool: "only"}); err != nil || r.Output != "err\n" {
		t.Errorf(`%+v %v; want no error, r.Output = "err\n"`, r, err)
	}
	r, err := run(t.Context(), tool.Request{Tool: "bad"})
	if reason(err) != "execution_failed" || r.ExitCode != 3 || r.Stdout != "kept\n" || !strings.Contains(err.Error(), "last") ||
		strings.Contains(err.Error(), "first") {
		t.Errorf(`%+v %v; want reason(err) = "execution_failed", r.ExitCode = 3, r.Stdout = "kept\n", err.Error() with "last", `+
			`err.Error() without "first"`, r, err)
	}
	if r, err := run(t.Context(), tool.Request{Tool: "killed"}); reason(err) != "execution_failed" || r.ExitCode != 137 || r.Signal == "" {
		t.Errorf(`%+v %v; want reason(err) = "execution_failed", r.ExitCode = 137, r.Signal other than ""`, r, err)
	}
	if r, err := run(t.Context(), tool.Request{Tool: "slow", Timeout: 300 * time.Millisecond}); capability.CodeOf(
		err) != capability.CodeTimeout || r.ExitCode != 124 || r.Stdout != "begun\n" {
		t.Errorf(`%+v %v; want capability.CodeOf( err) = capability.CodeTimeout, r.ExitCode = 124, r.Stdout = "begun\n"`, r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := run(ctx, tool.Request{Tool: "slow"}); capability.CodeOf(err) != capability.CodeCancelled || r.ExitCode != 130 {
		t.Errorf("%+v %v; want capability.CodeOf(err) = capability.CodeCancelled, r.ExitCode = 130", r, err)
	}
	if r, err := run(t.Context(), tool.Request{Tool: "echo", Stdin: []byte("in\n"), Args: []string{"$(id) ; `id`"}}); err != nil ||
		r.Stdout != "in\n$(id) ; `id`\n" {
		t.Errorf("%+v %v; want no error, r.Stdout = \"in\\n$(id) ; `id`\\n\"", r, err)
	}
	if r, err := run(t.Context(), tool.Request{Tool: "bytes"}); err != nil || !r.Binary || r.Stdout != "(3 bytes that are not text)" {
		t.Errorf(`%+v %v; want no error, r.Binary = true, r.Stdout = "(3 bytes that are not text)"`, r, err)
	}
	if r, err := run(t.Context(), tool.Request{Tool: "colour"}); err != nil || r.Stdout != "red plain\n" {
		t.Errorf(`%+v %v; want no error, r.Stdout = "red plain\n"`, r, err)
	}
	private := tool.Environment{Secrets: map[string]secret.Value{"API": secret.New("hunter2-very-secret")}}
	if r, err := run(t.Context(), tool.Request{Tool: "secret", Environment: private}); err != nil || r.Stdout != "[redacted]\n" ||
		r.Stderr != "in [redacted] error\n" {
		t.Errorf(`%+v %v; want no error, r.Stdout = "[redacted]\n", r.Stderr = "in [redacted] error\n"`, r, err)
	}
	for _, args := range [][]string{{"a\x00b"}, {strings.Repeat("x", 128<<10)}, slices.Repeat([]string{strings.Repeat("x", 100<<10)}, 11)} {
		if _, err := run(t.Context(), tool.Request{Tool: "echo", Args: args}); reason(err) != "security_violation" &&
			reason(err) != "args_too_long" {
			t.Errorf(`%d words: %v; want not (reason(err) != "security_violation" && reason(err) != "args_too_long")`, len(args), err)
		}
	}
}

func TestTheEnvironmentIsBuiltAndNotInherited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program(t, dir, "show", "#!/bin/sh\nset\n", 0o755)
	own := map[string]string{
		"HTTP_HINT": "x", "GITHUB_TOKEN": "t0ken", "LD_PRELOAD": "/evil.so", "LANG": "de_DE.UTF-8",
		"LC_ALL": "bad value;", "aws_profile": "p",
	}
	env := tool.Environment{
		Extension: "tools.x", Run: "run_1", Session: "s", Pass: []string{
			"HTTP_HINT", "GITHUB_TOKEN", "LD_PRELOAD", "aws_profile", "PATH",
			"not-a-name", "ABSENT",
		},
		Set:    map[string]string{"MODE": "fast"},
		Lookup: func(name string) (string, bool) { v, ok := own[name]; return v, ok },
	}
	c := guarded(t)
	r, err := executor(dir, c.Work, c.Work+"/bin").Execute(t.Context(),
		tool.Request{Tool: "show", Permissions: []string{"exec"}, Environment: env, Confinement: c})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"HTTP_HINT='x'", "MODE='fast'", "LANG='de_DE.UTF-8'", "LC_ALL='C.UTF-8'", "USER='agent'",
		"AGENTOS_RUN_ID='run_1'", "AGENTOS_EXTENSION_ID='tools.x'", "HOME='" + c.Work + "'", "PATH='" + dir + "'",
	} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("%s is not in\n%s\nwant r.Stdout with %v", want, r.Stdout, want)
		}
	}
	for _, never := range []string{"t0ken", "evil", "aws_profile", "ABSENT", "GOPATH", "GOCACHE"} {
		if strings.Contains(r.Stdout, never) {
			t.Errorf("%s is in\n%s\nwant r.Stdout without %v", never, r.Stdout, never)
		}
	}
	for name, set := range map[string]map[string]string{
		"a loader": {"LD_AUDIT": "x"}, "a path": {"PATH": "/x"}, "a bad name": {"A B": "x"},
		"a secret by name": {"MY_TOKEN": "x"},
	} {
		_, err := executor(dir).Execute(t.Context(), tool.Request{
			Tool: "show", Permissions: []string{"exec"},
			Environment: tool.Environment{Set: set}, Confinement: guarded(t),
		})
		if reason(err) != "security_violation" {
			t.Errorf(`%s: %v; want reason(err) = "security_violation"`, name, err)
		}
	}
	big := tool.Environment{Set: map[string]string{"BIG": strings.Repeat("x", 65<<10)}}
	if _, err := executor(dir).Execute(t.Context(), tool.Request{
		Tool: "show", Permissions: []string{"exec"}, Environment: big,
		Confinement: guarded(t),
	}); reason(err) != "args_too_long" {
		t.Errorf(`%v; want reason(err) = "args_too_long"`, err)
	}
}

func TestNamesThatAreNeverPassed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"LD_PRELOAD", "ld_preload", "NODE_OPTIONS", "GH_TOKEN", "MY_API_KEY", "DB_PASSWORD_FILE", "CLIENT_SECRETS",
		"GLIBC_TUNABLES", "MALLOC_CHECK_", "OPENSSL_CONF", "SSL_CERT_FILE", "CURL_HOME", "PERLLIB", "LESSOPEN", "HOSTALIASES", "TAR_OPTIONS",
		"ENV", "AWS_REGION", "JUNCTOR_TOKEN", "BASH_FUNC_x",
	} {
		if !tool.Denied(name) {
			t.Errorf("%s is passed; want tool.Denied(name)", name)
		}
	}
	for _, name := range []string{"EDITOR", "HTTP_HINT", "ENVIRONMENT", "KEYBOARD", "TZ"} {
		if tool.Denied(name) {
			t.Errorf("%s is not passed; want not tool.Denied(name)", name)
		}
	}
}

func TestOutputIsMadeHarmless(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain\ttext\n":                          "plain\ttext\n",
		"a\x1b[2Jb\x1b[1;31mc\x1b[0m":            "abc",
		"\x1b]8;;http://x\x1b\\link\x1b]8;;\x07": "link",
		"\x1b]0;never closed\nrest":              "\nrest",
		"\x1bPdcs\x1b\\x\x1b_apc\x1b\\y":         "xy",
		"one\r\ntwo\rthree":                      "one\ntwo\nthree",
		"bell\x07 back\x08 del\x7f":              "bell back del",
		"evil\u202egnp.exe":                      "evil\\u202egnp.exe",
		"bad \xff\xfe utf8":                      "bad \uFFFD\uFFFD utf8",
		"\u009b31mred":                           "31mred",
		"日本\x1b":                                 "日本",
	} {
		if got := tool.Clean(in, nil); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := tool.Clean("key=abcd1234 ab\x1b[0mcd1234", []string{"abcd1234"}); got != "key=[redacted] [redacted]" {
		t.Errorf(`%q; want got = "key=[redacted] [redacted]"`, got)
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[31mb\x1b]0;x\x07c\u202e", "secret")
	f.Add("\x1b\x1b[[[\x1b]\x1b\\", "[31m")
	f.Fuzz(func(t *testing.T, text, hidden string) {
		var secrets []string
		if len(hidden) >= 4 && !strings.Contains("[redacted]", hidden) {
			secrets = []string{hidden}
		}
		out := tool.Clean(text, secrets)
		if !utf8.ValidString(out) {
			t.Fatalf("%q; want utf8.ValidString(out)", out)
		}
		for _, r := range out {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				t.Fatalf(`%q holds %U; want not (unicode.IsControl(r) && r != '\n' && r != '\t')`, out, r)
			}
		}
		if again := tool.Clean(out, nil); again != out {
			t.Fatalf("%q, then %q; want again = %v", out, again, out)
		}
	})
}

// BenchmarkClean is the formatting of an output as large as is shown.
func BenchmarkClean(b *testing.B) {
	text := strings.Repeat("a line of a log, \x1b[32mok\x1b[0m, größer als vorher\n", 256<<10/50)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tool.Clean(text, []string{"a secret of some length"})
	}
}
