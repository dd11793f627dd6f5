package forge

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/secret"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestPullRequestsOfABareRepository(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bare := filepath.Join(dir, "a.git")
	git(t, dir, "init", "-q", "--bare", "-b", "trunk", bare)
	git(t, dir, "clone", "-q", bare, "work")
	work := filepath.Join(dir, "work")
	git(t, work, "commit", "-q", "--allow-empty", "-m", "first")
	git(t, work, "push", "-q", "origin", "HEAD:trunk")
	for _, b := range []string{"one", "two", "three", "four"} {
		git(t, work, "commit", "-q", "--allow-empty", "-m", b)
		git(t, work, "push", "-q", "origin", "HEAD:feature/"+b)
	}
	// A hook of the repository would run under a plain git.
	hook := filepath.Join(bare, "hooks/reference-transaction")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\ntouch "+dir+"/canary\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	g, err := gitcmd.New(gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := &BareHost{Git: g}
	repo := Repo{Dir: bare, Name: "a"}
	r, err := h.Open(repo, secret.Value{})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := r.Facts(t.Context()); err != nil || f != (Facts{DefaultBranch: "trunk", Push: true}) {
		t.Errorf(`%+v, %v; want no error, f = (Facts{DefaultBranch: "trunk", Push: true})`, f, err)
	}
	var all sync.WaitGroup
	for _, b := range []string{"one", "two", "three", "four"} {
		all.Go(func() {
			if p, err := r.OpenPull(t.Context(), PullRequest{Title: b, Base: "trunk", Head: "feature/" + b}); err != nil || p.State != "open" {
				t.Errorf(`%+v, %v; want no error, p.State = "open"`, p, err)
			}
		})
	}
	all.Wait()
	pulls, err := h.Pulls(repo)
	if err != nil || len(pulls) != 4 {
		t.Fatalf("%+v, %v; want no error, len(pulls) = 4", pulls, err)
	}
	for i, p := range pulls {
		if p.Number != i+1 || p.Head != "feature/"+p.Title || git(t, bare, "--git-dir=.", "rev-parse",
			"refs/pull/"+string(rune('1'+i))+"/head") != p.Commit {
			t.Errorf("%+v", p)
		}
	}
	git(t, work, "commit", "-q", "--allow-empty", "-m", "more")
	if _, err := os.Stat(dir + "/canary"); err == nil {
		t.Error("the hook was run; want an error")
	}
	_ = os.Remove(hook)
	git(t, work, "push", "-q", "origin", "HEAD:feature/four")
	if p, err := r.OpenPull(t.Context(), PullRequest{Title: "again", Base: "trunk", Head: "feature/four"}); err != nil ||
		!slices.ContainsFunc(pulls, func(o Record) bool { return o.Head == "feature/four" && o.Number == p.Number }) {
		t.Errorf("%+v, %v", p, err)
	} else if got := git(t, bare, "--git-dir=.", "log", "-1", "--format=%s", "refs/pull/"+string(rune('0'+p.Number))+"/head"); got != "more" {
		t.Errorf(`its ref stayed at %q; want got = "more"`, got)
	}
	for _, p := range []PullRequest{{Base: "trunk", Head: "gone"}, {Base: "gone", Head: "feature/one"}, {Base: "trunk", Head: "--all"}} {
		if _, err := r.OpenPull(t.Context(), p); capability.AsError(err).Reason != "forge_refused" {
			t.Errorf(`%+v: %v; want capability.AsError(err).Reason = "forge_refused"`, p, err)
		}
	}
	// A number taken by a process that died, and files of strangers, are not pull requests.
	for name, text := range map[string]string{"9.json": "", "x.json": "{}", "12.json": `{"number":1}`} {
		if err := os.WriteFile(filepath.Join(bare, folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pulls, err := h.Pulls(repo); err != nil || len(pulls) != 4 {
		t.Errorf("%d, %v; want no error, len(pulls) = 4", len(pulls), err)
	}
	if _, err := h.Open(Repo{Dir: dir}, secret.Value{}); capability.AsError(err).Reason != "repo_not_found" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "repo_not_found"`, err)
	}
	if _, ok := r.(Issues); ok {
		t.Error("a bare repository has issues, want none")
	}
}
