package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/internal/testkit/programfile"
	"github.com/junctor-run/junctor/secret"
)

// The whole story on a local forge: provision, change, finalize, pull request, clean up.
func TestWorkBecomesAPullRequest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := t.Context()
	w := s.provision(Request{Execution: "Exec 7", Role: "Coder", Slug: "Fix the Frobnicator, please & quickly now", Label: "fix"})
	if w.Branch != "eliza/exec-7/coder-fix-the-frobnicator-please-qui" || w.BaseBranch != "trunk" || w.Mode != Clone {
		t.Errorf(`%+v; want w.Branch = "eliza/exec-7/coder-fix-the-frobnicator-please-qui", w.BaseBranch = "trunk", w.Mode = %v`,
			w, Clone)
	}
	if got := s.plain(w.Path, "config", "user.name"); got != "Workspace Agent" {
		t.Errorf(`the agent commits as %q; want got = "Workspace Agent"`, got)
	}
	if f, err := s.m.Finalize(ctx, w.ID, FinalizeRequest{}); err != nil || f.Text != noChanges || f.Pull != nil {
		t.Errorf("nothing changed: %+v, %v; want no error, f.Text = %v, f.Pull = nil", f, err, noChanges)
	}
	s.write(w.Path+"/src/new file.go", "package widget\n")
	s.write(w.Path+"/debug.log", "ignored\n")
	if st, err := s.m.Status(ctx, w.ID); err != nil || st.Clean || !slices.Equal(st.Untracked, []string{"src/new file.go"}) ||
		len(st.Modified)+len(st.Staged) != 0 {
		t.Errorf(`%+v, %v; want no error, st.Clean = false, st.Untracked = []string{"src/new file.go"}, len(st.Modified) + `+
			"len(st.Staged) = 0", st, err)
	}
	f, err := s.m.Finalize(ctx, w.ID, FinalizeRequest{Message: "Add a file", Draft: true, Labels: []string{"bot"}})
	if err != nil {
		t.Fatal(err)
	}
	if f.Pull == nil || f.Pull.Number != 1 || f.Pull.State != "open" || !f.Pull.Draft || f.Stat.Files != 1 || f.Stat.Insertions != 1 ||
		!strings.Contains(f.Stat.Text, "new file.go") {
		t.Errorf(`%+v; want f.Pull not nil, f.Pull.Number = 1, f.Pull.State = "open", f.Pull.Draft = true, f.Stat.Files = 1, `+
			`f.Stat.Insertions = 1, f.Stat.Text with "new file.go"`, f)
	}
	for i, name := range []string{"commit", "push", "pull_request"} {
		if f.Steps[i].Name != name || f.Steps[i].Outcome != "done" {
			t.Errorf(`step %d: %+v; want f.Steps[i].Name = %v, f.Steps[i].Outcome = "done"`, i, f.Steps[i], name)
		}
	}
	pulls, err := s.pulls.Pulls(w.Repo)
	if err != nil || len(pulls) != 1 || pulls[0].Title != "[Eliza] "+w.Branch || pulls[0].Body != "- Add a file\n" ||
		pulls[0].Base != "trunk" || !slices.Equal(pulls[0].Labels, []string{"bot"}) {
		t.Errorf(`%+v, %v; want no error, len(pulls) = 1, pulls[0].Title = "[Eliza] " + w.Branch, pulls[0].Body = "- Add a `+
			`file\n", pulls[0].Base = "trunk", pulls[0].Labels = []string{"bot"}`, pulls, err)
	}
	if got := s.plain(s.remote, "ls-tree", "-r", "--name-only", "refs/pull/1/head"); got != ".gitignore\nREADME.md\nsrc/new file.go" {
		t.Errorf(`in the pull request: %q; want got = ".gitignore\nREADME.md\nsrc/new file.go"`, got)
	}
	if got := s.plain(s.remote, "show", "refs/pull/1/head:README.md"); got != "# Widget" {
		t.Errorf(`our own file was committed: %q; want got = "# Widget"`, got)
	}
	if got := s.plain(s.remote, "log", "-1", "--format=%an <%ae> %s",
		"refs/pull/1/head"); got != "Workspace Agent <workspace-agent@noreply.invalid> Add a file" {
		t.Errorf(`commit: %q; want got = "Workspace Agent <workspace-agent@noreply.invalid> Add a file"`, got)
	}
	// More work, which is committed before, goes to the same pull request.
	s.write(w.Path+"/src/more.go", "package widget\n")
	more, err := s.m.Commit(ctx, w.ID, "More")
	if err != nil {
		t.Fatalf("commit: got %v, want no error", err)
	}
	if f, err = s.m.Finalize(ctx, w.ID, FinalizeRequest{}); err == nil && f.Commit != more.Hash {
		t.Errorf("the commit: got %q, want the one that was there, %q", f.Commit, more.Hash)
	}
	if err != nil || f.Pull == nil || f.Pull.Number != 1 ||
		f.Stat.Files != 2 {
		t.Errorf("%+v, %v; want no error, f.Pull not nil, f.Pull.Number = 1, f.Stat.Files = 2", f, err)
	}
	if commits, err := s.m.ListCommits(ctx, w.ID, "", 0); err != nil || len(commits) != 2 || commits[0].Subject != "More" ||
		commits[0].Author != "Workspace Agent" {
		t.Errorf(`%+v, %v; want no error, len(commits) = 2, commits[0].Subject = "More", commits[0].Author = "Workspace Agent"`,
			commits, err)
	}
	s.reopen()
	if got, err := s.m.Resolve("fix"); err != nil || got.Pull == nil || got.Pull.Number != 1 {
		t.Errorf("after a restart: %+v, %v; want no error, got.Pull not nil, got.Pull.Number = 1", got, err)
	}
	if err := s.m.Remove(ctx, w.ID, false); err != nil || exists(w.Path) {
		t.Errorf("a pushed workspace can be removed: %v; want no error, not exists(w.Path)", err)
	}
	if want := []string{"workspace_provisioned", "workspace_finalized", "workspace_finalized", "workspace_removed"}; !slices.Equal(s.events,
		want) {
		t.Errorf("events %v; want s.events = %v", s.events, want)
	}
}

// The same over HTTP with a token, which must be nowhere but in its file.
func TestATokenGoesToItsHostAlone(t *testing.T) {
	t.Parallel()
	token := "tok" + "-0123456789"
	s := newSite(t)
	url, seen := s.served(token)
	s.cfg.Policy.OperatorPrefixes = []string{url}
	// Every command with its environment is written down, to be searched below.
	s.cfg.GitPath = s.dir + "/bin/git"
	programfile.Write(t, s.cfg.GitPath, "#!/bin/sh\n{ echo \"$@\"; env; } >> "+s.dir+"/git.log\nexec git \"$@\"\n", 0o700)
	s.reopen()
	ctx := t.Context()
	if _, err := s.m.Provision(ctx, Request{Repo: url + "/widget.git"}); reason(err) != "invalid_credentials" {
		t.Fatalf(`without a token: %v; want reason(err) = "invalid_credentials"`, err)
	}
	if _, err := s.m.Provision(ctx, Request{Repo: url + "/widget.git", Token: secret.New("wrong")}); reason(err) != "invalid_credentials" {
		t.Fatalf(`with a wrong one: %v; want reason(err) = "invalid_credentials"`, err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "state/credentials/*")); len(left) != 0 {
		t.Errorf("credentials of what was never made: %v; want len(left) = 0", left)
	}
	w := s.provision(Request{Repo: url + "/widget.git", Token: secret.New(token)})
	s.write(w.Path+"/a.txt", "a\n")
	if f, err := s.m.Finalize(ctx, w.ID, FinalizeRequest{}); err != nil || f.Steps[1].Outcome != "done" || f.Steps[2].Outcome != "skipped" {
		t.Fatalf(`%+v, %v; want no error, f.Steps[1].Outcome = "done", f.Steps[2].Outcome = "skipped"`, f, err)
	}
	if got := s.plain(s.remote, "rev-parse", "refs/heads/"+w.Branch); got != s.plain(w.Path, "rev-parse", "HEAD") {
		t.Errorf(`the branch was not pushed; got got = %v; want got = s.plain(w.Path, "rev-parse", "HEAD")`, got)
	}
	if got := s.plain(w.Path, "rev-parse", "--abbrev-ref", "@{upstream}"); got != "origin/"+w.Branch {
		t.Errorf(`upstream %q; want got = "origin/" + w.Branch`, got)
	}
	for _, r := range seen() {
		if !strings.HasPrefix(r, ": /") && !strings.HasPrefix(r, "x-access-token:") || strings.Contains(strings.SplitN(r, " ", 2)[1], token) {
			t.Errorf(`request %q; want not (!strings.HasPrefix(r, ": /") && !strings.HasPrefix(r, "x-access-token:")), `+
				`strings.SplitN(r, " ", 2)[1] without %v`, r, token)
		}
	}
	if log, err := os.ReadFile(s.dir + "/git.log"); err != nil || !strings.Contains(string(log), "push --quiet") ||
		!strings.Contains(string(log), "GIT_TERMINAL_PROMPT=0") {
		t.Errorf(`nothing was written down: %v; want no error, string(log) with "push --quiet", string(log) with "GIT_TERMINAL_PROMPT=0"`,
			err)
	}
	file := filepath.Join(s.dir, "state/credentials", w.ID)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want no error, info.Mode().Perm() = 0o600", info, err)
	}
	err := filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == file {
			return err
		}
		if data, _ := os.ReadFile(path); strings.Contains(string(data), token) {
			t.Errorf("the token is in %s; want string(data) without %v", path, token)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if doc, _ := json.Marshal(w); strings.Contains(string(doc), token) {
		t.Errorf("the token is in the record; want string(doc) without %v", token)
	}
	if child := s.provision(Request{Parent: w.ID}); child.Mode != Worktree { // fetches with the parent's token
		t.Errorf("%+v; want child.Mode = %v", child, Worktree)
	} else if err := s.m.Remove(ctx, child.ID, false); err != nil {
		t.Error(err)
	}
	if err := s.m.Remove(ctx, w.ID, false); err != nil || exists(file) {
		t.Errorf("the credential outlives its workspace: %v; want no error, not exists(file)", err)
	}
}

func TestALargeRepositoryIsClonedInPart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("author/old.txt", strings.Repeat("old\n", 100))
	s.plain(s.dir+"/author", "add", ".")
	s.plain(s.dir+"/author", "commit", "-qm", "old")
	s.write("author/old.txt", "new\n")
	s.plain(s.dir+"/author", "commit", "-qam", "new")
	s.plain(s.dir+"/author", "push", "-q", "origin", "HEAD:trunk")
	url, _ := s.served("")
	s.cfg.Policy.OperatorPrefixes = []string{url}
	s.cfg.Forge = func(forge.Repo) forge.Host { return knows{forge.Facts{Bytes: 2 << 30, Push: true}} }
	s.reopen()
	w := s.provision(Request{Repo: url + "/widget.git", NeedPush: true})
	if missing := s.plain(w.Path, "rev-list", "--objects", "--all", "--missing=print"); !strings.Contains(missing, "\n?") {
		t.Errorf(`nothing was left out: %s; want missing with "\n?"`, missing)
	}
	if data, err := os.ReadFile(w.Path + "/old.txt"); err != nil || string(data) != "new\n" {
		t.Errorf(`%q, %v; want no error, string(data) = "new\n"`, data, err)
	}
	s.write(w.Path+"/old.txt", "newer\n")
	if f, err := s.m.Finalize(t.Context(), w.ID, FinalizeRequest{SkipPull: true}); err != nil || f.Stat.Files != 1 {
		t.Errorf("%+v, %v; want no error, f.Stat.Files = 1", f, err)
	}
	if c := s.provision(Request{Parent: w.ID}); !exists(c.Path + "/old.txt") {
		t.Error("its worktree is empty")
	}

	s.cfg.Forge = func(forge.Repo) forge.Host { return knows{forge.Facts{}} }
	s.reopen()
	_, err := s.m.Provision(t.Context(), Request{Repo: url + "/widget.git", NeedPush: true})
	wantReason(t, err, "missing_scope")
}

// knows is a forge that only answers what it is asked first.
type knows struct{ facts forge.Facts }

func (k knows) Open(forge.Repo, secret.Value) (forge.Repository, error) { return fact{k}, nil }

type fact struct{ k knows }

func (f fact) Facts(context.Context) (forge.Facts, error) { return f.k.facts, nil }

func (f fact) Checks(context.Context, string) ([]forge.Check, error) { return nil, nil }

func (f fact) OpenPull(context.Context, forge.PullRequest) (forge.Pull, error) {
	return forge.Pull{}, errors.New("not asked in this test")
}
