package workspace

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/gitcmd"
)

// nest makes a repository in a folder of a workspace whose filter leaves the canary, with one commit, and
// changes its file.
func (s *site) nest(w Workspace, name, program string) {
	s.t.Helper()
	dir := filepath.Join(w.Path, name)
	s.plain(w.Path, "init", "-q", name)
	s.write(dir+"/g.txt", "one\n")
	s.plain(dir, "add", "g.txt")
	s.plain(dir, "commit", "-qm", "nested")
	s.plain(dir, "config", "filter.nested.clean", program)
	s.write(dir+"/.git/info/attributes", "* filter=nested\n")
	s.write(dir+"/g.txt", "two\n") // with the same size, git has to read it
}

// A repository within the workspace, which an agent can make by writing files, has a configuration of its own.
func TestARepositoryWithinTheWorkspaceRunsNothing(t *testing.T) {
	t.Parallel()
	for name, gitmodules := range map[string]string{
		"not named in .gitmodules": "",
		"named":                    "[submodule \"n\"]\n\tpath = n\n\turl = ./n\n\tignore = none\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			program, canary := s.trap()
			w := s.provision(Request{})
			s.nest(w, "n", program)
			if gitmodules != "" {
				s.write(w.Path+"/.gitmodules", gitmodules)
			}
			s.plain(w.Path, "-c", "advice.addEmbeddedRepo=false", "add", "n")
			if err := os.Remove(canary); err != nil && !os.IsNotExist(err) {
				t.Fatalf("Remove = %v, want no error", err)
			}
			git, err := gitcmd.New(gitcmd.Config{})
			if err != nil {
				t.Fatalf("New = %v, want no error", err)
			}
			for i, step := range []func() error{
				func() error { _, err := s.m.Status(t.Context(), w.ID); return err },
				func() error { _, err := s.m.Diff(t.Context(), w.ID, ""); return err },
				func() error { _, err := Collect(t.Context(), git, w.Path, s.m.base); return err },
				func() error { _, err := s.m.Commit(t.Context(), w.ID, "first"); return err },
				func() error { s.write(w.Path+"/n/g.txt", "six\n"); return nil },
				func() error { s.write(w.Path+"/b.txt", "b\n"); return nil },
				func() error { _, err := s.m.Finalize(t.Context(), w.ID, FinalizeRequest{Force: true}); return err },
				func() error { return s.m.Remove(t.Context(), w.ID, true) },
			} {
				if err := step(); err != nil {
					t.Errorf("step %d = %v, want no error", i, err)
				}
				if exists(canary) {
					t.Fatalf("step %d ran the program of the repository within", i)
				}
			}
		})
	}
}
