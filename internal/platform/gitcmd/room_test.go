//go:build linux

package gitcmd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// boxes returns a sandbox for each tier of this machine that confines.
func boxes(t *testing.T) map[string]*sandbox.Box {
	t.Helper()
	list := make(map[string]*sandbox.Box)
	for tier, off := range map[string][]string{"T3": nil, "T2": {sandbox.LayerNamespaces}} {
		box := sandbox.New(sandbox.Config{Off: sandbox.Without(off)})
		if got := box.Facts().Tier.String(); got != tier {
			t.Logf("SKIPPED: tier %s: this machine has %s", tier, got)
			continue
		}
		list[tier] = box
	}
	return list
}

// made returns a Git of a configuration.
func made(t *testing.T, cfg Config) *Git {
	t.Helper()
	g, err := New(cfg)
	if err != nil {
		t.Fatalf("New = %v, want no error", err)
	}
	return g
}

// unchecked runs a command with the overrides of a repository that is exchanged before it runs, as a program
// that may change the repository can exchange it.
func unchecked(t *testing.T, g *Git, c Command, exchange func()) sandbox.Result {
	t.Helper()
	var err error
	if c.room, err = g.enter(c); err != nil {
		t.Fatalf("enter = %v, want no error", err)
	}
	overrides, err := g.inspect(t.Context(), c)
	if err != nil {
		t.Fatalf("inspect = %v, want no error", err)
	}
	exchange()
	result, err := g.run(t.Context(), c, overrides)
	if err != nil {
		t.Fatalf("run = %v, want no error", err)
	}
	return result
}

// The repository changes between the check and the run, so that git runs its program: within the sandbox.
func TestAProgramOfAnExchangedRepositoryHasNoEffectOutside(t *testing.T) {
	t.Parallel()
	for tier, box := range boxes(t) {
		t.Run(tier, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			outside := t.TempDir()
			secret := filepath.Join(outside, "secret")
			if err := os.WriteFile(secret, []byte("jun_secret"), 0o644); err != nil { //nolint:gosec // others could read it
				t.Fatalf("writing a file = %v, want no error", err)
			}
			g := made(t, Config{Walls: box})
			c := Command{Dir: r.dir, Root: r.root, Args: []string{"add", "file.txt"}, MergeStderr: true}
			result := unchecked(t, g, c, func() {
				r.write("repo/evil.sh", "#!/bin/sh\ntouch "+outside+"/canary ran\ncat "+secret+" >&2\ncat\n")
				r.plain(r.dir, "config", "filter.x.clean", "./evil.sh")
				r.write("repo/.gitattributes", "*.txt filter=x\n")
				r.write("repo/file.txt", "two\n")
			})
			if _, err := os.Stat(filepath.Join(r.dir, "ran")); err != nil {
				t.Errorf("the program did not run, so that nothing was tried: %v\n%s", err, result.Stdout.Text())
			}
			if _, err := os.Stat(filepath.Join(outside, "canary")); err == nil {
				t.Error("the program made a file outside of the root")
			}
			if out := result.Stdout.Text(); strings.Contains(out, "jun_secret") {
				t.Errorf("output = %q, want nothing of a file outside of the root", out)
			}
		})
	}
}

func TestLinksInAGitDirectoryDoNotLeadOut(t *testing.T) {
	t.Parallel()
	for tier, box := range boxes(t) {
		t.Run(tier, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			victim := filepath.Join(t.TempDir(), "victim")
			if err := os.WriteFile(victim, []byte("precious"), 0o666); err != nil { //nolint:gosec // others could change it
				t.Fatalf("writing a file = %v, want no error", err)
			}
			link := filepath.Join(r.dir, ".git", "COMMIT_EDITMSG")
			_ = os.Remove(link) // of the first commit
			if err := os.Symlink(victim, link); err != nil {
				t.Fatalf("making a link = %v, want no error", err)
			}
			g := made(t, Config{Walls: box})
			_, _ = g.Run(t.Context(), Command{Dir: r.dir, Root: r.root, Args: []string{"commit", "--allow-empty", "-m", "text"}})
			if got, err := os.ReadFile(victim); err != nil || string(got) != "precious" {
				t.Errorf("file outside = %q, %v, want it as it was", got, err)
			}
		})
	}
}

func TestConfinedCommandsWork(t *testing.T) {
	t.Parallel()
	for tier, box := range boxes(t) {
		t.Run(tier, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			r.plain(r.dir, "worktree", "add", "-q", "-b", "part", filepath.Join(r.root, "part"))
			r.plain(r.root, "clone", "-q", "--shared", r.dir, "borrowing")
			g := made(t, Config{Walls: box})
			run := func(dir string, readOnly bool, args ...string) {
				t.Helper()
				c := Command{Dir: filepath.Join(r.root, dir), Root: r.root, Args: args, ReadOnly: readOnly, MergeStderr: true, NeedRepository: true}
				if got, err := g.Run(t.Context(), c); err != nil || got.ExitCode != 0 {
					t.Errorf("%s: %v = %v, %d, want no error\n%s", dir, args, err, got.ExitCode, got.Stdout.Text())
				}
			}
			for _, dir := range []string{"repo", "part", "borrowing"} {
				run(dir, true, "status")
				r.write(dir+"/new/"+dir+".txt", "x\n")
				run(dir, false, "add", "new")
				run(dir+"/new", false, "commit", "-m", "x")
				run(dir, true, "log", "-p", "-2")
			}
			run("repo", false, "merge", "part")
			r.plain(r.dir, "fsck", "--strict")
			info, err := os.Stat(filepath.Join(r.dir, "new", "part.txt"))
			if err != nil {
				t.Fatalf("the merged file = %v, want no error", err)
			}
			mask, err := os.ReadFile("/proc/self/status")
			if st, ok := info.Sys().(*syscall.Stat_t); err != nil || !ok || int(st.Uid) != os.Geteuid() ||
				strings.Contains(string(mask), "Umask:\t0022") && info.Mode().Perm() != 0o644 {
				t.Errorf("the merged file has user %v and mode %v, want the server's user and umask", info.Sys(), info.Mode())
			}
		})
	}
}

func TestGitOfARootServerRunsAsTheOwnerOfTheRepository(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root has repositories of other users")
	}
	const user = 65534
	for tier, box := range boxes(t) {
		r := newRepository(t)
		err := filepath.WalkDir(r.root, func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, user, user)
		})
		if err != nil {
			t.Fatalf("giving the repository to another user = %v, want no error", err)
		}
		for dir := filepath.Dir(r.root); dir != "/"; dir = filepath.Dir(dir) { // at T2 the modes of the folders above count
			if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o001 == 0 {
				if err := os.Chmod(dir, info.Mode().Perm()|0o001); err != nil {
					t.Fatalf("changing a mode = %v, want no error", err)
				}
			}
		}
		g := made(t, Config{Walls: box})
		c := Command{Dir: r.dir, Root: r.root, Args: []string{"commit", "--allow-empty", "-m", "x"}, MergeStderr: true}
		if got, err := g.Run(t.Context(), c); err != nil || got.ExitCode != 0 {
			t.Errorf("%s: commit = %v, %d, want no error\n%s", tier, err, got.ExitCode, got.Stdout.Text())
		}
		for _, name := range []string{".", ".git/COMMIT_EDITMSG", ".git/index"} {
			info, err := os.Stat(filepath.Join(r.dir, name))
			if err != nil {
				continue
			}
			if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != user {
				t.Errorf("%s: %s has user %v, want %d", tier, name, info.Sys(), user)
			}
		}
	}
}

func TestAReadOnlyCommandCannotChangeTheRepository(t *testing.T) {
	t.Parallel()
	for tier, box := range boxes(t) {
		r := newRepository(t)
		g := made(t, Config{Walls: box})
		r.write("repo/file.txt", "important work\n")
		_, _ = g.Run(t.Context(), Command{Dir: r.dir, Root: r.root, Args: []string{"reset", "--hard"}, ReadOnly: true})
		if got, err := os.ReadFile(filepath.Join(r.dir, "file.txt")); err != nil || string(got) != "important work\n" {
			t.Errorf("%s: file = %q, %v, want it as it was", tier, got, err)
		}
	}
}

func TestConfinedRepositoriesThatReachOutAreRefused(t *testing.T) {
	t.Parallel()
	for tier, box := range boxes(t) {
		for name, setup := range map[string]func(r *repository, out string){
			"git file": func(r *repository, out string) {
				_ = os.RemoveAll(r.dir + "/.git")
				r.write("repo/.git", "gitdir: "+out+"/victim/.git\n")
			},
			"git directory is a link": func(r *repository, out string) {
				_ = os.RemoveAll(r.dir + "/.git")
				_ = os.Symlink(out+"/victim/.git", r.dir+"/.git")
			},
			"common directory": func(r *repository, out string) { r.write("repo/.git/commondir", out+"/victim/.git\n") },
			"objects are a link": func(r *repository, out string) {
				_ = os.RemoveAll(r.dir + "/.git/objects")
				_ = os.Symlink(out+"/victim/.git/objects", r.dir+"/.git/objects")
			},
			"alternates": func(r *repository, out string) {
				r.write("repo/.git/objects/info/alternates", out+"/victim/.git/objects\n")
			},
		} {
			r := newRepository(t)
			out := t.TempDir()
			r.plain(out, "init", "-q", "victim")
			setup(r, out)
			g := made(t, Config{Walls: box})
			_, err := g.Run(t.Context(), Command{Dir: r.dir, Root: r.root, Args: []string{"status"}, ReadOnly: true})
			if e := capability.AsError(err); e == nil || e.Reason != "security_violation" {
				t.Errorf("%s: status (%s) = %v, want security_violation", tier, name, err)
			}
		}
	}
}

// weak is a machine without a sandbox.
type weak struct{}

func (weak) Facts() sandbox.Facts { return sandbox.Facts{Tier: sandbox.T1, NoT2: "no Landlock"} }

func (weak) Run(context.Context, sandbox.Spec, sandbox.Confinement) (sandbox.Result, error) {
	return sandbox.Result{}, capability.Errorf(capability.CodeFailed, "test", "not to be called")
}

func TestWithoutASandboxGitOnlyReadsUnlessThatIsAccepted(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	run := func(unconfined, readOnly bool) error {
		g := made(t, Config{Walls: weak{}, Unconfined: unconfined})
		_, err := g.Run(t.Context(), Command{Dir: r.dir, Root: r.root, Args: []string{"status"}, ReadOnly: readOnly})
		return err
	}
	if err := run(false, true); err != nil {
		t.Errorf("read = %v, want no error", err)
	}
	if err := run(true, false); err != nil {
		t.Errorf("write with fs.git_unconfined = %v, want no error", err)
	}
	e := capability.AsError(run(false, false))
	if e == nil || e.Reason != "sandbox_unavailable" || !strings.Contains(e.Hint, "junctor debug sandbox status") ||
		!strings.Contains(e.Hint, "fs.git_unconfined") {
		t.Errorf("write = %+v, want sandbox_unavailable with both remedies", e)
	}
}
