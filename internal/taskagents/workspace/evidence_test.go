package workspace

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestListing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a.go", "b/c.go", "1/2/3/4/ok", "node_modules/x/y", ".git/config", "b/target/z", "vendor/v", ".hidden/h"} {
		write(t, dir, name, "x")
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "etc")); err != nil {
		t.Fatal(err)
	}
	got, err := List(t.Context(), dir)
	if want := []string{".hidden/h", "1/2/3/4/ok", "a.go", "b/c.go", "etc"}; err != nil || got.Truncated || !slices.Equal(got.Files, want) {
		t.Errorf("%+v, %v; want no error, got.Truncated = false, got.Files = %v", got, err, want)
	}
	write(t, dir, "1/2/3/4/5/deep", "x")
	if got, err = List(t.Context(), dir); err != nil || !got.Truncated ||
		slices.ContainsFunc(got.Files, func(f string) bool { return strings.Contains(f, "deep") }) {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range 300 {
		write(t, dir, fmt.Sprintf("many/%03d", i), "")
	}
	if got, err = List(t.Context(), dir); err != nil || !got.Truncated || len(got.Files) != 200 {
		t.Errorf("%d files, %v, %v; want no error, got.Truncated = true, len(got.Files) = 200", len(got.Files), got.Truncated, err)
	}
	for i := range 2100 {
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprintf("!/%04d", i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got, err = List(t.Context(), dir); err != nil || !got.Truncated || len(got.Files) != 0 {
		t.Errorf("of 2000 folders that come first: %d files, %v, %v; want no error, got.Truncated = true, len(got.Files) = 0",
			len(got.Files), got.Truncated, err)
	}
	if _, err := List(t.Context(), dir+"/gone"); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := List(ctx, dir); capability.CodeOf(err) != capability.CodeCancelled {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeCancelled", err)
	}
}

func TestWhatGitSays(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "repo")
	plain := func(args ...string) {
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + root, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a",
			"GIT_COMMITTER_EMAIL=a@b",
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	plain("init", "-q", "-b", "main", "repo")
	write(t, dir, "a.txt", "one\n")
	git, err := gitcmd.New(gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := Collect(t.Context(), git, dir, root); err != nil || !strings.Contains(e.Status, "?? a.txt") || e.Note == "" {
		t.Errorf(`without a commit: %+v, %v; want no error, e.Status with "?? a.txt", e.Note other than ""`, e, err)
	}
	plain("-C", "repo", "add", ".")
	plain("-C", "repo", "commit", "-qm", "first")
	plain("-C", "repo", "config", "core.fsmonitor", "touch "+root+"/canary; false")
	write(t, dir, "a.txt", "two\n")
	token := "gh" + "p_" + strings.Repeat("aB3", 12)
	write(t, dir, token, "")
	e, err := Collect(t.Context(), git, dir, root)
	if err != nil || e.Note != "" || !strings.Contains(e.Status, "## main") || !strings.Contains(e.Status, " M a.txt") ||
		!strings.Contains(e.Stat, "1 file changed") || strings.Contains(e.Status, token) {
		t.Errorf(`%+v, %v; want no error, e.Note = "", e.Status with "## main", e.Status with " M a.txt", e.Stat with "1 file `+
			`changed", e.Status without %v`, e, err, token)
	}
	if _, err := os.Stat(root + "/canary"); err == nil {
		t.Error("something was executed; want an error")
	}
	// Neither a repository around the root nor none at all is an error.
	if e, err := Collect(t.Context(), git, root, root); err != nil || e.Status != "" || e.Note == "" || len(e.Listing.Files) == 0 {
		t.Errorf(`%+v, %v; want no error, e.Status = "", e.Note other than "", len(e.Listing.Files) other than 0`, e, err)
	}
	if e, err := Collect(t.Context(), nil, dir, root); err != nil || e.Status != "" || len(e.Listing.Files) != 2 {
		t.Errorf(`%+v, %v; want no error, e.Status = "", len(e.Listing.Files) = 2`, e, err)
	}
}
