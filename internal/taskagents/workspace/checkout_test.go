package workspace

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// checkout is a user's repository with one commit on main and a manager.
func checkout(t *testing.T) (*site, Source) {
	t.Helper()
	s := newSite(t)
	s.plain(s.dir, "init", "-q", "-b", "main", "own")
	s.write("own/a.txt", "one\ntwo\nthree\n")
	s.write("own/.gitignore", "*.log\n")
	s.plain(s.dir+"/own", "add", ".")
	s.plain(s.dir+"/own", "commit", "-q", "-m", "first")
	return s, s.inspect()
}

func (s *site) inspect() Source {
	s.t.Helper()
	source, err := s.m.Inspect(s.t.Context(), s.dir+"/own")
	if err != nil {
		s.t.Fatal(err)
	}
	return source
}

func (s *site) part(source Source, name, start string, merge ...string) Workspace {
	s.t.Helper()
	w, err := s.m.ProvisionPart(s.t.Context(), PartRequest{
		Source: source, Task: "thr_1", Part: name, Branch: "junctor/job/" + name, Label: name, Start: start, Merge: merge,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return w
}

func (s *site) put(w Workspace, name, text string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(w.Path, name)), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.Path, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) committed(w Workspace) string {
	s.t.Helper()
	head, err := s.m.CommitPart(s.t.Context(), w.ID, "Work of "+w.Label)
	if err != nil {
		s.t.Fatal(err)
	}
	return head
}

// own runs a plain git in the user's checkout.
func (s *site) own(args ...string) string {
	s.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = s.dir + "/own"
	cmd.Env = append(os.Environ(), "HOME="+s.dir, "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// files returns the content of every file below a folder, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPartsOfATaskLeaveTheUsersCheckoutAsItIs(t *testing.T) {
	t.Parallel()
	s, _ := checkout(t)
	s.write("own/a.txt", "changed by the user\n")
	s.write("own/staged.txt", "staged\n")
	s.write("own/new.bin", "\x00\x01")
	s.own("add", "staged.txt")
	s.plain(s.dir+"/own", "config", "core.hooksPath", "hooks")
	s.write("own/hooks/post-checkout", "#!/bin/sh\ntouch "+s.dir+"/hooked\n")
	s.write("own/hooks/pre-commit", "#!/bin/sh\ntouch "+s.dir+"/hooked\n")
	for _, hook := range []string{"post-checkout", "pre-commit"} {
		if err := os.Chmod(s.dir+"/own/hooks/"+hook, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	before := files(t, s.dir+"/own")
	source := s.inspect()
	if !source.Dirty || source.Branch != "main" {
		t.Errorf("Inspect = %+v, want a dirty checkout of main", source)
	}
	w := s.part(source, "api", source.Head)
	if got := files(t, w.Path)["a.txt"]; got != "one\ntwo\nthree\n" {
		t.Errorf("the part begins with %q, want what is committed", got)
	}
	s.put(w, "deep/new.txt", "new\n")
	head := s.committed(w)
	if head == source.Head {
		t.Errorf("the part's commit is %s, want a new one", head)
	}
	after := files(t, s.dir+"/own")
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s of the checkout has changed; want after[name] = %v", name, text)
		}
	}
	for name := range after {
		_, was := before[name]
		ours := strings.HasPrefix(name, ".git/objects/") || strings.Contains(name, "heads/junctor/") || strings.HasPrefix(name, ".git/worktrees/")
		if !was && !ours {
			t.Errorf("%s was added to the checkout; want not (!was && !ours)", name)
		}
	}
	if _, err := os.Stat(s.dir + "/hooked"); err == nil {
		t.Error("a hook of the repository was run, want none")
	}
	if _, err := s.m.DiscardTask(t.Context(), "thr_1"); err != nil {
		t.Fatal(err)
	}
	for name := range files(t, s.dir+"/own") {
		if strings.Contains(name, "junctor") || strings.Contains(name, "worktrees") {
			t.Errorf(`after DiscardTask %s is left; want name without "junctor", name without "worktrees"`, name)
		}
	}
}

func TestUncommittedChangesAreCopied(t *testing.T) {
	t.Parallel()
	s, _ := checkout(t)
	s.write("own/gone.txt", "x")
	s.own("add", ".")
	s.plain(s.dir+"/own", "commit", "-q", "-m", "second")
	source := s.inspect()
	s.write("own/a.txt", "changed\n")
	s.write("own/new/b.bin", "\x00\xff")
	s.write("own/noise.log", "ignored")
	if err := os.Remove(s.dir + "/own/gone.txt"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a.txt", s.dir+"/own/link"); err != nil {
		t.Fatal(err)
	}
	before := files(t, s.dir+"/own")
	w := s.part(source, "base", source.Head)
	head, err := s.m.CopyChanges(t.Context(), w.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.own("show", "--name-status", "--format=", head), "M\ta.txt\nD\tgone.txt\nA\tlink\nA\tnew/b.bin\n"; got != want {
		t.Errorf("the first commit has %q, want %q", got, want)
	}
	if got := s.own("show", head+":new/b.bin"); got != "\x00\xff" {
		t.Errorf("new/b.bin = %q, want its bytes", got)
	}
	for name, text := range before {
		if got := files(t, s.dir+"/own")[name]; got != text {
			t.Errorf("%s of the checkout = %q, want %q", name, got, text)
		}
	}
}

func TestPartsCarryTheCodeOfOthersAndConflictsAreMarked(t *testing.T) {
	t.Parallel()
	s, source := checkout(t)
	one, two := s.part(source, "one", source.Head), s.part(source, "two", source.Head)
	s.put(one, "one.txt", "1\n")
	s.put(two, "two.txt", "2\n")
	three := s.part(source, "three", s.committed(one), s.committed(two))
	if got := files(t, three.Path); got["one.txt"] != "1\n" || got["two.txt"] != "2\n" || len(three.Conflicts) > 0 {
		t.Errorf("the third part has %v, conflicts %v, want the files of both", got, three.Conflicts)
	}
	s.put(one, "a.txt", "ONE\ntwo\nthree\n")
	s.put(two, "a.txt", "zwei\ntwo\nthree\n")
	four := s.part(source, "four", s.committed(one), s.committed(two))
	if !slices.Equal(four.Conflicts, []string{"a.txt"}) {
		t.Fatalf("Conflicts = %q, want a.txt", four.Conflicts)
	}
	s.committed(four)
	if got, _ := s.m.Get(four.ID); len(got.Conflicts) != 1 {
		t.Errorf("Conflicts with markers = %q, want a.txt", got.Conflicts)
	}
	s.put(four, "a.txt", "both\n")
	s.committed(four)
	if got, _ := s.m.Get(four.ID); len(got.Conflicts) != 0 {
		t.Errorf("Conflicts after they were resolved = %q, want none", got.Conflicts)
	}
}

func TestATaskIsReviewedAndMerged(t *testing.T) {
	t.Parallel()
	for _, method := range []MergeMethod{FastForward, Squash, Rebase} {
		t.Run(string(method), func(t *testing.T) {
			t.Parallel()
			s, source := checkout(t)
			one := s.part(source, "one", source.Head)
			s.put(one, "new.bin", "\x00\x01\xff")
			s.put(one, "latin.txt", "caf\xe9\n")
			s.committed(one)
			if method != FastForward {
				s.write("own/user.txt", "by the user\n")
				s.own("add", ".")
				s.plain(s.dir+"/own", "commit", "-q", "-m", "meanwhile")
			}
			r, err := s.m.Review(t.Context(), one.ID, source.Head)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(r.Diff, []byte("caf\xe9")) || !bytes.Contains(r.Diff, []byte("GIT binary patch")) {
				t.Errorf("the diff is %q, want every byte", r.Diff)
			}
			req := MergeRequest{ID: one.ID, Base: source.Head, Commit: r.Head, Method: method, Message: "Do the job"}
			if method != FastForward {
				ff := req
				ff.Method = FastForward
				if _, err := s.m.MergeTask(t.Context(), ff); reason(err) != "not_fast_forward" {
					t.Errorf("MergeTask(fast-forward) = %v, want not_fast_forward", err)
				}
			}
			// A dirty target loses nothing.
			head := s.own("rev-parse", "HEAD")
			s.write("own/a.txt", "mine\n")
			if _, err := s.m.MergeTask(t.Context(), req); reason(err) != "checkout_dirty" {
				t.Errorf("MergeTask(dirty) = %v, want checkout_dirty", err)
			}
			s.own("checkout", "-q", "--", "a.txt")
			s.write("own/new.bin", "an untracked file of the user")
			if _, err := s.m.MergeTask(t.Context(), req); reason(err) != "checkout_dirty" {
				t.Errorf("MergeTask(over an untracked file) = %v, want checkout_dirty", err)
			}
			if got := files(t, s.dir+"/own")["new.bin"]; got != "an untracked file of the user" || s.own("rev-parse", "HEAD") != head {
				t.Errorf("after a refused merge new.bin = %q, want the user's", got)
			}
			if err := os.Remove(s.dir + "/own/new.bin"); err != nil {
				t.Fatal(err)
			}
			m, err := s.m.MergeTask(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.own("diff", "--binary", "--full-index", "--no-renames", m.From, "HEAD"); got != string(r.Diff) {
				t.Errorf("merged %q, want what was reviewed: %q", got, r.Diff)
			}
			if got := s.own("status", "--porcelain"); got != "" || m.Branch != "main" {
				t.Errorf("after the merge into %q the status is %q, want main, clean", m.Branch, got)
			}
			if list := strings.Count(s.own("worktree", "list"), "\n"); list != 2 {
				t.Errorf("%d worktrees, want the checkout and the part", list)
			}
			// What is merged expires; what is not stays.
			two := s.part(s.inspect(), "two", m.Commit)
			s.put(two, "x.txt", "x")
			s.committed(two)
			s.later(48 * time.Hour)
			got, err := s.m.GC(t.Context(), func(Workspace) bool { return false })
			if err != nil || !slices.Equal(got.Removed, []string{one.ID}) || !strings.Contains(got.Kept[two.ID], "not merged") {
				t.Errorf("GC = %+v, %v, want only the merged part removed", got, err)
			}
			if branches := s.own("branch", "--list", "junctor/*"); strings.Contains(branches, "one") || !strings.Contains(branches, "two") {
				t.Errorf("branches are %q, want that of the second part", branches)
			}
		})
	}
}

func TestCredentialsAreNotMerged(t *testing.T) {
	t.Parallel()
	s, source := checkout(t)
	w := s.part(source, "one", source.Head)
	s.put(w, "config.txt", "token = ghp_"+strings.Repeat("a1B2", 9)+"\n")
	head := s.committed(w)
	if _, err := s.m.MergeTask(t.Context(), MergeRequest{ID: w.ID, Base: source.Head, Commit: head}); reason(err) != "secret_found" {
		t.Errorf("MergeTask = %v, want secret_found", err)
	}
}

func TestPruneAfterALostHomeLeavesNothing(t *testing.T) {
	t.Parallel()
	s, source := checkout(t)
	s.part(source, "one", source.Head)
	if err := os.RemoveAll(s.dir + "/workspaces"); err != nil {
		t.Fatal(err)
	}
	s.own("worktree", "prune")
	if got := s.own("worktree", "list"); strings.Count(got, "\n") != 1 {
		t.Errorf("worktrees are %q, want the checkout alone", got)
	}
}

func TestSubmodulesOfACheckoutAreFilled(t *testing.T) {
	t.Parallel()
	s, _ := checkout(t)
	s.plain(s.dir+"/own", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", s.remote, "sub")
	s.plain(s.dir+"/own", "commit", "-q", "-m", "with a submodule")
	source := s.inspect()
	w := s.part(source, "one", source.Head)
	if got := files(t, w.Path)["sub/README.md"]; got != "# Widget\n" {
		t.Errorf("sub/README.md = %q, notes %q, want the file", got, w.Notes)
	}
	s.put(w, "b.txt", "b")
	s.committed(w)
	if got := s.own("diff", "--name-only", source.Head, w.Branch); got != "b.txt\n" {
		t.Errorf("changed files are %q, want b.txt", got)
	}
}

func TestCheckoutsThatAreRefused(t *testing.T) {
	t.Parallel()
	s, source := checkout(t)
	s.plain(s.dir, "init", "-q", "empty")
	w := s.part(source, "one", source.Head)
	for path, want := range map[string]string{
		s.dir: "not_a_checkout", "own": "not_a_checkout", s.dir + "/none": "not_a_checkout", s.dir + "/empty": "no_commits",
		s.remote: "not_a_checkout", w.Path: "not_a_checkout",
	} {
		if _, err := s.m.Inspect(t.Context(), path); reason(err) != want {
			t.Errorf("Inspect(%s) = %v, want %s", path, err, want)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(s.dir+"/own/.git", 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if _, err := s.m.Inspect(t.Context(), s.dir+"/own"); reason(err) != "foreign_repository" {
			t.Errorf("Inspect(another user's) = %v, want foreign_repository", err)
		}
	}
}

func TestALinkedWorktreeIsACheckout(t *testing.T) {
	t.Parallel()
	s, _ := checkout(t)
	s.own("worktree", "add", "-q", "-b", "side", s.dir+"/side")
	source, err := s.m.Inspect(t.Context(), s.dir+"/side")
	if err != nil || source.Branch != "side" || source.GitDir != s.dir+"/own/.git" {
		t.Fatalf("Inspect = %+v, %v, want the branch side", source, err)
	}
	w := s.part(source, "one", source.Head)
	s.put(w, "b.txt", "b")
	head := s.committed(w)
	if _, err := s.m.MergeTask(t.Context(), MergeRequest{ID: w.ID, Base: source.Head, Commit: head}); err != nil {
		t.Fatal(err)
	}
	if got := files(t, s.dir+"/side")["b.txt"]; got != "b" {
		t.Errorf("b.txt = %q, want it in the linked worktree", got)
	}
}

func TestAFolderOfACloneIsCloned(t *testing.T) {
	t.Parallel()
	s, _ := checkout(t)
	clone := s.provision(Request{})
	worktree := s.provision(Request{Parent: clone.ID, BranchName: "beside"})
	folder := s.provision(Request{Folder: true})
	source := s.inspect()
	part := s.part(source, "api", source.Head)
	for _, tt := range []struct{ name, dir, want string }{
		{"a clone", clone.Path, clone.Path},
		{"below a clone", clone.Path + "/deep", clone.Path},
		{"a worktree of it", worktree.Path, worktree.Path},
		{"beside a clone", clone.Path + "-more", ""},
		{"an empty folder", folder.Path, ""},
		{"a worktree of the user's checkout", part.Path, ""},
		{"the user's checkout", source.Path, ""},
	} {
		if got := s.m.CloneOf(tt.dir); got != tt.want {
			t.Errorf("CloneOf(%s) = %q, want %q", tt.name, got, tt.want)
		}
	}
}
