package workspace

import (
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
)

func TestRequestsThatCannotBe(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := t.Context()
	s.plain(s.dir, "clone", "-q", "--bare", s.remote, s.dir+"/remotes/other.git")
	w, folder := s.provision(Request{Label: "mine"}), s.provision(Request{Folder: true})
	for _, tt := range []struct {
		req  Request
		want string
	}{
		{Request{}, "missing_repo"},
		{Request{Parent: "ws-0000000000000000"}, "missing_parent"},
		{Request{Parent: "../x"}, "missing_parent"},
		{Request{Parent: folder.ID}, "missing_parent"},
		{Request{Parent: w.ID, Repo: s.dir + "/remotes/other.git"}, "invalid_repo"},
		{Request{Parent: w.ID, BaseBranch: "gone"}, "invalid_base_branch"},
		{Request{Folder: true, Repo: s.remote}, "invalid_mode"},
		{Request{Repo: s.remote, Label: strings.Repeat("x", 201)}, "invalid_label"},
	} {
		_, err := s.m.Provision(ctx, tt.req)
		wantReason(t, err, tt.want)
	}
	if same := s.provision(Request{Parent: w.ID, Repo: s.remote}); same.Parent != w.ID {
		t.Errorf("%+v; want same.Parent = %v", same, w.ID)
	} else if grandchild := s.provision(Request{Parent: same.ID}); grandchild.Parent != w.ID {
		t.Errorf("a worktree of a worktree belongs to the clone: %+v; want grandchild.Parent = %v", grandchild, w.ID)
	}
	_, err := s.m.Status(ctx, folder.ID)
	wantReason(t, err, "no_repository")
	_, err = s.m.Commit(ctx, folder.ID, "x")
	wantReason(t, err, "no_repository")
	_, err = s.m.Finalize(ctx, "nobody", FinalizeRequest{})
	wantReason(t, err, "workspace_not_found")
	if got, err := s.m.Resolve("mine"); err != nil || got.ID != w.ID {
		t.Errorf("%+v, %v; want no error, got.ID = %v", got, err, w.ID)
	}
	_, err = s.m.Resolve("")
	wantReason(t, err, "workspace_not_found")
	_, err = s.m.Issues(ctx, s.remote)
	wantReason(t, err, "no_issues")
	_, err = s.m.Issues(ctx, "acme/widget")
	wantReason(t, err, "no_forge")
	_, err = s.m.Issues(ctx, "https://example.com/a/b")
	wantReason(t, err, "invalid_repo_domain")
}

func TestEveryStepIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := t.Context()
	w := s.provision(Request{})
	s.write(w.Path+"/a.txt", "a\n")
	outcomes := func(f Finalized) (out []string) {
		for _, step := range f.Steps {
			out = append(out, step.Name+" "+step.Outcome)
		}
		return out
	}
	f, err := s.m.Finalize(ctx, w.ID, FinalizeRequest{Base: "gone"})
	wantReason(t, err, "forge_refused")
	if got := outcomes(f); !slices.Equal(got, []string{"commit done", "push done", "pull_request failed"}) ||
		!strings.Contains(f.Text, "gone") || f.Commit == "" {
		t.Errorf(`%v: %+v; want got = []string{"commit done", "push done", "pull_request failed"}, f.Text with "gone", f.Commit `+
			`other than ""`, got, f)
	}
	if told, _ := capability.AsError(err).Details["steps"].([]Step); len(told) != 3 {
		t.Errorf("%v; want len(told) = 3", capability.AsError(err).Details)
	}
	f, err = s.m.Finalize(ctx, w.ID, FinalizeRequest{Title: "  two\n lines ", Body: "see gh" + "p_" + strings.Repeat("aB3", 12)})
	if got := outcomes(f); err != nil || !slices.Equal(got, []string{"commit skipped", "push done", "pull_request done"}) {
		t.Errorf(`it does not go on from there: %v, %v; want no error, got = []string{"commit skipped", "push done", "pull_request done"}`,
			got, err)
	}
	if pulls, err := s.pulls.Pulls(w.Repo); err != nil || pulls[0].Title != "two lines" || pulls[0].Body != "see •••" {
		t.Errorf(`%+v, %v; want no error, pulls[0].Title = "two lines", pulls[0].Body = "see •••"`, pulls, err)
	}
	s.write(w.Path+"/b.txt", "b\n")
	f, err = s.m.Finalize(ctx, w.ID, FinalizeRequest{SkipCommit: true, SkipPull: true})
	if got := outcomes(f); err != nil || !slices.Equal(got, []string{"commit skipped", "push done", "pull_request skipped"}) ||
		f.Stat.Files != 1 {
		t.Errorf(`%v, %v; want no error, got = []string{"commit skipped", "push done", "pull_request skipped"}, f.Stat.Files = 1`,
			got, err)
	}
	if d, err := s.m.Diff(ctx, w.ID, ""); err != nil || d.Stat.Files != 1 || d.Stat.Insertions != 1 {
		t.Errorf("Diff().Stat = %+v, %v; want 1 file and 1 insertion, no error", d.Stat, err)
	}
	for _, p := range []forge.PullRequest{{}, {Title: strings.Repeat("x", 257)}} {
		_, err := s.m.OpenPull(ctx, w.ID, p)
		wantReason(t, err, "missing_title")
	}
	_, err = s.m.OpenPull(ctx, w.ID, forge.PullRequest{Title: "x", Body: strings.Repeat("x", 61<<10)})
	wantReason(t, err, "too_large")
	_, err = s.m.OpenPull(ctx, w.ID, forge.PullRequest{Title: "x", Base: "--base"})
	wantReason(t, err, "invalid_base_branch")
	_, err = s.m.Finalize(ctx, w.ID, FinalizeRequest{Base: "a b"})
	wantReason(t, err, "invalid_base_branch")
}
