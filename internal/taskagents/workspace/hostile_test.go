package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
)

// trap writes a program that leaves a canary, and returns both.
func (s *site) trap() (program, canary string) {
	s.t.Helper()
	program, canary = filepath.Join(s.dir, "evil.sh"), filepath.Join(s.dir, "canary")
	s.write("evil.sh", "#!/bin/sh\ntouch "+canary+"\ncat\n")
	if err := os.Chmod(program, 0o700); err != nil {
		s.t.Fatal(err)
	}
	return program, canary
}

func TestHostileNamesOfBranches(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	_, canary := s.trap()
	names := []string{
		"-b", "--upload-pack=" + s.dir + "/evil.sh", "a..b", "a b", "a\nb", "a~1", "a^", "a:b", "a?", "a*", "[a", "a\\b", "/a", "a/", "a//b",
		".a", "a.lock", "a/.b", "@{-1}", "a@{1}", "HEAD", "a\x00b", "a\x7f", strings.Repeat("x", 201), "refs/heads/../../x",
	}
	for _, name := range names {
		_, err := s.m.Provision(t.Context(), Request{Repo: s.remote, BranchName: name})
		wantReason(t, err, "invalid_branch")
		_, err = s.m.Provision(t.Context(), Request{Repo: s.remote, BaseBranch: name})
		wantReason(t, err, "invalid_base_branch")
	}
	_, err := s.m.Provision(t.Context(), Request{Repo: s.remote, BaseBranch: "gone"})
	wantReason(t, err, "invalid_base_branch")
	_, err = s.m.Provision(t.Context(), Request{Repo: s.remote, BranchName: "trunk"})
	wantReason(t, err, "branch_exists")
	if entries, _ := os.ReadDir(s.cfg.Base); len(entries) != 0 || exists(canary) {
		t.Errorf("left behind: %v; want len(entries) = 0, not exists(canary)", entries)
	}
	// Whatever an execution, a role and a slug say, a name comes out of it.
	w := s.provision(Request{Execution: "../../..", Role: "--force", Slug: "`touch x`; ../é"})
	if !strings.HasPrefix(w.Branch, "eliza/") || !strings.HasSuffix(w.Branch, "/force-touch-x") {
		t.Errorf(`branch %q; want w.Branch beginning with "eliza/", w.Branch ending with "/force-touch-x"`, w.Branch)
	}
	w2 := s.provision(Request{Parent: w.ID, Execution: w.Execution, Role: "force", Slug: "touch x"})
	if w2.Branch != w.Branch+"-2" {
		t.Errorf(`taken name: %q; want w2.Branch = w.Branch + "-2"`, w2.Branch)
	}
	for _, ref := range []string{"--output=" + canary, "-p", "no such thing", "HEAD..HEAD", strings.Repeat("a", 300)} {
		_, err := s.m.Diff(t.Context(), w.ID, ref)
		wantReason(t, err, "invalid_ref")
	}
	if exists(canary) {
		t.Error("something was executed")
	}
}

func TestHostileRepositoriesReachNoCommand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	program, canary := s.trap()
	for text, want := range map[string]string{
		"":                               "missing_repo",
		"ext::" + program:                "invalid_repo",
		"file://" + s.remote:             "invalid_repo",
		"--upload-pack=" + program:       "invalid_repo",
		"ssh://-oProxyCommand=touch x/a": "invalid_repo",
		s.dir + "/author":                "invalid_repo",
		s.remote + "/../../author":       "invalid_repo",
		"https://example.com/a/b":        "invalid_repo_domain",
		"http://github.com/a/b":          "invalid_repo",
	} {
		_, err := s.m.Provision(t.Context(), Request{Repo: text})
		wantReason(t, err, want)
	}
	if exists(canary) {
		t.Error("something was executed")
	}
}

// Everything that a repository, or the agent in it, can have git execute.
func TestNothingOfARepositoryIsExecuted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	program, canary := s.trap()
	s.write("author/.gitattributes", "*.txt filter=x diff=x merge=x\n")
	s.plain(s.dir+"/author", "add", ".")
	s.plain(s.dir+"/author", "commit", "-qm", "attributes")
	s.plain(s.dir+"/author", "push", "-q", "origin", "HEAD:trunk")
	w := s.provision(Request{})
	child := s.provision(Request{Parent: w.ID})
	for _, kv := range [][2]string{
		{"core.fsmonitor", program},
		{"core.sshCommand", program},
		{"core.hooksPath", filepath.Join(s.dir, "hooks")},
		{"core.editor", program},
		{"core.pager", program},
		{"filter.x.clean", program},
		{"filter.x.smudge", program},
		{"filter.x.process", program},
		{"diff.x.textconv", program},
		{"diff.x.command", program},
		{"diff.external", program},
		{"merge.x.driver", program},
		{"commit.gpgSign", "true"},
		{"gpg.program", program},
		{"credential.helper", program},
		{"alias.status", "!" + program},
		{"push.followTags", "true"},
	} {
		s.plain(w.Path, "config", kv[0], kv[1])
	}
	for _, hook := range []string{
		"pre-commit", "commit-msg", "post-commit", "pre-push", "post-checkout", "reference-transaction",
		"post-index-change",
	} {
		for _, dir := range []string{"hooks", w.Path + "/.git/hooks"} {
			s.write(dir+"/"+hook, "#!/bin/sh\ntouch "+canary+"\n")
			path := dir + "/" + hook
			if !filepath.IsAbs(path) {
				path = filepath.Join(s.dir, path)
			}
			if err := os.Chmod(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx := t.Context()
	git, err := gitcmd.New(gitcmd.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []Workspace{w, child} {
		s.write(one.Path+"/a.txt", one.ID+"\n")
		if _, err := Collect(ctx, git, one.Path, s.m.base); err != nil {
			t.Error(err)
		}
		if _, err := s.m.Diff(ctx, one.ID, ""); err != nil {
			t.Error(err)
		}
		if f, err := s.m.Finalize(ctx, one.ID, FinalizeRequest{Force: true}); err != nil || f.Pull == nil {
			t.Errorf("%+v, %v (%v); want no error, f.Pull not nil", f, err, errors.Unwrap(err))
		}
	}
	s.provision(Request{Parent: w.ID})
	if err := s.m.Remove(ctx, child.ID, false); err != nil {
		t.Error(err)
	}
	if exists(canary) {
		t.Error("the repository executed its program")
	}
	s.write(w.Path+"/a.txt", "again\n")
	s.plain(w.Path, "diff") // without this the traps might be blunt
	if !exists(canary) {
		t.Error("a plain git did not execute the trap")
	}
}

func TestAWorkspaceThatLeadsElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	configured := func(key, value string) func(*site, Workspace, Workspace) {
		return func(s *site, w, _ Workspace) { s.plain(w.Path, "config", "--add", key, value) }
	}
	replaced := func(with func(git, other string) error) func(*site, Workspace, Workspace) {
		return func(s *site, w, other Workspace) {
			git := filepath.Join(w.Path, ".git")
			if err := errors.Join(os.Rename(git, filepath.Join(s.dir, "kept")), with(git, filepath.Join(other.Path, ".git"))); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name   string
		tamper func(s *site, w, other Workspace)
		child  bool
	}{
		{"rewritten address", configured("url.https://example.com/.insteadOf", "/"), false},
		{"rewritten address for pushes", configured("url.https://example.com/.pushInsteadOf", "/"), false},
		{"another address", configured("remote.origin.pushurl", "https://example.com/a/b"), false},
		{"a second address", configured("remote.origin.url", "https://example.com/a/b"), false},
		{"no checks of TLS", configured("http.sslVerify", "false"), false},
		{"a proxy of the remote", configured("remote.origin.proxy", "http://127.0.0.1:1"), false},
		{"a mirror", configured("remote.origin.mirror", "true"), false},
		{"a proxy", configured("http.proxy", "http://127.0.0.1:1"), false},
		{"a program of the remote", configured("remote.origin.receivepack", "/bin/false"), false},
		{"an included file", func(s *site, w, _ Workspace) {
			s.write(w.Path+"/inc", "[url \"https://example.com/\"]\n\tinsteadOf = /\n")
			s.plain(w.Path, "config", "include.path", "../inc")
		}, false},
		{"a link to another git directory", replaced(func(git, other string) error { return os.Symlink(other, git) }), false},
		{
			"a file that names another", replaced(func(git, other string) error { return os.WriteFile(git, []byte("gitdir: "+other+"\n"), 0o600) }),
			false,
		},
		{"no git directory", replaced(func(string, string) error { return nil }), false},
		{"a worktree of another clone", replaced(func(git, other string) error {
			return os.WriteFile(git, []byte("gitdir: "+other+"\n"),
				0o600)
		}), true},
		{"a worktree that became a repository", replaced(func(git, _ string) error { return os.Mkdir(git, 0o700) }), true},
	}
	s := newSite(t)
	w, other := s.provision(Request{}), s.provision(Request{})
	child := s.provision(Request{Parent: w.ID})
	for _, one := range []Workspace{w, child} {
		s.write(one.Path+"/a.txt", "a\n")
		if _, err := s.m.Commit(t.Context(), one.ID, "work"); err != nil {
			t.Fatal(err)
		}
	}
	config, err := os.ReadFile(w.Path + "/.git/config")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			one := w
			if tt.child {
				one = child
			}
			kept, git := filepath.Join(s.dir, "kept"), one.Path+"/.git"
			defer func() { // as it was
				if exists(kept) {
					if err := errors.Join(os.RemoveAll(git), os.Rename(kept, git)); err != nil {
						t.Fatal(err)
					}
				}
				s.write(w.Path+"/.git/config", string(config))
			}()
			tt.tamper(s, one, other)
			wantReason(t, s.m.Push(t.Context(), one.ID, true), "security_violation")
			if _, err := s.m.Provision(t.Context(), Request{Parent: one.ID}); !tt.child && reason(err) != "security_violation" {
				t.Errorf(`a worktree of it: %v; want not (!tt.child && reason(err) != "security_violation")`, err)
			}
			if got := s.plain(s.remote, "for-each-ref", "refs/heads/"+one.Branch); got != "" {
				t.Errorf(`it was pushed: %s; want got = ""`, got)
			}
		})
	}
	if f, err := s.m.Finalize(t.Context(), w.ID, FinalizeRequest{}); err != nil || f.Pull == nil {
		t.Errorf("as it was, it works: %+v, %v; want no error, f.Pull not nil", f, err)
	}
}

func TestTheBaseMayBeALinkAndNothingElseMay(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(s *site) {
		real := filepath.Join(s.dir, "real")
		if err := errors.Join(os.Mkdir(real, 0o700), os.Symlink(real, s.cfg.Base)); err != nil {
			s.t.Fatal(err)
		}
	})
	w := s.provision(Request{})
	if w.Path != filepath.Join(s.dir, "real", w.ID) {
		t.Errorf(`path %q; want w.Path = filepath.Join(s.dir, "real", w.ID)`, w.Path)
	}
	child := s.provision(Request{Parent: w.ID})
	victim := filepath.Join(s.dir, "victim")
	s.write("victim/precious", "x")
	for _, one := range []Workspace{child, w} {
		if err := errors.Join(os.RemoveAll(one.Path), os.Symlink(victim, one.Path)); err != nil {
			t.Fatal(err)
		}
		if err := s.m.Remove(t.Context(), one.ID, false); reason(err) != "workspace_dirty" {
			t.Errorf(`what cannot be looked at was removed: %v; want reason(err) = "workspace_dirty"`, err)
		}
		if err := s.m.Remove(t.Context(), one.ID, true); err != nil {
			t.Error(err)
		}
		if exists(one.Path) || !exists(filepath.Join(victim, "precious")) {
			t.Error("it removed what the link led to, or left the link")
		}
	}
}

func TestSubmodulesPassTheSamePolicy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	program, canary := s.trap()
	s.plain(s.dir, "init", "-q", "--bare", "-b", "main", s.dir+"/remotes/part.git")
	s.plain(s.dir, "clone", "-q", s.dir+"/remotes/part.git", "part")
	s.write("part/part.txt", "part\n")
	s.plain(s.dir+"/part", "add", ".")
	s.plain(s.dir+"/part", "commit", "-qm", "part")
	s.plain(s.dir+"/part", "push", "-q", "origin", "HEAD:main")
	commit := s.plain(s.dir+"/part", "rev-parse", "HEAD")
	for path, url := range map[string]string{
		"lib/good": "../part.git", "lib/ext": "ext::" + program, "lib/outside": s.dir + "/part", "lib/host": "https://example.com/a/b",
	} {
		s.plain(s.dir+"/author", "config", "--file", ".gitmodules", "submodule."+path+".path", path)
		s.plain(s.dir+"/author", "config", "--file", ".gitmodules", "submodule."+path+".url", url)
		s.plain(s.dir+"/author", "config", "--file", ".gitmodules", "submodule."+path+".update", "checkout")
		s.plain(s.dir+"/author", "update-index", "--add", "--cacheinfo", "160000,"+commit+","+path)
	}
	s.plain(s.dir+"/author", "add", ".gitmodules")
	s.plain(s.dir+"/author", "commit", "-qm", "with submodules")
	s.plain(s.dir+"/author", "push", "-q", "origin", "HEAD:trunk")
	for _, req := range []Request{{}, {Parent: "first"}} {
		if req.Parent != "" {
			req.Parent = s.m.List()[0].ID
		}
		w := s.provision(req)
		if data, err := os.ReadFile(w.Path + "/lib/good/part.txt"); err != nil || string(data) != "part\n" {
			t.Errorf(`%q, %v; notes %v; want no error, string(data) = "part\n"`, data, err, w.Notes)
		}
		for _, bad := range []string{"ext", "outside", "host"} {
			if exists(w.Path + "/lib/" + bad + "/part.txt") {
				t.Errorf(`%s was fetched; want not exists(w.Path + "/lib/" + bad + "/part.txt")`, bad)
			}
		}
		if len(w.Notes) < 3 {
			t.Errorf("notes %v; want len(w.Notes) at least 3", w.Notes)
		}
		if st, err := s.m.Status(t.Context(), w.ID); err != nil || !st.Clean {
			t.Errorf("%+v, %v; want no error, st.Clean = true", st, err)
		}
	}
	if exists(canary) {
		t.Error("something was executed")
	}
}

func TestErrorsNameNoPathOfOurs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	w := s.provision(Request{})
	s.write(w.Path+"/.git/config", "[broken\n")
	_, err := s.m.Status(t.Context(), w.ID)
	if err == nil || strings.Contains(capability.AsError(err).Message, s.dir) {
		t.Errorf("%v; want an error, capability.AsError(err).Message without %v", err, s.dir)
	}
}
