package server

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/local/files"
	"github.com/junctor-run/junctor/internal/local/gitops"
	"github.com/junctor-run/junctor/internal/local/terminal"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/roots"
)

// openHost carries what this machine can do itself. A new executor is one line
// here.
func (s *Server) openHost() (*host.Host, error) {
	list := make([]roots.Root, len(s.cfg.FS.Roots))
	for i, r := range s.cfg.FS.Roots {
		list[i] = roots.Root{ID: r.ID, Path: r.Path, ReadOnly: r.ReadOnly}
	}
	var err error
	if s.roots, err = roots.Open(list); err != nil {
		return nil, err
	}
	if s.git, err = gitcmd.New(gitcmd.Config{}); err != nil {
		s.git = nil // no git on this machine: its functions say so
	}
	h := host.New(host.Config{})
	var functions []host.Function
	functions = append(functions, files.Functions(files.Config{Roots: s.roots})...)
	functions = append(functions, gitops.Functions(gitops.Config{Roots: s.roots, Git: s.git})...)
	functions = append(functions, terminal.Functions(terminal.Config{Enabled: s.cfg.PTY.Enabled, Roots: s.roots})...)
	return h, h.Register(functions...)
}

func (s *Server) checkGit(ctx context.Context) httpapi.Check {
	c := httpapi.Check{Name: "git", OK: true}
	if s.git == nil {
		c.Detail = "not installed, so git.* is unavailable on this machine; that is fine if you do not want it"
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	version, err := s.git.Version(ctx)
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, capability.AsError(err).Message, "install git "+gitcmd.MinVersion+" or newer"
		return c
	}
	c.Detail = "version " + version
	return c
}
