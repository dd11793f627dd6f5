package workspace

import (
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
