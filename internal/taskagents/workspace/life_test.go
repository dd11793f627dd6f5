package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/secret"
)

func TestEightWorktreesAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	parent := s.provision(Request{})
	var all sync.WaitGroup
	made := make([]Workspace, 8)
	for i := range made {
		all.Go(func() {
			w, err := s.m.Provision(t.Context(), Request{Parent: parent.ID, Execution: "swarm", Role: "coder", Slug: "same"})
			if err != nil {
				t.Error(err)
				return
			}
			made[i] = w
			if err := os.WriteFile(filepath.Join(w.Path, w.ID+".txt"), []byte(w.ID), 0o600); err != nil {
				t.Error(err)
			}
			if f, err := s.m.Finalize(t.Context(), w.ID, FinalizeRequest{}); err != nil || f.Stat.Files != 1 || f.Pull == nil {
				t.Errorf("%+v, %v (%v); want no error, f.Stat.Files = 1, f.Pull not nil", f, err, errors.Unwrap(err))
			}
		})
	}
	all.Wait()
	branches := make(map[string]bool)
	for _, w := range made {
		branches[w.Branch] = true
	}
	if len(branches) != 8 {
		t.Fatalf("branches %v; want len(branches) = 8", branches)
	}
	if got := strings.Count(s.plain(parent.Path, "worktree", "list"), "\n"); got != 8 {
		t.Errorf("%d worktrees; want got = 8", got)
	}
	if pulls, err := s.pulls.Pulls(parent.Repo); err != nil || len(pulls) != 8 {
		t.Errorf("%d pull requests, %v; want no error, len(pulls) = 8", len(pulls), err)
	}
	wantReason(t, s.m.Remove(t.Context(), parent.ID, true), "has_worktrees")
	for _, w := range made {
		all.Go(func() {
			if err := s.m.Remove(t.Context(), w.ID, false); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := s.plain(parent.Path, "worktree", "list"); strings.Contains(got, "\n") {
		t.Errorf(`worktrees left: %s; want got without "\n"`, got)
	}
	if got := s.plain(parent.Path, "for-each-ref", "--format=%(refname)", "refs/heads/eliza/swarm"); strings.Count(got, "\n") != 7 {
		t.Errorf(`branches that are not merged were dropped: %s; want strings.Count(got, "\n") = 7`, got)
	}
	if len(s.m.locks.m) != 0 {
		t.Errorf("a lock is left; got len(s.m.locks.m) = %v; want len(s.m.locks.m) = 0", len(s.m.locks.m))
	}
}

func TestABranchThatIsMergedGoesWithItsWorktree(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	parent := s.provision(Request{})
	idle, merged := s.provision(Request{Parent: parent.ID}), s.provision(Request{Parent: parent.ID})
	s.write(merged.Path+"/a.txt", "a\n")
	if _, err := s.m.Finalize(t.Context(), merged.ID, FinalizeRequest{}); err != nil {
		t.Fatal(err)
	}
	s.plain(s.remote, "update-ref", "refs/heads/trunk", "refs/heads/"+merged.Branch)
	s.provision(Request{Parent: parent.ID}) // fetches the base
	for _, w := range []Workspace{idle, merged} {
		if err := s.m.Remove(t.Context(), w.ID, false); err != nil {
			t.Fatal(err)
		}
		if got := s.plain(parent.Path, "for-each-ref", "refs/heads/"+w.Branch); got != "" {
			t.Errorf(`%s is left; want got = ""`, w.Branch)
		}
	}
}

func TestWorkIsNotThrownAway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	parent := s.provision(Request{Label: "parent"})
	tests := []struct {
		name string
		req  Request
		do   func(w Workspace)
		want string
	}{
		{"untouched", Request{}, func(Workspace) {}, ""},
		{"a new file", Request{}, func(w Workspace) { s.write(w.Path+"/new", "x") }, "workspace_dirty"},
		{"a changed file", Request{}, func(w Workspace) { s.write(w.Path+"/README.md", "x") }, "workspace_dirty"},
		{"a file that git ignores", Request{}, func(w Workspace) { s.write(w.Path+"/x.log", "x") }, ""},
		{"a commit of its own", Request{}, func(w Workspace) { s.plain(w.Path, "commit", "-q", "--allow-empty", "-m", "x") }, "workspace_dirty"},
		{"a commit on no branch", Request{}, func(w Workspace) {
			s.plain(w.Path, "checkout", "-q", "--detach")
			s.plain(w.Path, "commit", "-q", "--allow-empty", "-m", "x")
		}, "workspace_dirty"},
		{"a stash", Request{}, func(w Workspace) {
			s.write(w.Path+"/README.md", "x")
			s.plain(w.Path, "stash", "-q")
		}, "workspace_dirty"},
		{
			"a worktree's commit stays with its branch",
			Request{Parent: "parent"},
			func(w Workspace) { s.plain(w.Path, "commit", "-q", "--allow-empty", "-m", "x") }, "",
		},
		{"a worktree's commit on no branch", Request{Parent: "parent"}, func(w Workspace) {
			s.plain(w.Path, "checkout", "-q", "--detach")
			s.plain(w.Path, "commit", "-q", "--allow-empty", "-m", "on no branch")
		}, "workspace_dirty"},
		{"a worktree's new file", Request{Parent: "parent"}, func(w Workspace) { s.write(w.Path+"/new", "x") }, "workspace_dirty"},
		{"an empty folder", Request{Folder: true}, func(Workspace) {}, ""},
		{"a folder with a file", Request{Folder: true}, func(w Workspace) { s.write(w.Path+"/new", "x") }, "workspace_dirty"},
		{"no folder any more", Request{}, func(w Workspace) { _ = os.RemoveAll(w.Path) }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.req.Parent != "" {
				tt.req.Parent = parent.ID
			}
			w := s.provision(tt.req)
			tt.do(w)
			wantReason(t, s.m.Remove(t.Context(), w.ID, false), tt.want)
			if tt.want != "" {
				if _, err := s.m.Get(w.ID); err != nil {
					t.Errorf("it is gone: %v", err)
				}
				if err := s.m.Remove(t.Context(), w.ID, true); err != nil {
					t.Error(err)
				}
			}
			if exists(w.Path) {
				t.Error("the folder is still there")
			}
			wantReason(t, s.m.Remove(t.Context(), w.ID, true), "workspace_not_found")
		})
	}
}

func TestGarbageIsWhatIsOldAndNobodys(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := t.Context()
	parent := s.provision(Request{Label: "parent"})
	child := s.provision(Request{Parent: parent.ID, Label: "child"})
	dirty, live := s.provision(Request{Folder: true, Label: "dirty"}), s.provision(Request{Folder: true, Label: "live"})
	s.write(dirty.Path+"/work", "x")
	ours, theirs := filepath.Join(s.cfg.Base, "ws-0123456789abcdef"), filepath.Join(s.cfg.Base, "somebody")
	if err := errors.Join(os.Mkdir(ours, 0o700), os.Mkdir(theirs, 0o700), os.Mkdir(filepath.Join(ours, "closed"), 0o500),
		os.Chtimes(ours, s.clock(), s.clock()), os.Chtimes(theirs, s.clock(), s.clock())); err != nil {
		t.Fatal(err)
	}
	isLive := func(w Workspace) bool { return w.Label == "live" }
	s.later(23 * time.Hour)
	young := s.provision(Request{Folder: true, Label: "young"})
	if got, err := s.m.GC(ctx, isLive); err != nil || len(got.Removed)+len(got.Orphans)+len(got.Kept) != 0 {
		t.Errorf("too early: %+v, %v; want no error, len(got.Removed) + len(got.Orphans) + len(got.Kept) = 0", got, err)
	}
	s.later(time.Hour)
	got, err := s.m.GC(ctx, isLive)
	if err != nil || !slices.Equal(got.Removed, []string{child.ID, parent.ID}) ||
		!slices.Equal(got.Orphans, []string{"ws-0123456789abcdef"}) || len(got.Kept) != 2 || got.Kept[live.ID] == "" ||
		!strings.Contains(got.Kept[dirty.ID], "lost") {
		t.Errorf("%+v, %v; want no error, got.Removed = []string{child.ID, parent.ID}, got.Orphans = "+
			`[]string{"ws-0123456789abcdef"}, len(got.Kept) = 2, got.Kept[live.ID] other than "", got.Kept[dirty.ID] with "lost"`, got,
			err)
	}
	for path, want := range map[string]bool{
		parent.Path: false, child.Path: false, ours: false, theirs: true, dirty.Path: true,
		live.Path: true, young.Path: true,
	} {
		if exists(path) != want {
			t.Errorf("%s: there %v; want exists(path) = %v", path, !want, want)
		}
	}
}

func TestGarbageIsCollectedEachHour(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	w := s.provision(Request{Folder: true})
	s.later(24 * time.Hour)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var heard []time.Duration
		var removed []string
		ended := make(chan error, 1)
		go func() {
			ended <- s.m.Run(ctx, func(Workspace) bool { return false }, func(c Collected, err error) {
				heard, removed = append(heard, time.Since(began)), append(removed, c.Removed...)
				if err != nil || len(heard) == 2 {
					cancel()
				}
			})
		}()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v; want err is context.Canceled", err)
		}
		if !slices.Equal(heard, []time.Duration{time.Hour, 2 * time.Hour}) || !slices.Equal(removed, []string{w.ID}) {
			t.Errorf("heard at %v, removed %v; want heard = []time.Duration{time.Hour, 2 * time.Hour}, removed = []string{w.ID}",
				heard, removed)
		}
	})
}

func TestACrashLeavesNothingHalfMade(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	parent := s.provision(Request{})
	half, going := s.provision(Request{Parent: parent.ID}), s.provision(Request{})
	s.write(going.Path+"/work", "x")
	_ = s.m.Close()
	records, all, _, err := OpenRecords[Workspace](filepath.Join(s.cfg.State, "records"))
	if err != nil {
		t.Fatal(err)
	}
	for id, state := range map[string]State{half.ID: Provisioning, going.ID: Removing} {
		w := all[id]
		w.State = state
		if err := records.Put(id, w); err != nil {
			t.Fatal(err)
		}
	}
	s.write("state/records/ws-ffffffffffffffff.json", "{half")
	s.open()
	if list := s.m.List(); len(list) != 1 || list[0].ID != parent.ID {
		t.Errorf("%+v; want len(list) = 1, list[0].ID = %v", list, parent.ID)
	}
	if exists(half.Path) || exists(going.Path) || strings.Contains(s.plain(parent.Path, "worktree", "list"), "\n") {
		t.Error("something is left")
	}
	if got := s.plain(parent.Path, "for-each-ref", "refs/heads/"+half.Branch); got != "" {
		t.Errorf(`the branch is left; got got = %q; want got = ""`, got)
	}
}

func TestADiskThatIsNearlyFull(t *testing.T) {
	t.Parallel()
	free, freeErr := int64(2<<30), error(nil)
	s := newSite(t, func(s *site) {
		s.cfg.FreeSpace = func(dir string) (int64, error) { return free, freeErr }
		s.cfg.MaxBytes = 1000
	})
	w := s.provision(Request{Folder: true})
	s.write(w.Path+"/big", strings.Repeat("x", 1001))
	_, err := s.m.Provision(t.Context(), Request{Folder: true})
	wantReason(t, err, "disk_full")
	s.write(w.Path+"/big", "")
	s.provision(Request{Folder: true})
	free--
	_, err = s.m.Provision(t.Context(), Request{Folder: true})
	wantReason(t, err, "disk_full")
	free, freeErr = 1<<40, errors.New("no such file system")
	_, err = s.m.Provision(t.Context(), Request{Folder: true})
	wantReason(t, err, "disk_full")
}

func TestIncludedFilesAreCopiedOrNothingIsMade(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("author/.gitignore", ".env\n*.log\n*.local\nsecret/\n")
	s.write("author/.worktreeinclude", "secret/\n/.env\nconf/*.local\nfail.log\n")
	s.plain(s.dir+"/author", "add", ".")
	s.plain(s.dir+"/author", "commit", "-qm", "ignore")
	s.plain(s.dir+"/author", "push", "-q", "origin", "HEAD:trunk")
	parent := s.provision(Request{})
	s.write("outside", "x")
	for name, text := range map[string]string{
		".env": "A=1\n", "conf/x.local": "x", "conf/y.txt": "not ignored", "secret/deep/key": "k",
		"other.log": "not wanted",
	} {
		s.write(parent.Path+"/"+name, text)
	}
	if err := os.Symlink(s.dir+"/outside", parent.Path+"/conf/link.local"); err != nil {
		t.Fatal(err)
	}
	w := s.provision(Request{Parent: parent.ID})
	for name, want := range map[string]bool{
		".env": true, "conf/x.local": true, "secret/deep/key": true, "conf/y.txt": false,
		"other.log": false, "conf/link.local": false,
	} {
		if exists(filepath.Join(w.Path, name)) != want {
			t.Errorf("%s: there %v; want exists(filepath.Join(w.Path, name)) = %v", name, !want, want)
		}
	}
	before, _ := os.ReadDir(s.cfg.Base)
	s.write(parent.Path+"/fail.log", strings.Repeat("x", maxCopiedFile+1))
	_, err := s.m.Provision(t.Context(), Request{Parent: parent.ID, BranchName: "unlucky"})
	wantReason(t, err, "setup_failed")
	after, _ := os.ReadDir(s.cfg.Base)
	if len(after) != len(before) || strings.Contains(s.plain(parent.Path, "branch", "--list", "unlucky"), "unlucky") {
		t.Errorf(`something is left of it; got len(after) = %v; want len(after) = %v, s.plain(parent.Path, "branch", "--list", `+
			`"unlucky") without "unlucky"`, len(after), len(before))
	}
}

func TestWhoGoesAwayLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	url, _ := s.served("")
	s.cfg.Policy.OperatorPrefixes = []string{url}
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	s.cfg.Token = func(context.Context, forge.Repo) (secret.Value, error) {
		if asked++; asked == 2 { // for the default branch, then for the clone
			cancel()
		}
		return secret.New("tok-1"), nil
	}
	s.reopen()
	_, err := s.m.Provision(ctx, Request{Repo: url + "/widget.git"})
	wantReason(t, err, "cancelled")
	for _, dir := range []string{s.cfg.Base, filepath.Join(s.cfg.State, "records"), filepath.Join(s.cfg.State, "credentials")} {
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%s: %v; want len(left) = 0", filepath.Base(dir), left)
		}
	}
	if len(s.m.List()) != 0 {
		t.Error("it is listed; want len(s.m.List()) = 0")
	}
}

func TestARepositoryWithoutCommits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.plain(s.dir, "init", "-q", "--bare", "-b", "main", s.dir+"/remotes/empty.git")
	w := s.provision(Request{Repo: s.dir + "/remotes/empty.git"})
	if w.BaseCommit != "" {
		t.Errorf(`%+v; want w.BaseCommit = ""`, w)
	}
	if f, err := s.m.Finalize(t.Context(), w.ID, FinalizeRequest{}); err != nil || f.Text != noChanges {
		t.Errorf("%+v, %v; want no error, f.Text = %v", f, err, noChanges)
	}
	s.write(w.Path+"/a", "one\n")
	f, err := s.m.Finalize(t.Context(), w.ID, FinalizeRequest{SkipPull: true})
	if err != nil || f.Stat.Files != 1 {
		t.Errorf("%+v, %v; want no error, f.Stat.Files = 1", f, err)
	}
	if d, err := s.m.Diff(t.Context(), w.ID, ""); err != nil || !strings.Contains(d.Text, "+one") {
		t.Errorf(`%+v, %v; want no error, d.Text with "+one"`, d, err)
	}
	if err := s.m.Remove(t.Context(), w.ID, false); err != nil {
		t.Error(err)
	}
}
