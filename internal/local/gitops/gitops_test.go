//go:build unix

package gitops

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/platform/roots"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

type fixture struct {
	t    *testing.T
	base string // of the root
	host *host.Host
}

// setup returns functions whose git is confined, where this machine can do that.
func setup(t *testing.T) *fixture {
	t.Helper()
	return setupWith(t, gitcmd.Config{Walls: sandbox.New(sandbox.Config{})}, false)
}

func setupWith(t *testing.T, cfg gitcmd.Config, readOnly bool) *fixture {
	t.Helper()
	cfg.Unconfined = true
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, base: filepath.Join(base, "root")}
	f.write("repo/a.txt", "one\n")
	f.write("repo/dir/b.txt", "two\n")
	f.write("plain/x.txt", "x\n")
	f.write("../outside/secret.txt", "secret\n")
	f.plain("repo", "init", "-q", "-b", "main")
	f.plain("repo", "add", ".")
	f.plain("repo", "commit", "-q", "-m", "first")
	if err := os.Symlink(filepath.Join(base, "outside"), filepath.Join(f.base, "repo/out")); err != nil {
		t.Fatal(err)
	}
	set, err := roots.Open([]roots.Root{{ID: "main", Path: f.base, ReadOnly: readOnly}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	git, err := gitcmd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.host = host.New(host.Config{})
	if err := f.host.Register(Functions(Config{Roots: set, Git: git})...); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.base, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) plain(dir string, args ...string) {
	f.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = filepath.Join(f.base, dir)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + f.base, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func (f *fixture) call(action, input string, into any) *capability.Error {
	f.t.Helper()
	r, err := f.host.Invoke(f.t.Context(), capability.Call{Action: capability.Action(action), Input: json.RawMessage(input)})
	if err != nil {
		e := capability.AsError(err)
		if strings.Contains(e.Message+e.Hint, filepath.Dir(f.base)) {
			f.t.Errorf("%s %s: the error names a host path: %v; want e.Message + e.Hint without filepath.Dir(f.base)", action, input, e)
		}
		return e
	}
	if into != nil {
		if err := json.Unmarshal(r.Value, into); err != nil {
			f.t.Fatal(err)
		}
	}
	return nil
}

func TestStatusOfARealTree(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.write("repo/a.txt", "changed\n")
	f.write("repo/new ä \"name\".txt", "n\n")
	f.plain("repo", "mv", "dir/b.txt", "dir/c -> d.txt")
	for _, key := range []string{"cwd", "root"} {
		var s statusResult
		if err := f.call("git.status", fmt.Sprintf(`{%q:"repo"}`, key), &s); err != nil {
			t.Fatal(err)
		}
		want := []fileItem{
			{" M", "a.txt", ""},
			{"R ", "dir/c -> d.txt", "dir/b.txt"},
			{"??", "new ä \"name\".txt", ""},
			{"??", "out", ""},
		}
		if diff := cmp.Diff(want, s.Files); diff != "" || s.Branch != "main" || s.Ahead != nil || s.Repo.Path != "repo" {
			t.Errorf("%s: %+v\n%s\nwant diff = \"\", s.Branch = \"main\", s.Ahead = nil, s.Repo.Path = \"repo\"", key, s, diff)
		}
		if !strings.HasPrefix(s.Raw, "## main\n") {
			t.Errorf(`raw is %q; want s.Raw beginning with "## main\n"`, s.Raw)
		}
	}
	f.plain("repo", "checkout", "-q", "--detach")
	var s map[string]any
	if err := f.call("git.status", `{"cwd":"repo"}`, &s); err != nil {
		t.Fatal(err)
	}
	if _, present := s["branch"]; present {
		t.Error("a detached head has a branch")
	}
}

func TestParseStatusHeader(t *testing.T) {
	t.Parallel()
	n := func(i int) *int { return &i }
	tests := []struct {
		header, branch string
		ahead, behind  *int
	}{
		{"main", "main", nil, nil},
		{"No commits yet on main", "main", nil, nil},
		{"HEAD (no branch)", "", nil, nil},
		{"main...origin/main", "main", n(0), n(0)},
		{"main...origin/main [ahead 1]", "main", n(1), n(0)},
		{"main...origin/main [behind 2]", "main", n(0), n(2)},
		{"fix/x.y...o/fix/x.y [ahead 1, behind 2]", "fix/x.y", n(1), n(2)},
		{"main...origin/main [gone]", "main", nil, nil},
	}
	for _, tt := range tests {
		s := parseStatus(sandbox.Output{Head: []byte("## " + tt.header + "\n")})
		if diff := cmp.Diff([]any{tt.branch, tt.ahead, tt.behind}, []any{s.Branch, s.Ahead, s.Behind}); diff != "" {
			t.Errorf("%s:\n%s\nwant diff = \"\"", tt.header, diff)
		}
	}
}

func TestParseStatusSkipsLinesCutInTwo(t *testing.T) {
	t.Parallel()
	s := parseStatus(sandbox.Output{Head: []byte("## main\n M a\n M b/ha"), Tail: []byte(" M lf\n M z\n"), Omitted: 10})
	want := []fileItem{{" M", "a", ""}, {" M", "z", ""}}
	if diff := cmp.Diff(want, s.Files); diff != "" || !s.Truncated {
		t.Errorf("diff (-want +got):\n%s; s.Truncated = %v, want true", diff, s.Truncated)
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.write("repo/a.txt", "changed\n")
	f.write("repo/dir/b.txt", "changed\n")
	f.plain("repo", "add", "dir/b.txt")
	tests := []struct{ name, input, has, hasNot string }{
		{"working tree", `{"cwd":"repo"}`, "a.txt", "b.txt"},
		{"staged", `{"cwd":"repo","staged":true}`, "b.txt", "a.txt"},
		{"one path", `{"cwd":"repo","path":"dir"}`, "", "a.txt"},
		{"below the top", `{"cwd":"repo/dir","staged":true,"path":"b.txt"}`, "b.txt", "a.txt"},
		{"an option is a path", `{"cwd":"repo","path":"--output=x"}`, "", "a.txt"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out map[string]string
			if err := f.call("git.diff", tt.input, &out); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out["raw"], tt.has) || strings.Contains(out["raw"], tt.hasNot) {
				t.Errorf(`got %s; want out["raw"] with %v, out["raw"] without %v`, out["raw"], tt.has, tt.hasNot)
			}
		})
	}
}

func TestCommandRun(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var out struct{ Operation operation }
	if err := f.call("git.command.run", `{"cwd":"repo","args":["commit","--allow-empty","-m","see /etc/x and ../y"]}`, &out); err != nil {
		t.Fatal(err)
	}
	op := out.Operation
	if op.Status != "completed" || op.ExitCode == nil || *op.ExitCode != 0 || op.Cwd != "repo" || op.Stderr != "" || op.Command[0] != "git" {
		t.Errorf(`got %+v; want op.Status = "completed", op.ExitCode not nil, *op.ExitCode = 0, op.Cwd = "repo", op.Stderr = `+
			`"", op.Command[0] = "git"`, op)
	}
	if err := f.call("git.command.run", `{"cwd":"repo","args":["show","nothing"]}`, &out); err != nil {
		t.Fatal(err)
	}
	if op := out.Operation; op.Status != "failed" || *op.ExitCode != 128 || !strings.Contains(op.Stdout, "nothing") || op.Error == "" {
		t.Errorf(`got %+v; want op.Status = "failed", *op.ExitCode = 128, op.Stdout with "nothing", op.Error other than ""`, op)
	}
}

func TestMain(m *testing.M) {
	if sandbox.IsHelper(os.Args) {
		os.Exit(sandbox.HelperMain(os.Args))
	}
	os.Exit(m.Run())
}

func TestAReadOnlyRootIsNotChanged(t *testing.T) {
	t.Parallel()
	f := setupWith(t, gitcmd.Config{}, true) // the arguments decide, also where nothing confines
	f.write("repo/a.txt", "important work\n")
	for _, args := range []string{
		`["reset","--hard"]`, `["checkout","--","a.txt"]`, `["add","a.txt"]`, `["commit","-am","x"]`, `["branch","x"]`, `["branch","-v","x"]`,
		`["branch","--list","-D"]`, `["tag","x"]`, `["stash"]`, `["stash","push"]`, `["stash","drop"]`, `["remote","add","x","y"]`, `["gc"]`,
		`["init"]`, `["clean","-fd"]`, `["reflog","expire","--all"]`, `["worktree","prune"]`, `["notes","add","-m","x"]`, `["mv","a.txt","b"]`,
	} {
		err := f.call("git.command.run", `{"cwd":"repo","args":`+args+`}`, nil)
		if err == nil || err.Reason != "read_only" {
			t.Errorf("%s = %v, want read_only", args, err)
		}
	}
	for _, args := range []string{
		`["status"]`, `["log","-1"]`, `["branch"]`, `["branch","-vv"]`, `["tag","-l"]`, `["stash","list"]`, `["remote","-v"]`, `["diff"]`,
	} {
		if err := f.call("git.command.run", `{"cwd":"repo","args":`+args+`}`, nil); err != nil {
			t.Errorf("%s = %v, want no error", args, err)
		}
	}
	if got, err := os.ReadFile(filepath.Join(f.base, "repo/a.txt")); err != nil || string(got) != "important work\n" {
		t.Errorf("file = %q, %v, want it as it was", got, err)
	}
}

func TestUsefulCommandsWork(t *testing.T) {
	t.Parallel()
	t.Run("T3", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		usefulCommands(t, f)
		initWorks(t, f)
	})
	t.Run("T2", func(t *testing.T) {
		t.Parallel()
		box := sandbox.New(sandbox.Config{Off: sandbox.Without([]string{sandbox.LayerNamespaces})})
		usefulCommands(t, setupWith(t, gitcmd.Config{Walls: box}, false)) // not init, which changes the modes of files
	})
	t.Run("unconfined", func(t *testing.T) {
		t.Parallel()
		f := setupWith(t, gitcmd.Config{}, false)
		usefulCommands(t, f)
		initWorks(t, f)
	})
}

func usefulCommands(t *testing.T, f *fixture) {
	t.Helper()
	for _, args := range []string{
		`["log","--oneline","-p","-1"]`, `["show","HEAD:a.txt"]`, `["add","-A","--","dir"]`, `["diff","HEAD","--","a.txt"]`,
		`["branch","topic"]`, `["checkout","-b","x"]`, `["rev-parse","--git-dir"]`, `["grep","-n","-e","/x","--or","-e","one"]`,
		`["stash","list"]`, `["reflog"]`, `["blame","a.txt"]`, `["config","--get","core.bare"]`, `["format-patch","-1"]`,
		`["tag","v1"]`, `["ls-files","--exclude=x","-o"]`, `["worktree","list"]`, `["range-diff","HEAD","HEAD","HEAD"]`,
		`["cat-file","-p","HEAD"]`, `["describe","--tags"]`, `["reset","--hard"]`, `["diff","HEAD..HEAD"]`, `["version"]`,
	} {
		var out struct{ Operation operation }
		if err := f.call("git.command.run", `{"cwd":"repo","args":`+args+`}`, &out); err != nil {
			t.Errorf("%s: %v", args, err)
		} else if out.Operation.Status != "completed" {
			t.Errorf(`%s: %s; want out.Operation.Status = "completed"`, args, out.Operation.Stdout)
		}
	}
}

func initWorks(t *testing.T, f *fixture) {
	t.Helper()
	var out struct{ Operation operation }
	if err := f.call("git.command.run", `{"cwd":"plain","args":["init"]}`, &out); err != nil || out.Operation.Status != "completed" {
		t.Errorf(`init: %v, %+v; want no error, out.Operation.Status = "completed"`, err, out)
	}
}

func TestRefusedArguments(t *testing.T) {
	t.Parallel()
	f := setup(t)
	denied := []string{
		`["-C","/","status"]`, `["-c","alias.x=!sh","x"]`, `["--git-dir=/x","status"]`, `["--work-tree","/","status"]`,
		`["--exec-path=/x","status"]`, `["-p","log"]`, `["--paginate","log"]`, `["--config-env=a=b","log"]`, `["x"]`, `["../evil"]`,
		`["clone","x"]`, `["submodule","foreach","sh"]`, `["bisect","run","sh"]`, `["difftool"]`, `["hash-object","out/secret.txt"]`,
		`["config","core.fsmonitor","sh"]`, `["config","set","core.fsmonitor","sh"]`, `["config","--file","x","--list"]`,
		`["fetch","--upload-pack=sh","."]`, `["fetch","--upload-p","sh","."]`, `["push","--exec","sh","."]`, `["push","--receive-pack=sh"]`,
		`["ls-remote","--upload-pack","sh","."]`, `["rebase","--exec","sh","HEAD"]`, `["rebase","-x","sh","HEAD"]`, `["rebase","-ix","sh"]`,
		`["grep","-Osh","one"]`, `["grep","--open-files-in-pager=sh","one"]`, `["grep","--open","one"]`, `["grep","--no-index","x"]`,
		`["grep","-f","out/secret.txt"]`, `["diff","--no-index","a.txt","dir"]`, `["diff","--ext-diff"]`, `["log","--textconv"]`,
		`["diff","--output=x"]`, `["log","--outp=x"]`, `["format-patch","-o","x","-1"]`, `["commit","-F","out/secret.txt"]`,
		`["commit","-aF","out/secret.txt"]`, `["commit","--template=x"]`, `["tag","-F","x","v"]`, `["blame","--contents","x","a.txt"]`,
		`["add","--pathspec-from-file=x"]`, `["merge","-s","evil","x"]`, `["merge","--strategy=evil","x"]`, `["init","other"]`,
		`["init","--template=x"]`, `["init","--separate-git-dir=x"]`, `["worktree","add","x"]`, `["checkout","--recurse-submodules","x"]`,
		`["diff","/etc/passwd","a.txt"]`, `["diff","--pretty","/etc/passwd","a.txt"]`, `["add","../../outside"]`, `["mv","a.txt","out/a.txt"]`,
		`["apply","out/secret.txt"]`, `["diff","--","out/secret.txt"]`, `["log","--since=x","--","/etc"]`, `["ls-files","-Xout/secret.txt"]`,
		`["add","dir/../../x"]`, `["show","--","/etc/passwd"]`,
		`["apply","--unsafe-paths","p"]`, `["apply","--unsafe","p"]`, `["apply","--u","p"]`, `["apply","--build-fake-ancestor=x","p"]`,
		`["rebase","main"]`, `["rebase","--continue"]`, `["pull","--rebase"]`, `["pull","--reb"]`, `["pull","-qr"]`,
		`["stash","branch","x"]`, `["stash","-q","branch","x"]`, `["fsck","--lost-found"]`,
		`["log","-IS","--output=x"]`, `["reflog","-IS","--output=.git/config"]`, `["diff","-IG","--no-index","-IG","a.txt"]`,
		`["stash","-Im","--x"]`, `["commit","-Sm","--file=a.txt"]`, `["merge","-Xm","--file=a.txt"]`, `["log","-S","--output=x"]`,
		`["log","--grep","--output=x"]`, `["stash","show","-m","--output=x"]`, `["init","-b","--","--template=dir"]`,
		`["commit","--trailer","--","--file=a.txt"]`, `["add","--","-x"]`,
		`["config","core.pager","sh","--list"]`, `["config","core.pager","sh","-l"]`, `["config","set","--value","-l","core.pager","sh"]`,
		`["config","-z","set","core.pager","sh"]`, `["config","--local","list"]`,
		`["status","--ignore-submodules=none"]`, `["diff","--ignore-sub=none"]`, `["diff","--submodule=diff"]`, `["describe","--dirty"]`,
		`["describe","--always","--brok"]`,
		`["update-ref","config","HEAD"]`, `["update-ref","-m","refs/heads/x","config","HEAD"]`, `["symbolic-ref","HEAD","config"]`,
	}
	for _, args := range denied {
		err := f.call("git.command.run", `{"cwd":"repo","args":`+args+`}`, nil)
		if err == nil || err.Code != capability.CodeDenied || err.Reason != "security_violation" {
			t.Errorf(`%s: got %v; want an error, err.Code = capability.CodeDenied, err.Reason = "security_violation"`, args, err)
		}
	}
}

func TestArgumentsDoNotNameAGitDirectory(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if err := os.Symlink(".git", filepath.Join(f.base, "repo/link")); err != nil {
		t.Fatalf("making a link = %v, want no error", err)
	}
	for _, path := range []string{
		".git/config", ".GIT/config", ".git./config", ".git ./config", "git~1/config", "dir/.git", ":.git/config", ":(top).git/config",
		":(exclude,glob).git", ":!.git", ":^.git/hooks", ":/.git/config", "HEAD:.git/config", `.git\\config`, ".g\u200cit/config",
		"link/config", "link",
	} {
		for _, args := range []string{`"mv","-f","a.txt"`, `"add","--"`, `"apply","--directory"`, `"show"`} {
			err := f.call("git.command.run", `{"cwd":"repo","args":[`+args+`,"`+path+`"]}`, nil)
			if err == nil || err.Reason != "security_violation" {
				t.Errorf(`%s %s: got %v; want an error with err.Reason = "security_violation"`, args, path, err)
			}
		}
	}
	for _, args := range []string{`["commit","--allow-empty","-m","x .git/config"]`, `["log","--",".gitignore"]`} {
		if err := f.call("git.command.run", `{"cwd":"repo","args":`+args+`}`, nil); err != nil {
			t.Errorf("%s: got %v, want no error", args, err)
		}
	}
}

func TestRefusedPlaces(t *testing.T) {
	t.Parallel()
	f := setup(t)
	tests := []struct {
		name, action, input string
		code                capability.Code
	}{
		{"cwd leads out", "git.status", `{"cwd":"../outside"}`, capability.CodeDenied},
		{"cwd is a link that leads out", "git.status", `{"cwd":"repo/out"}`, capability.CodeDenied},
		{"cwd is a git directory", "git.command.run", `{"cwd":"repo/.git","args":["init"]}`, capability.CodeDenied},
		{"no repository", "git.status", `{"cwd":"plain"}`, capability.CodeNotFound},
		{"no repository for a diff", "git.diff", `{"cwd":"plain"}`, capability.CodeNotFound},
		{"no repository for any command", "git.command.run", `{"cwd":"plain","args":["diff","x.txt","x.txt"]}`, capability.CodeNotFound},
		{"path leads out", "git.diff", `{"cwd":"repo","path":"../../outside"}`, capability.CodeDenied},
		{"cwd does not exist", "git.status", `{"cwd":"gone"}`, capability.CodeNotFound},
		{"no arguments", "git.command.run", `{"cwd":"repo","args":[]}`, capability.CodeInvalidInput},
		{"NUL", "git.command.run", `{"cwd":"repo","args":["log","a\u0000b"]}`, capability.CodeInvalidInput},
		{"too many", "git.command.run", `{"cwd":"repo","args":["log"` + strings.Repeat(`,"x"`, maxArgs) + `]}`, capability.CodeInvalidInput},
		{"wrong type", "git.command.run", `{"cwd":"repo","args":"status"}`, capability.CodeInvalidInput},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := f.call(tt.action, tt.input, nil); err == nil || err.Code != tt.code {
				t.Errorf("got %v, want %q", err, tt.code)
			}
		})
	}
}

func TestUnavailableFunctionsSayWhy(t *testing.T) {
	t.Parallel()
	for _, f := range Functions(Config{}) {
		if f.Unavailable != roots.NoneReason {
			t.Errorf("%s: %q; want f.Unavailable = roots.NoneReason", f.ID, f.Unavailable)
		}
	}
}
