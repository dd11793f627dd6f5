package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// TestRemedyOfUnreachableFolderWorks runs the command that the error names, as a person would, and then
// uses the folder as the program's user.
func TestRemedyOfUnreachableFolderWorks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only programs of a server that is root run as another user")
	}
	const user = 61234
	for name, tt := range map[string]struct {
		closed string // the folder whose mode forbids it, of a/it's/b
		mode   os.FileMode
		owner  int
		write  bool
		remedy string
	}{
		"a folder of root that is written":     {"a/it's/b", 0o700, 0, true, `chown -R 61234:61234 'ROOT/a/it'\''s/b'`},
		"a folder of root that is read":        {"a/it's/b", 0o700, 0, false, `chgrp -R 61234 'ROOT/a/it'\''s/b' && chmod -R g+rX 'ROOT/a/it'\''s/b'`},
		"a folder of the user without writing": {"a/it's/b", 0o500, user, true, `chmod u+rwX 'ROOT/a/it'\''s/b'`},
		"a folder above":                       {"a", 0o700, 0, false, `chmod o+x ROOT/a`},
		"a folder above with a quote":          {"a/it's", 0o700, 0, false, `chmod o+x 'ROOT/a/it'\''s'`},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := os.MkdirTemp("", "reachable") // below folders that every user may enter
			if err != nil {
				t.Fatalf("making a folder: %v", err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(root) })
			dir, closed := filepath.Join(root, "a/it's/b"), filepath.Join(root, tt.closed)
			err = os.MkdirAll(dir, 0o755)
			for _, step := range []func() error{
				func() error { return os.Chmod(root, 0o755) },
				func() error { return os.WriteFile(filepath.Join(dir, "f"), nil, 0o644) },
				func() error { return os.Chown(closed, tt.owner, tt.owner) },
				func() error { return os.Chmod(closed, tt.mode) },
			} {
				if err == nil {
					err = step()
				}
			}
			if err != nil {
				t.Fatalf("preparing the folder: %v", err)
			}
			refused := capability.AsError(reachable(dir, user, tt.write))
			if refused == nil {
				t.Fatalf("before: got no error, want one with a remedy")
			}
			_, remedy, _ := strings.Cut(refused.Hint, "permit it with: ")
			if want := strings.ReplaceAll(tt.remedy, "ROOT", root); remedy != want {
				t.Errorf("the remedy: got %s, want %s", remedy, want)
			}
			if out, err := exec.CommandContext(t.Context(), "sh", "-ec", remedy).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v, %s", remedy, err, out)
			}
			if err := reachable(dir, user, tt.write); err != nil {
				t.Errorf("after %s: got %v, want no error", remedy, err)
			}
			act := "cat f"
			if tt.write {
				act = "echo x > new && cat f"
			}
			use := exec.CommandContext(t.Context(), "sh", "-ec", `cd "$0" && `+act, dir)
			use.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
			if out, err := use.CombinedOutput(); err != nil {
				t.Errorf("using it as the program's user: %v, %s; want no error", err, out)
			}
		})
	}
}

// reachable asks for one folder at T2.
func reachable(dir string, user int, write bool) error {
	if write {
		return sandbox.Reachable(sandbox.Placement{Tier: sandbox.T2}, user, user, []string{dir}, nil)
	}
	return sandbox.Reachable(sandbox.Placement{Tier: sandbox.T2}, user, user, nil, []string{dir})
}

// TestOneCommandPermitsAllFolders has folders of root that are changed and read, below one that is closed.
func TestOneCommandPermitsAllFolders(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: changes owners, which only root may")
	}
	const user = 61234
	root, err := os.MkdirTemp("", "reachable")
	if err != nil {
		t.Fatalf("making a folder: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	var dirs []string
	for _, name := range []string{"a", "b", "c", "d"} {
		dirs = append(dirs, filepath.Join(root, name))
		if err := os.Mkdir(dirs[len(dirs)-1], 0o700); err != nil {
			t.Fatalf("making a folder: %v", err)
		}
	}
	check := func() error {
		return sandbox.Reachable(sandbox.Placement{Tier: sandbox.T2}, user, user, dirs[:2], dirs[2:])
	}
	refused := capability.AsError(check())
	if refused == nil {
		t.Fatalf("before: got no error, want one with a remedy")
	}
	got := strings.ReplaceAll(refused.Message, root, "")
	begin := "/a, /b cannot be changed and /c, /d cannot be read by the user 61234, as which the program runs because junctor runs as root"
	if !strings.HasPrefix(got, begin) {
		t.Errorf("the message: got %s, want it to begin with %s", got, begin)
	}
	_, remedy, _ := strings.Cut(refused.Hint, "permit it with: ")
	want := "chown -R 61234:61234 ROOT/a ROOT/b && chmod o+x ROOT && chgrp -R 61234 ROOT/c ROOT/d && chmod -R g+rX ROOT/c ROOT/d"
	if want = strings.ReplaceAll(want, "ROOT", root); remedy != want {
		t.Errorf("the remedy: got %s, want %s", remedy, want)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-ec", remedy).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v, %s", remedy, err, out)
	}
	if err := check(); err != nil {
		t.Errorf("after %s: got %v, want no error", remedy, err)
	}
}
