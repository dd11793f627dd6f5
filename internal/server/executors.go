package server

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/local"
	"github.com/junctor-run/junctor/internal/local/files"
	"github.com/junctor-run/junctor/internal/local/gitops"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/roots"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// machine holds the executors of this machine's own functions.
type machine struct {
	local *host.Host
	roots *roots.Set
	git   *gitcmd.Git // nil without the program
	walls *sandbox.Box
}

// openHost registers the functions of this machine. A new executor is one line here.
func (m *machine) openHost(cfg config.Config) (err error) {
	list := make([]roots.Root, len(cfg.FS.Roots))
	for i, r := range cfg.FS.Roots {
		list[i] = roots.Root{ID: r.ID, Path: r.Path, ReadOnly: r.ReadOnly}
	}
	if m.roots, err = roots.Open(list); err != nil {
		return err
	}
	m.walls = sandbox.New(sandbox.Config{ReadOnly: cfg.Sandbox.ReadOnly, Off: sandbox.Without(cfg.Sandbox.Off), Spares: 2})
	if m.git, err = gitcmd.New(gitcmd.Config{Walls: m.walls, Unconfined: cfg.FS.GitUnconfined}); err != nil {
		m.git = nil // git is not installed; its functions report that
	}
	m.local = host.New(host.Config{})
	var functions []host.Function
	functions = append(functions, files.Functions(files.Config{Roots: m.roots})...)
	functions = append(functions, gitops.Functions(gitops.Config{Roots: m.roots, Git: m.git})...)
	functions = append(functions, local.CommandFunctions(local.CommandConfig{Enabled: cfg.PTY.Enabled, Roots: m.roots})...)
	return m.local.Register(functions...)
}

func (m *machine) checkGit(ctx context.Context) httpapi.Check {
	c := httpapi.Check{Name: "git", OK: true}
	if m.git == nil {
		c.Detail = "not installed, so git.* is unavailable on this machine; that is fine if you do not want it"
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	version, err := m.git.Version(ctx)
	if err != nil {
		c.OK, c.Detail, c.Remedy = false, capability.AsError(err).Message, "install git "+gitcmd.MinVersion+" or newer"
		return c
	}
	c.Detail = "version " + version
	if tier := m.walls.Facts().Tier; tier < sandbox.T2 && !m.roots.Empty() {
		c.Detail += ", which cannot be confined at tier " + tier.String() + ": git.command.run only reads, unless fs.git_unconfined is set"
	}
	return c
}
