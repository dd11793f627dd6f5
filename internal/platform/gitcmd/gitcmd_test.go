//go:build unix

package gitcmd

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

func TestMain(m *testing.M) {
	if sandbox.IsHelper(os.Args) {
		os.Exit(sandbox.HelperMain(os.Args))
	}
	goleak.VerifyTestMain(m)
}

// repository is a real one, made by a plain git.
type repository struct {
	t         *testing.T
	root, dir string
	canary    string // created by whatever the repository manages to execute
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &repository{t: t, root: root, dir: filepath.Join(root, "repo"), canary: filepath.Join(root, "canary")}
	r.plain(root, "init", "-q", "-b", "main", "repo")
	r.write("repo/file.txt", "one\n")
	r.write("repo/evil.sh", "#!/bin/sh\ntouch "+r.canary+"\ncat\n")
	if err := os.Chmod(filepath.Join(r.dir, "evil.sh"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.plain(r.dir, "add", "file.txt")
	r.plain(r.dir, "commit", "-q", "-m", "first")
	return r
}

func (r *repository) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repository) plain(dir string, args ...string) {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.root, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func (r *repository) run(args ...string) (string, int, error) {
	r.t.Helper()
	g, err := New(Config{})
	if err != nil {
		r.t.Fatal(err)
	}
	result, err := g.Run(r.t.Context(), Command{Dir: r.dir, Root: r.root, Args: args, MergeStderr: true})
	return result.Stdout.Text(), result.ExitCode, err
}

// Each repository here executes its program under a plain git.
func TestHostileRepositoriesExecuteNothing(t *testing.T) {
	t.Parallel()
	evil := "./evil.sh"
	tests := []struct {
		name  string
		setup func(r *repository)
		args  []string
		code  int // of the hardened run, which still must work where that makes sense; -2 any
	}{
		{"fsmonitor", func(r *repository) { r.plain(r.dir, "config", "core.fsmonitor", evil) }, []string{"status"}, 0},
		{"hook in the repository", func(r *repository) {
			r.write("repo/.git/hooks/pre-commit", "#!/bin/sh\ntouch "+r.canary+"\n")
			_ = os.Chmod(filepath.Join(r.dir, ".git/hooks/pre-commit"), 0o700)
		}, []string{"commit", "--allow-empty", "-m", "x"}, 0},
		{"hooks path of its own", func(r *repository) {
			r.write("repo/h/post-checkout", "#!/bin/sh\ntouch "+r.canary+"\n")
			_ = os.Chmod(filepath.Join(r.dir, "h/post-checkout"), 0o700)
			r.plain(r.dir, "config", "core.hooksPath", "h")
		}, []string{"checkout", "-b", "other"}, 0},
		{"external diff", func(r *repository) {
			r.plain(r.dir, "config", "diff.external", evil)
			r.write("repo/file.txt", "two\n")
		}, []string{"diff", "--no-ext-diff"}, 0},
		{"external diff, option forgotten", func(r *repository) {
			r.plain(r.dir, "config", "diff.external", evil)
			r.write("repo/file.txt", "two\n")
		}, []string{"diff"}, -2},
		{"diff driver", func(r *repository) {
			r.plain(r.dir, "config", "diff.x.command", evil)
			r.write("repo/.gitattributes", "*.txt diff=x\n")
			r.write("repo/file.txt", "two\n")
		}, []string{"diff"}, -2},
		{"textconv", func(r *repository) {
			r.plain(r.dir, "config", "diff.x.textconv", evil)
			r.write("repo/.gitattributes", "*.txt diff=x\n")
			r.write("repo/file.txt", "two\n")
		}, []string{"diff"}, 0},
		{"clean filter", func(r *repository) {
			r.plain(r.dir, "config", "filter.x.clean", evil)
			r.plain(r.dir, "config", "filter.x.required", "true")
			r.write("repo/.gitattributes", "*.txt filter=x\n")
			r.write("repo/file.txt", "two\n")
		}, []string{"add", "file.txt"}, 0},
		{"smudge filter", func(r *repository) {
			r.plain(r.dir, "config", "filter.x.smudge", evil)
			r.write("repo/.gitattributes", "*.txt filter=x\n")
			_ = os.Remove(filepath.Join(r.dir, "file.txt"))
		}, []string{"checkout", "--", "file.txt"}, 0},
		{"filter process with a name full of tricks", func(r *repository) {
			r.write("repo/.git/config", "[core]\n\trepositoryformatversion = 0\n[filter \"a=b.clean\"]\n\tprocess = "+evil+"\n")
			r.write("repo/.gitattributes", "*.txt filter=a=b.clean\n")
			r.write("repo/file.txt", "two\n")
		}, []string{"add", "file.txt"}, 0},
		{"command in the list of a rebase", func(r *repository) {
			diverge(r)
			r.plain(r.dir, "config", "rebase.instructionFormat", "%s%x0aexec "+r.dir+"/evil.sh")
		}, []string{"rebase", "main"}, 0},
		{"ssh command", func(r *repository) {
			r.plain(r.dir, "config", "core.sshCommand", evil)
			r.plain(r.dir, "remote", "add", "origin", "ssh://localhost/x")
		}, []string{"fetch", "origin"}, 128},
		{"ext transport", func(r *repository) {
			r.plain(r.dir, "config", "protocol.ext.allow", "always")
			r.plain(r.dir, "remote", "add", "origin", "ext::"+r.dir+"/evil.sh")
		}, []string{"fetch", "origin"}, 128},
		{"rewritten address", func(r *repository) {
			r.plain(r.dir, "config", "protocol.ext.allow", "always")
			r.plain(r.dir, "config", "url.ext::"+r.dir+"/evil.sh #.insteadOf", "https://")
		}, []string{"ls-remote", "https://example.invalid/x"}, 128},
		{"upload-pack of a remote", func(r *repository) {
			r.plain(r.dir, "remote", "add", "origin", r.dir)
			r.plain(r.dir, "config", "remote.origin.uploadpack", r.dir+"/evil.sh")
		}, []string{"fetch", "origin"}, 128},
		{"alias", func(r *repository) { r.plain(r.dir, "config", "alias.boom", "!"+evil) }, []string{"boom"}, -2},
		{"editor", func(r *repository) { r.plain(r.dir, "config", "core.editor", evil) }, []string{"commit", "--allow-empty"}, 1},
		{"pager", func(r *repository) { r.plain(r.dir, "config", "core.pager", evil) }, []string{"log"}, 0},
		{"signing program", func(r *repository) {
			r.plain(r.dir, "config", "gpg.program", evil)
			r.plain(r.dir, "config", "commit.gpgSign", "true")
		}, []string{"commit", "--allow-empty", "-m", "x"}, 0},
		{"merge driver", func(r *repository) {
			r.plain(r.dir, "checkout", "-q", "-b", "b")
			r.write("repo/file.txt", "b\n")
			r.plain(r.dir, "commit", "-qam", "b")
			r.plain(r.dir, "checkout", "-q", "main")
			r.write("repo/file.txt", "m\n")
			r.plain(r.dir, "commit", "-qam", "m")
			r.plain(r.dir, "config", "merge.x.driver", evil)
			r.write("repo/.gitattributes", "*.txt merge=x\n")
		}, []string{"merge", "b"}, -2},
		{
			"archive filter", func(r *repository) { r.plain(r.dir, "config", "tar.boom.command", evil) },
			[]string{"archive", "--format=boom", "HEAD"},
			-2,
		},
		{
			"credential helper", func(r *repository) { r.plain(r.dir, "config", "credential.helper", r.dir+"/evil.sh") },
			[]string{"credential", "fill"},
			128,
		},
		{"filter inside a submodule", func(r *repository) {
			r.plain(r.dir, "init", "-q", "sub")
			r.write("repo/sub/f.txt", "one\n")
			r.plain(r.dir+"/sub", "add", "f.txt")
			r.plain(r.dir+"/sub", "commit", "-qm", "s")
			r.write("repo/.gitmodules", "[submodule \"s.u b\"]\n\tpath = sub\n\turl = https://example.invalid/x\n\tignore = none\n")
			r.plain(r.dir, "add", ".gitmodules", "sub")
			r.plain(r.dir, "commit", "-qm", "with submodule")
			r.plain(r.dir+"/sub", "config", "filter.x.clean", r.dir+"/evil.sh")
			r.write("repo/sub/.gitattributes", "*.txt filter=x\n")
			r.write("repo/sub/f.txt", "two\n")
		}, []string{"status"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			tt.setup(r)
			_ = os.Remove(r.canary)
			out, code, err := r.run(tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(r.canary); err == nil {
				t.Errorf("the repository executed its program\n%s\nwant an error", out)
			}
			if tt.code != -2 && code != tt.code {
				t.Errorf("exit code %d, want %d\n%s", code, tt.code, out)
			}
		})
	}
}

// diverge makes a branch b, which is checked out, and gives it and main a commit each.
func diverge(r *repository) {
	r.t.Helper()
	r.plain(r.dir, "checkout", "-q", "-b", "b")
	r.plain(r.dir, "commit", "-q", "--allow-empty", "-m", "b")
	r.write("repo/b.txt", "b\n")
	r.plain(r.dir, "add", "b.txt")
	r.plain(r.dir, "commit", "-q", "-m", "b")
	r.plain(r.dir, "checkout", "-q", "main")
	r.write("repo/m.txt", "m\n")
	r.plain(r.dir, "add", "m.txt")
	r.plain(r.dir, "commit", "-q", "-m", "m")
	r.plain(r.dir, "checkout", "-q", "b")
}

// No value at command scope takes away what these keys name.
func TestKeysThatCannotBeOverriddenAreRefused(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"include.path", "includeIf.onbranch:evil.path", "gc.recentObjectsHook", "fsck.skipList", "fetch.fsck.skipList", "receive.fsck.skipList",
	} {
		r := newRepository(t)
		r.plain(r.dir, "config", key, "../inc")
		_, _, err := r.run("status")
		if e := capability.AsError(err); e == nil || e.Reason != "security_violation" {
			t.Errorf("status with %s = %v, want security_violation", key, err)
		}
	}
}

// Each key names a file, of which git would show a part.
func TestFilesThatTheConfigurationNamesAreNotRead(t *testing.T) {
	t.Parallel()
	const secret = "jun_secret"
	for key, args := range map[string][]string{
		"blame.ignoreRevsFile": {"blame", "--no-ignore-revs-file", "file.txt"}, "commit.template": {"commit", "--allow-empty", "--no-edit"},
		"mailmap.file": {"log", "--format=%aN", "--use-mailmap"}, "diff.orderFile": {"show", "--stat"},
		"format.signatureFile": {"format-patch", "--stdout", "-1"}, "core.excludesFile": {"status", "--short"},
		"core.attributesFile": {"check-attr", "-a", "file.txt"},
	} {
		r := newRepository(t)
		r.write("secret", secret+" <a@b>\n")
		r.plain(r.dir, "config", key, filepath.Join(r.root, "secret"))
		if out, _, err := r.run(args...); err != nil || strings.Contains(out, secret) {
			t.Errorf("%v with %s = %q, %v, want no error and nothing of the file", args, key, out, err)
		}
	}
}

func TestOptionsThatTheConfigurationAddsToAMergeAreNotUsed(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	diverge(r)
	r.write("secret", "jun_secret\n")
	r.plain(r.dir, "config", "branch.b.mergeOptions", "--no-ff -F "+filepath.Join(r.root, "secret"))
	if out, code, err := r.run("merge", "main"); err != nil || code != 0 {
		t.Fatalf("merge = %q, %d, %v, want no error", out, code, err)
	}
	if out, _, err := r.run("log", "-1", "--format=%B"); err != nil || !strings.HasPrefix(out, "Merge branch 'main'") {
		t.Errorf("message of the merge = %q, %v, want that of git", out, err)
	}
}

// Without this the table above could pass because its traps do not work.
func TestTrapsWorkUnderPlainGit(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.plain(r.dir, "config", "filter.x.clean", "./evil.sh")
	r.write("repo/.gitattributes", "*.txt filter=x\n")
	r.write("repo/file.txt", "two\n")
	r.plain(r.dir, "status")
	if _, err := os.Stat(r.canary); err != nil {
		t.Error("a plain git did not execute the trap")
	}
}

func TestRepositoriesThatReachOutAreRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		setup func(r *repository, outside string)
	}{
		{"work tree elsewhere", func(r *repository, out string) { r.plain(r.dir, "config", "core.worktree", out) }},
		{"git file", func(r *repository, out string) {
			r.plain(out, "init", "-q", "victim")
			_ = os.RemoveAll(r.dir + "/.git")
			r.write("repo/.git", "gitdir: "+out+"/victim/.git\n")
		}},
		{"git directory is a link", func(r *repository, out string) {
			r.plain(out, "init", "-q", "victim")
			_ = os.RemoveAll(r.dir + "/.git")
			_ = os.Symlink(out+"/victim/.git", r.dir+"/.git")
		}},
		{"objects are a link", func(r *repository, out string) {
			_ = os.RemoveAll(r.dir + "/.git/objects")
			r.plain(out, "init", "-q", "victim")
			_ = os.Symlink(out+"/victim/.git/objects", r.dir+"/.git/objects")
		}},
		{"alternates", func(r *repository, out string) {
			r.plain(out, "init", "-q", "victim")
			r.write("repo/.git/objects/info/alternates", out+"/victim/.git/objects\n")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			tt.setup(r, t.TempDir())
			out, _, err := r.run("status")
			if e := capability.AsError(err); e == nil || e.Code != capability.CodeDenied || e.Reason != "security_violation" {
				t.Errorf("got %v\n%s\nwant e not nil, e.Code = capability.CodeDenied, e.Reason = \"security_violation\"", err, out)
			}
		})
	}
}

func TestAGitDirectoryMayBeInAFurtherRoot(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.plain(r.dir, "worktree", "add", "-q", "-b", "part", filepath.Join(r.root, "part"))
	g, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	run := func(c Command) error {
		c.Args, c.NeedRepository = []string{"status"}, true
		_, err := g.Run(t.Context(), c)
		return err
	}
	part, git := filepath.Join(r.root, "part"), filepath.Join(r.dir, ".git")
	if err := run(Command{Dir: part, Root: part, Also: []string{git}}); err != nil {
		t.Errorf("Run(with its git directory) = %v, want no error", err)
	}
	for name, c := range map[string]Command{
		"git directory not named": {Dir: part, Root: part},
		"another one":             {Dir: part, Root: part, Also: []string{t.TempDir()}},
	} {
		if err := run(c); capability.AsError(err).Reason != "security_violation" {
			t.Errorf("Run(%s) = %v, want security_violation", name, err)
		}
	}
	r.plain(r.dir, "config", "core.worktree", r.root)
	if err := run(Command{Dir: r.dir, Root: r.dir, Also: []string{r.root}}); capability.AsError(err).Reason != "security_violation" {
		t.Errorf("Run(working tree in a further root) = %v, want security_violation", err)
	}
}

func TestDiscoveryStopsAtTheRoot(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.plain(r.root, "init", "-q") // a repository above the root
	r.root = filepath.Join(r.root, "inner")
	r.write("x", "")
	r.dir = r.root
	if out, code, err := r.run("status"); err != nil || code != 128 {
		t.Errorf("found a repository above the root: %d, %v\n%s\nwant no error, code = 128", code, err, out)
	}
}

func TestUserConfigurationIsNotRead(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	out, code, err := r.run("config", "--show-scope", "--list")
	if err != nil || code != 0 {
		t.Fatalf("code = %v, err = %v, want err == nil && code == 0", code, err)
	}
	for line := range strings.Lines(out) {
		if scope, _, _ := strings.Cut(line, "\t"); scope == "global" || scope == "system" {
			t.Errorf(`%s configuration is read: %s; want scope other than "global", scope other than "system"`, scope, line)
		}
	}
}

func TestCommitWorksWithoutAnyIdentity(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	if out, code, err := r.run("commit", "--allow-empty", "-m", "x"); err != nil || code != 0 {
		t.Errorf("%d, %v\n%s\nwant no error, code = 0", code, err, out)
	}
}

// Git takes the first of several values here, which no override of ours can be.
func TestProgramsOfARemoteAreRefused(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"uploadpack", "receivepack"} {
		r := newRepository(t)
		r.plain(r.root, "clone", "-q", "--bare", r.dir, r.root+"/bare.git")
		r.plain(r.dir, "remote", "add", "origin", r.root+"/bare.git")
		g, err := New(Config{LocalRemotes: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"fetch", "-q", "origin"}, {"push", "-q", "origin", "main:refs/heads/x"}} {
			c := Command{Dir: r.dir, Root: r.root, Args: args, MergeStderr: true}
			if got, err := g.Run(t.Context(), c); err != nil || got.ExitCode != 0 {
				t.Fatalf("%v: %v\n%s\nwant no error, got.ExitCode = 0", args, err, got.Stdout.Text())
			}
		}
		r.plain(r.dir, "config", "remote.origin."+key, r.dir+"/evil.sh")
		for _, args := range [][]string{{"fetch", "-q", "origin"}, {"push", "-q", "origin", "main:refs/heads/y"}} {
			_, err := g.Run(t.Context(), Command{Dir: r.dir, Root: r.root, Args: args})
			if e := capability.AsError(err); e == nil || e.Reason != "security_violation" {
				t.Errorf(`%s, %v: got %v; want e not nil, e.Reason = "security_violation"`, key, args, err)
			}
		}
		if out, code, err := r.run("status"); err != nil || code != 0 {
			t.Errorf("without remotes it does not matter: %d, %v\n%s\nwant no error, code = 0", code, err, out)
		}
		if _, err := os.Stat(r.canary); err == nil {
			t.Error("the repository executed its program; want an error")
		}
	}
}

func TestSettingsOfTheCallerHold(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	r.plain(r.dir, "config", "user.name", "theirs")
	g, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := g.Run(t.Context(), Command{
		Dir: r.dir, Root: r.root, Args: []string{"config", "user.name"},
		Settings: []Setting{{"user.name", "ours"}},
	})
	if err != nil || got.Stdout.Text() != "ours\n" {
		t.Errorf(`%q, %v; want no error, got.Stdout.Text() = "ours\n"`, got.Stdout.Text(), err)
	}
}

func TestCancelledContext(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	g, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Run(ctx, Command{Dir: r.dir, Root: r.root, Args: []string{"status"}}); capability.CodeOf(err) != capability.CodeCancelled {
		t.Errorf("got %v; want capability.CodeOf(err) = capability.CodeCancelled", err)
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"ext", "file", "", "a:b"} {
		if _, err := New(Config{Protocols: []string{p}}); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("protocol %q: got %v; want capability.CodeOf(err) = capability.CodeInvalidInput", p, err)
		}
	}
	if _, err := New(Config{Path: "/nonexistent/git"}); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("missing program: got %v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	g, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := g.Version(t.Context()); err != nil || v == "" {
		t.Errorf(`got %q, %v; want no error, v other than ""`, v, err)
	}
	tests := []struct {
		version string
		want    bool
	}{{"2.32.0", false}, {"2.31.9", true}, {"3.0", false}, {"1.9.5", true}, {"2.39.5.windows.1", false}, {"2", true}}
	for _, tt := range tests {
		if got := older(tt.version, MinVersion); got != tt.want {
			t.Errorf("older(%q) = %v; want got = %v", tt.version, got, tt.want)
		}
	}
}
