package attack

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// anywhere is the strongest place there is.
func anywhere(t *testing.T) *server {
	t.Helper()
	for _, p := range places() {
		if p.user == "root" && os.Geteuid() != 0 {
			continue
		}
		status, err := p.status(t)
		if err != nil {
			t.Fatal(err)
		}
		if status.Tier == p.tier {
			return p.at(t)
		}
	}
	t.Skip("SKIPPED: this machine reaches neither T3 nor T2")
	return nil
}

// shell is the command line with a server to talk to.
type shell struct {
	*testing.T
	*server
}

// ok runs a command that must succeed, and returns what it wrote.
func (s shell) ok(args ...string) string {
	s.Helper()
	out, code := s.command(s.T, s.home, args...)
	if code != 0 {
		s.Errorf("junctor %q: %d: %s", args, code, out)
	}
	return out
}

// fails runs a command that must end with a status and say something.
func (s shell) fails(code int, says string, args ...string) {
	s.Helper()
	if out, got := s.command(s.T, s.home, args...); got != code || !strings.Contains(out, says) {
		s.Errorf("junctor %q: %d, wanted %d and %q: %s", args, got, code, says, out)
	}
}

func (s shell) says(want string, args ...string) {
	s.Helper()
	if out := s.ok(args...); !strings.Contains(out, want) {
		s.Errorf("junctor %q does not say %q: %s", args, want, out)
	}
}

// postman is like the seed's example, with a command-line tool of its own.
func postman(version string) pack {
	return pack{
		id: "tools.postman", version: version, permissions: []string{"exec"},
		plan: "{id: os, type: detect.platform}, {id: sh, type: verify.command_exists, command: sh}, {id: data, type: exec.shell, command: 'mkdir -p data && echo " + version + " > data/state', when: \"platform.os in ['linux']\"}, {id: conf, type: write.config, config_key: region, config_value: eu}",
		actions: `    - {id: get, description: Get, runner: exec.postman_cli, aliases: [fetch]}
    - {id: test, description: Test, runner: exec.postman_cli}
    - {id: bad, description: Fail, runner: exec.postman_cli}
    - {id: region, description: Region, runner: exec.postman_cli, argv: [region, '{config:region}']}
    - {id: state, description: State, runner: exec.cat, argv: [data/state]}
    - {id: explain, description: Explain, runner: analyze.response}
`,
		files:    map[string]string{"tools/postman": fakeCLI},
		manifest: map[string]any{"tools": []any{map[string]any{"name": "postman", "path": "tools/postman", "sha256": fakeCLISum()}}},
	}
}

const fakeCLI = "#!/bin/sh\ncase \"$1\" in\nget) printf '{\"url\": \"%s\", \"status\": 200}\\n' \"$2\";;\ntest) shift; printf 'tested'; printf ' [%s]' \"$@\"; echo;;\nregion) echo \"region $2\";;\n*) echo usage >&2; exit 2;;\nesac\n"

// TestF1 takes the three sample packages from install to uninstall, at the command
// line and over HTTP.
func TestF1(t *testing.T) {
	t.Parallel()
	s := shell{t, anywhere(t)}

	say := pack{
		id: "tools.test", permissions: []string{"exec"},
		actions: "    - {id: hello, description: Hello, runner: exec.echo, argv: [hello, '{args}']}\n    - {id: status, description: Status, runner: exec.uname, argv: ['-s']}\n",
	}
	s.says("done", "extensions", "install", say.folder(t))
	s.ok("extensions", "enable", "tools.test", "--yes")
	s.says("hello you", "run", "/test hello you")
	s.says("Linux", "run", "/test status")

	p := postman("1.0.0")
	s.says("install of tools.postman done", "extensions", "install", "--yes", p.folder(t))
	s.says("disabled", "extensions", "list")
	s.fails(5, "", "run", "/postman get https://a/b")
	s.fails(3, "run command-line programs", "extensions", "enable", "tools.postman")
	s.ok("extensions", "enable", "tools.postman", "--yes")
	s.says(`{"url": "https://a/b?x=1&y=2", "status": 200}`, "run", "/postman get https://a/b?x=1&y=2", "--session", "f1")
	s.says("tested [my coll.json] [--env] [dev]", "run", `/postman test "my coll.json" --env dev`)
	s.says("region eu", "run", "/postman region")
	s.says("1.0.0", "run", "/postman state")
	s.says("status", "run", "/postman explain last_response", "--session", "f1")
	s.fails(1, "exit code 2", "run", "/postman bad")
	s.fails(4, "/postman", "run", "/postmn get") // F3
	s.ok("extensions", "disable", "tools.postman")
	s.fails(5, "disabled", "run", "/postman get https://a/b")
	s.ok("extensions", "enable", "tools.postman", "--yes")
	s.ok("extensions", "install", "--yes", postman("1.1.0").folder(t)) // asks for nothing new
	s.ok("extensions", "enable", "tools.postman", "--yes")
	s.says("1.1.0", "run", "/postman state")
	if out, code := s.command(t, s.home, "extensions", "install", "--yes", p.folder(t)); code == 0 {
		t.Errorf("a lower version was installed: %s; want code other than 0", out)
	}
	s.says("nothing is wrong", "extensions", "doctor")
	s.ok("extensions", "uninstall", "tools.postman")
	s.fails(4, "", "run", "/postman get https://a/b")

	// Over HTTP, as a form.
	ctx, c := t.Context(), s.somebody(t, "admin")
	if err := s.install(ctx, c, p, t); err != nil {
		t.Fatal(err)
	}
	if r := s.run(ctx, c, "f1", "/postman get https://a/b"); r.Err != nil || !strings.Contains(r.Output, "https://a/b") ||
		r.Metadata["exit_code"] != 0.0 {
		t.Errorf(`%+v; want r.Err = nil, r.Output with "https://a/b", r.Metadata["exit_code"] = 0.0`, r)
	}
	if r := s.run(ctx, c, "f1", "/postman explain last_response"); r.Err != nil || !strings.Contains(r.Output, "url") {
		t.Errorf(`%+v; want r.Err = nil, r.Output with "url"`, r)
	}
	if err := c.Do(ctx, http.MethodPost, extensionsDoor+"/tools.postman/disable", nil, nil); err != nil {
		t.Error(err)
	}
	if r := s.run(ctx, c, "f1", "/postman get https://a/b"); r.Err == nil {
		t.Error("a disabled extension ran; want r.Err not nil")
	}
	if err := s.install(ctx, c, postman("2.0.0"), t); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"tools.postman", "tools.test"} {
		if err := s.uninstall(ctx, c, id); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(s.home, "extensions", id)); err == nil {
			t.Errorf("%s is still there; want an error", id)
		}
	}
	s.recorded(t, "event=extension_uninstalled&ext=tools.postman", "tools.postman")
}

// TestF1Legacy is the sample in the older shape, whose command is a script.
func TestF1Legacy(t *testing.T) {
	t.Parallel()
	s := shell{t, anywhere(t)}
	s.says("demo.hello", "extensions", "install", "--json", copied(t, "../../extensions/extension/testdata/hello"))
	s.ok("extensions", "enable", "demo.hello", "--yes")
	r := s.run(t.Context(), s.somebody(t, "admin"), "f1", "/hello World")
	if err := s.uninstall(t.Context(), s.admin, "demo.hello"); err != nil {
		t.Error(err)
	}
	if r.Err != nil || r.Output != "Hello, World!\n" {
		t.Errorf(`%q %v; want r.Err = nil, r.Output = "Hello, World!\n"`, r.Output, r.Err)
	}
}

// copied is a folder of the repository where another user can read it.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	walkable(to)
	return to
}

// TestF2 tries the worked examples of slash commands through the command line.
func TestF2(t *testing.T) {
	t.Parallel()
	s := shell{t, anywhere(t)}
	c := s.somebody(t, "admin")
	echo := func(ids ...string) (out string) {
		for _, id := range ids {
			out += "    - {id: " + id + ", description: X, runner: exec.echo, argv: ['{args}']}\n"
		}
		return out
	}
	mapped := func(p pack, fallback string) pack {
		p.files = map[string]string{"commands/commands.yaml": "slash_commands:\n- name: " + p.command() + "\n  summary: X\n  default_action: " +
			fallback + "\n  maps_to:\n    capability: " + p.id + "\n    actions:\n" + p.actions}
		return p
	}
	for _, p := range []pack{
		mapped(pack{id: "rows.pman", permissions: []string{"exec"}, actions: echo("get", "test", "explain")}, "explain"),
		mapped(pack{id: "rows.x", permissions: []string{"exec"}, actions: echo("get", "default")}, "default"),
		{id: "rows.hi", permissions: []string{"exec"}, actions: echo("default")},
	} {
		if err := s.install(t.Context(), c, p, t); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.uninstall(t.Context(), c, p.id) }() //nolint:usetesting // before the context ends
	}
	for _, row := range []struct {
		line, action string
		args         []string
	}{
		{`/pman get https://a/b?x=1&y=2`, "get", []string{"https://a/b?x=1&y=2"}},
		{`/pman test "my coll.json" --env dev`, "test", []string{"my coll.json", "--env", "dev"}},
		{`/hi World`, "default", []string{"World"}},
		{`/x get a\ b '$HOME' "q\"z"`, "get", []string{"a b", "$HOME", `q"z`}},
		{`/x get "" y`, "get", []string{"", "y"}},
		{`/x it's broken`, "default", []string{"it's", "broken"}},
		{`/pman 看看这个响应`, "explain", []string{"看看这个响应"}},
		{"/x get\nline2 --f=1", "get", []string{"line2", "--f=1"}},
	} {
		var plan struct {
			Action     string
			Args, Argv []string
		}
		if err := json.Unmarshal([]byte(s.ok("run", row.line, "--dry-run")), &plan); err != nil || plan.Action != row.action ||
			!slices.Equal(plan.Args, row.args) {
			t.Errorf("%q: %+v %v; want no error, plan.Action = %v, plan.Args = %v", row.line, plan, err, row.action, row.args)
		}
	}
	s.says("a b $HOME q\"z", "run", `/x get a\ b '$HOME' "q\"z"`)
	for _, line := range []string{"/ ls", "/etc/passwd is a file", "//x"} {
		s.fails(2, "not a command", "run", line)
	}
}

// TestF4 holds that a change is visible at once, to routing and to the catalog.
func TestF4(t *testing.T) {
	t.Parallel()
	s := anywhere(t)
	c := s.somebody(t, "admin")
	p := pack{
		id: "tools.ffour", permissions: []string{"exec"},
		actions: "    - {id: say, description: Say, runner: exec.echo, argv: ['{args}']}\n",
	}
	if err := s.install(t.Context(), c, p, t); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if r := s.run(t.Context(), c, "f4", "/ffour say x"); r.Err != nil {
			t.Errorf("round %d, right after it was enabled: %v; want r.Err = nil", i, r.Err)
		}
		if err := c.Do(t.Context(), http.MethodPost, extensionsDoor+"/"+p.id+"/disable", nil, nil); err != nil {
			t.Fatal(err)
		}
		if r := s.run(t.Context(), c, "f4", "/ffour say x"); r.Err == nil {
			t.Errorf("round %d: it ran right after it was disabled; want r.Err not nil", i)
		}
		if err := s.enable(t.Context(), c, p.id); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.uninstall(t.Context(), c, p.id); err != nil {
		t.Error(err)
	}
}

// TestF7 holds that a session's last response is not visible to another session.
func TestF7(t *testing.T) {
	t.Parallel()
	s := anywhere(t)
	one, two := s.somebody(t, "admin"), s.somebody(t, "admin")
	actions := "    - {id: say, description: Say, runner: exec.echo, argv: ['{args}']}\n    - {id: explain, description: Explain, runner: analyze.response}\n"
	for _, id := range []string{"tools.keeps", "tools.peeks"} {
		if err := s.install(t.Context(), one, pack{id: id, permissions: []string{"exec"}, actions: actions}, t); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.uninstall(t.Context(), one, id) }() //nolint:usetesting // before the context ends
	}
	if r := s.run(t.Context(), one, "s1", "/keeps say the-secret-answer"); r.Err != nil {
		t.Fatalf("r.Err = %v, want nil", r.Err)
	}
	if r := s.run(t.Context(), one, "s1", "/keeps explain last_response"); r.Err != nil || !strings.Contains(r.Output, "the-secret-answer") {
		t.Errorf(`its own: %q %v; want r.Err = nil, r.Output with "the-secret-answer"`, r.Output, r.Err)
	}
	if r := s.run(t.Context(), one, "s2", "/keeps explain last_response"); r.Err == nil {
		t.Errorf("another session: %q; want r.Err not nil", r.Output)
	}
	if r := s.run(t.Context(), two, "s1", "/keeps explain last_response"); r.Err == nil {
		t.Errorf("another user: %q; want r.Err not nil", r.Output)
	}
	if r := s.run(t.Context(), one, "s1", "/peeks explain last_response"); strings.Contains(r.Output, "the-secret-answer") {
		t.Errorf(`another extension: %q %v; want r.Output without "the-secret-answer"`, r.Output, r.Err)
	}
}
