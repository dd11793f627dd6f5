package workspace

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

func TestTheWorkOfATaskIsPublished(t *testing.T) {
	t.Parallel()
	s, source := checkout(t)
	if _, err := s.m.PublishTask(t.Context(), PublishRequest{ID: s.part(source, "early", source.Head).ID}); reason(err) != "no_remote" {
		t.Errorf("PublishTask(without origin) = %v, want no_remote", err)
	}
	s.own("remote", "add", "origin", s.remote)
	s.own("push", "-q", "origin", "main")
	s.own("fetch", "-q", "origin")
	source = s.inspect()
	w := s.part(source, "one", source.Head)
	s.put(w, "new.txt", "new\n")
	req := PublishRequest{ID: w.ID, Base: source.Head, Commit: s.committed(w), Title: "Do the job", Body: "All of it.", Draft: true}
	at := func() string {
		return s.plain(s.remote, "for-each-ref", "--format=%(objectname)", "refs/heads/"+w.Branch)
	}

	// Nothing is pushed but what was shown, to where the checkout pointed.
	refused := func(want string, change func(*PublishRequest)) {
		t.Helper()
		r := req
		change(&r)
		if _, err := s.m.PublishTask(t.Context(), r); reason(err) != want {
			t.Errorf("PublishTask = %v, want %s", err, want)
		}
		if got := at(); got != "" {
			t.Errorf("the remote has the branch at %s, want no branch", got)
		}
	}
	same := func(*PublishRequest) {}
	refused(ReasonWorkMoved, func(r *PublishRequest) { r.Commit = source.Head })
	refused("invalid_base_branch", func(r *PublishRequest) { r.Into = "--upload-pack=x" })
	s.own("remote", "set-url", "origin", s.remote+"x")
	refused("remote_changed", same)
	s.own("remote", "set-url", "origin", s.remote)
	s.plain(s.dir, "init", "-q", "--bare", "remotes/other.git")
	for _, key := range []string{"url." + s.dir + "/remotes/other.git.insteadOf", "remote.file://" + s.remote + ".url", "http.proxy"} {
		s.own("config", key, s.remote)
		refused("security_violation", same)
		s.own("config", "--unset", key)
	}
	if _, _, err := s.m.TaskChecks(t.Context(), w.ID); reason(err) != "not_published" {
		t.Errorf("TaskChecks(before) = %v, want not_published", err)
	}

	p, err := s.m.PublishTask(t.Context(), req)
	if err != nil || p.Number != 1 || p.State != "open" {
		t.Fatalf("PublishTask = %+v, %v, want the open pull request 1", p, err)
	}
	if got := at(); got != req.Commit {
		t.Errorf("the remote has the branch at %q, want %s", got, req.Commit)
	}
	// A next round updates it.
	s.put(w, "new.txt", "newer\n")
	req.Commit = s.committed(w)
	if again, err := s.m.PublishTask(t.Context(), req); err != nil || again.Number != 1 || at() != req.Commit {
		t.Errorf("PublishTask(again) = %+v, %v with the branch at %s, want the same with %s", again, err, at(), req.Commit)
	}
	s.reopen()
	kept, list, err := s.m.TaskChecks(t.Context(), w.ID)
	if err != nil || len(list) != 0 || kept.Published != req.Commit || kept.BaseBranch != "main" || kept.Pull.Number != 1 {
		t.Errorf("TaskChecks = %+v, %+v, %v, want the pull request without checks", kept, list, err)
	}
	if got := s.own("status", "--porcelain"); got != "" {
		t.Errorf("the status of the checkout is %q, want it unchanged", got)
	}
}

func TestCredentialsAreNotPublished(t *testing.T) {
	t.Parallel()
	s, _ := checkout(t)
	s.own("remote", "add", "origin", s.remote)
	source := s.inspect()
	w := s.part(source, "one", source.Head)
	s.put(w, "config.txt", "token = ghp_"+strings.Repeat("a1B2", 9)+"\n")
	head := s.committed(w)
	// The agent moves the ref of the remote, as if it was pushed already.
	s.own("update-ref", "refs/remotes/origin/main", head)
	s.put(w, "config.txt", "nothing\n")
	req := PublishRequest{ID: w.ID, Base: source.Head, Commit: s.committed(w), Title: "T"}
	if _, err := s.m.PublishTask(t.Context(), req); reason(err) != "secret_found" {
		t.Errorf("PublishTask = %v, want secret_found", err)
	}
	if got := s.plain(s.remote, "for-each-ref", "refs/heads/junctor"); got != "" {
		t.Errorf("the remote has %q, want nothing", got)
	}
}

// TestAForgedHistoryIsNeitherMergedNorPublished holds what git shows of a repository that an agent may
// write to: other objects than those that are merged, and other parents.
func TestAForgedHistoryIsNeitherMergedNorPublished(t *testing.T) {
	t.Parallel()
	leaked := "token = ghp_" + strings.Repeat("a1B2", 9) + "\n"
	for name, c := range map[string]struct {
		forge func(s *site, w Workspace, base, leak, tip string)
		want  string
	}{
		"a replaced file": {func(s *site, w Workspace, _, _, _ string) {
			s.put(w, "benign", "build ok\n")
			s.plain(w.Path, "replace", s.plain(w.Path, "rev-parse", "HEAD:cfg.txt"), s.plain(w.Path, "hash-object", "-w", "benign"))
			s.plain(w.Path, "clean", "-fdq")
		}, "security_violation"},
		"a graft": {func(s *site, w Workspace, base, _, tip string) {
			s.write("own/.git/info/grafts", tip+" "+base+"\n")
		}, "security_violation"},
		"a shallow history": {func(s *site, w Workspace, _, _, tip string) {
			s.write("own/.git/shallow", tip+"\n")
		}, "security_violation"},
		"a graph of commits that omits one": {func(s *site, w Workspace, base, leak, tip string) {
			s.plain(w.Path, "commit-graph", "write", "--reachable")
			forgeParent(s, s.dir+"/own/.git/objects/info/commit-graph", tip, base)
		}, "secret_found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := checkout(t)
			s.own("remote", "add", "origin", s.remote)
			s.own("push", "-q", "origin", "main")
			s.own("fetch", "-q", "origin")
			source := s.inspect()
			w := s.part(source, "one", source.Head)
			s.put(w, "cfg.txt", leaked)
			leak := s.committed(w)
			tip := leak
			if name != "a replaced file" {
				s.put(w, "cfg.txt", "clean\n")
				tip = s.committed(w)
			}
			c.forge(s, w, source.Head, leak, tip)
			if _, err := s.m.MergeTask(t.Context(), MergeRequest{ID: w.ID, Base: source.Head, Commit: tip}); reason(err) != c.want {
				t.Errorf("MergeTask = %v, want %s", err, c.want)
			}
			if _, err := s.m.PublishTask(t.Context(), PublishRequest{ID: w.ID, Base: source.Head, Commit: tip, Title: "T"}); reason(err) != c.want {
				t.Errorf("PublishTask = %v, want %s", err, c.want)
			}
			if r, err := s.m.Review(t.Context(), w.ID, source.Head); name == "a replaced file" && !strings.Contains(string(r.Diff), leaked) {
				t.Errorf("Review = %s, %v, want the file as it is merged", r.Diff, err)
			}
		})
	}
}

// forgeParent changes the parent of a commit in a file of git's format commit-graph, version 1, which lists the
// commits in the order of their ids, with 36 bytes each: tree, parents, generation and date.
func forgeParent(s *site, file, commit, parent string) {
	s.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatalf("reading the graph: %v", err)
	}
	chunks := map[string]int{}
	for i := range int(data[6]) {
		row := data[8+12*i:]
		chunks[string(row[:4])] = int(binary.BigEndian.Uint64(row[4:]))
	}
	ids := data[chunks["OIDL"]:chunks["CDAT"]]
	at := func(id string) int {
		raw, _ := hex.DecodeString(id)
		return bytes.Index(ids, raw) / 20
	}
	binary.BigEndian.PutUint32(data[chunks["CDAT"]+36*at(commit)+20:], uint32(at(parent)))
	if err := os.Chmod(file, 0o600); err != nil {
		s.t.Fatalf("making the graph writable: %v", err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		s.t.Fatalf("writing the graph: %v", err)
	}
	if got := s.plain(s.dir+"/own", "rev-list", "--count", commit, "--not", parent); got != "1" {
		s.t.Fatalf("git counts %s commits, want 1: the graph is not used", got)
	}
}

// TestMergesAreSearchedForCredentials holds that a merge commit of an agent is searched, and that what it
// brings from the user's branch is not held against it.
func TestMergesAreSearchedForCredentials(t *testing.T) {
	t.Parallel()
	leaked := "token = ghp_" + strings.Repeat("a1B2", 9) + "\n"
	for name, c := range map[string]struct {
		theirs, merged string // cfg.txt in the user's branch, and in the merge
		want           string
	}{
		"one that adds a token":                  {"", leaked, "secret_found"},
		"one that brings one that is there":      {leaked, leaked, ""},
		"one that adds another to that":          {leaked, leaked + strings.ReplaceAll(leaked, "a1B2", "c3D4"), "secret_found"},
		"one that changes a file that it brings": {"theirs\n", "both\n" + leaked, "secret_found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, source := checkout(t)
			w := s.part(source, "one", source.Head)
			s.put(w, "mine.txt", "mine\n")
			s.committed(w)
			if c.theirs != "" {
				s.write("own/cfg.txt", c.theirs)
			}
			s.own("add", ".")
			s.plain(source.Path, "commit", "-q", "--allow-empty", "-m", "theirs")
			source = s.inspect()
			s.plain(w.Path, "merge", "-q", "--no-commit", "--no-ff", source.Head)
			s.put(w, "cfg.txt", c.merged)
			s.put(w, ".gitattributes", "*.txt binary\n")
			head := s.committed(w)
			if _, err := s.m.MergeTask(t.Context(), MergeRequest{ID: w.ID, Base: source.Head, Commit: head}); reason(err) != c.want {
				t.Errorf("MergeTask = %v, want reason %q", err, c.want)
			}
		})
	}
}

// TestTheConfigurationHidesNothingFromTheSearch holds settings of a repository that change what git shows of commits.
func TestTheConfigurationHidesNothingFromTheSearch(t *testing.T) {
	t.Parallel()
	leaked := "token = ghp_" + strings.Repeat("a1B2", 9) + "\n"
	lines := strings.Repeat("l\n", 40)
	for setting, work := range map[string]func(s *site, w Workspace) Source{
		"log.showRoot=false": func(s *site, w Workspace) Source { // a merge of a history of its own
			s.plain(w.Path, "checkout", "-q", "--orphan", "other")
			s.put(w, "cfg.txt", leaked)
			s.plain(w.Path, "add", ".")
			s.plain(w.Path, "commit", "-q", "-m", "root")
			s.plain(w.Path, "checkout", "-q", w.Branch)
			s.plain(w.Path, "merge", "-q", "--allow-unrelated-histories", "-m", "both", "other")
			return s.inspect()
		},
		"diff.interHunkContext=1000": func(s *site, w Workspace) Source { // a token far from what the other side changed
			s.put(w, "mine.txt", "mine\n")
			s.committed(w)
			s.write("own/b.txt", "l\ntheirs\n"+lines)
			s.plain(s.dir+"/own", "commit", "-qam", "theirs")
			source := s.inspect()
			s.plain(w.Path, "merge", "-q", "--no-commit", "--no-ff", source.Head)
			s.put(w, "b.txt", "l\ntheirs\n"+lines+leaked)
			return source
		},
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			s, _ := checkout(t)
			s.write("own/b.txt", "l\n"+lines)
			s.own("add", ".")
			s.plain(s.dir+"/own", "commit", "-qm", "b")
			w := s.part(s.inspect(), "one", s.inspect().Head)
			key, value, _ := strings.Cut(setting, "=")
			s.own("config", key, value)
			source := work(s, w)
			req := MergeRequest{ID: w.ID, Base: source.Head, Commit: s.committed(w)}
			if _, err := s.m.MergeTask(t.Context(), req); reason(err) != "secret_found" {
				t.Errorf("MergeTask = %v, want secret_found", err)
			}
		})
	}
}

func TestARepositoryThatIsNotAllowedIsNotPublishedTo(t *testing.T) {
	t.Parallel()
	s, _ := checkout(t)
	if err := os.MkdirAll(s.dir+"/outside.git", 0o700); err != nil {
		t.Fatalf("mkdir: got %v, want no error", err)
	}
	for origin, want := range map[string]string{
		s.dir + "/outside.git": "invalid_repo", "https://evil.example/a/b": "invalid_repo_domain", "https://github.com/a/b": "no_forge",
		"ext::sh -c x": "invalid_repo", "https://user:secret@github.com/a/b": "invalid_repo",
	} {
		s.own("config", "remote.origin.url", origin)
		source := s.inspect()
		w := s.part(source, "p"+want+string(rune('a'+len(origin)%26)), source.Head)
		s.put(w, "x", "x")
		_, err := s.m.PublishTask(t.Context(), PublishRequest{ID: w.ID, Base: source.Head, Commit: s.committed(w), Title: "T"})
		if got := reason(err); got != want {
			t.Errorf("PublishTask(to %s) = %v, want %s", origin, err, want)
		}
	}
}
