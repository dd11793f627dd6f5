package taskagents

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge/githubforge"
	"github.com/junctor-run/junctor/secret"
)

// workspaces manages the folders that agents work in: clones and worktrees of repositories,
// and empty scratch folders. Without git there are only scratch folders.
type workspaces struct {
	*workspace.Manager
	missing error // why Manager is nil, or nil
	scratch *workspace.ScratchKeeper
	git     *gitcmd.Git // nil if git is not installed
	log     func(what string, err error)
}

// cloneOf returns the root of the cloned repository that a folder is in, or "".
func (w *workspaces) cloneOf(dir string) string {
	if w.Manager == nil {
		return ""
	}
	return w.CloneOf(dir)
}

// openWorkspaces sets s.folders and opens the folders that earlier processes created. If git
// is missing or the repositories cannot be opened, it logs that and succeeds.
func (s *Service) openWorkspaces(ctx context.Context) error {
	base, state := s.path("workspaces"), s.path("agents")
	keeper, err := workspace.OpenScratch(s.scratchConfig(base, state))
	if err != nil {
		return err
	}
	w := &workspaces{scratch: keeper, log: func(what string, err error) { s.logger.Error(what, "err", err) }}
	s.folders = w
	git, err := gitcmd.New(gitcmd.Config{})
	if err != nil {
		w.missing = err
		s.logger.Warn("there are no workspaces of repositories", "err", err)
		return nil
	}
	w.git = git
	bare := &forge.BareHost{Git: git}
	kinds := kindsOf(s.cfg.Agents.Forges)
	clones, records := filepath.Join(base, "repositories"), filepath.Join(state, "workspaces")
	if own := s.cfg.Agents.WorkspaceBase; own != "" {
		clones, records = own, ofFolder(records, own)
	}
	w.Manager, w.missing = workspace.Open(ctx, workspace.Config{
		Base: clones, State: records, BranchPrefix: s.cfg.Agents.BranchPrefix, TTL: s.cfg.Agents.WorkspaceTTL,
		Policy: forge.Policy{Hosts: slices.Collect(maps.Keys(kinds)), OperatorPrefixes: s.cfg.Agents.Repositories},
		Forge: func(r forge.Repo) forge.Host {
			if r.Dir != "" {
				return bare
			}
			return hostOf(r, kinds[r.Host])
		},
		Token: func(_ context.Context, r forge.Repo) (secret.Value, error) {
			if r.Host == githubHost {
				return s.githubToken()
			}
			stored, err := s.cfg.Secrets.Get(tokenOf(r.Host))
			if capability.CodeOf(err) == capability.CodeNotFound {
				return secret.Value{}, nil
			}
			return stored, err
		},
		OnEvent: s.workspaceChanged, Box: sandbox.NewForHome(s.cfg.Home, s.cfg.Walls.ReadOnly, s.cfg.Walls.Off),
	})
	if w.missing != nil {
		s.logger.Warn("there are no workspaces of repositories", "err", w.missing)
	}
	return nil
}

const githubHost = "github.com"

// tokenOf returns the name of the secret with the token of a host.
func tokenOf(host string) string {
	return "forge." + strings.NewReplacer(":", "_", "[", "", "]", "").Replace(host)
}

// kindsOf returns the kinds of the forges of agents.forges, each HOST or HOST=KIND, and of those that
// are known, by host.
func kindsOf(list []string) map[string]forge.Kind {
	kinds := map[string]forge.Kind{githubHost: forge.GitHub, "gitlab.com": forge.GitLab}
	for _, entry := range list {
		host, kind, _ := strings.Cut(entry, "=")
		kinds[strings.ToLower(strings.TrimSpace(host))] = forge.Kind(strings.ToLower(strings.TrimSpace(kind)))
	}
	return kinds
}

// hostOf returns the forge of a repository, or nil if its kind is not known.
func hostOf(r forge.Repo, kind forge.Kind) forge.Host {
	base := "https://" + r.Host
	if strings.HasPrefix(r.URL, "http://") { // of agents.repositories
		base = "http://" + r.Host
	}
	switch kind {
	case forge.GitHub:
		if r.Host == githubHost {
			return githubforge.New(githubforge.Config{})
		}
		return githubforge.New(githubforge.Config{Base: base + "/api/v3"})
	case forge.GitLab, forge.Forgejo:
		return &forge.RESTHost{Kind: kind, Base: base}
	}
	return nil
}

// workspaceChanged writes an event of a workspace to the audit log and the live feed.
func (s *Service) workspaceChanged(e workspace.Event) {
	rec := audit.Record{
		Logger: "workspace", Event: audit.Event(e.Name),
		Metadata: audit.Metadata{WorkDir: e.Workspace.Path, Attrs: []audit.Attr{
			{Key: "workspace", Value: e.Workspace.ID},
			{Key: "repo", Value: e.Workspace.Repo.URL},
			{Key: "branch", Value: e.Workspace.Branch},
		}},
	}
	if _, err := s.cfg.Log.Append(context.Background(), rec, audit.Buffered); err != nil {
		s.logger.Error("audit record not written", "event", e.Name, "err", err)
	}
	s.cfg.Publish("agent."+e.Name, map[string]any{"workspace_id": e.Workspace.ID})
}

// run removes expired scratch folders and workspaces at once and then each hour, until ctx
// ends. Workspaces of live sessions stay.
func (w *workspaces) run(ctx context.Context, a *agents.Agents) error {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		if _, err := w.scratch.Sweep(); err != nil {
			w.log("folders of sessions whose time has come are still there", err)
		}
		if w.missing == nil {
			used := map[string]bool{}
			for _, i := range a.List() {
				if i.Live() {
					used[i.Workdir] = true
				}
			}
			if _, err := w.GC(ctx, func(ws workspace.Workspace) bool { return used[ws.Path] }); err != nil && ctx.Err() == nil {
				w.log("old workspaces are still there", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *workspaces) close() error {
	if w == nil {
		return nil
	}
	err := w.scratch.Close()
	if w.missing == nil {
		err = errors.Join(err, w.Close())
	}
	return err
}

// checkouts returns the access to users' repositories.
func (w *workspaces) checkouts() (launch.Checkouts, error) {
	if w.missing != nil {
		return nil, w.missing
	}
	return w.Manager, nil
}

// consents implements launch.Consents. An agreement is "digest repository" in a list, the oldest
// first.
type consents struct {
	store   choice.Store
	records agentRecords
}

func (c consents) list(ctx context.Context) (list []string, err error) {
	data, err := c.store.Load(ctx)
	if err == nil && len(data) > 0 {
		err = jsonx.Unmarshal(data, &list)
	}
	return list, err
}

// Given implements launch.Consents.
func (c consents) Given(ctx context.Context, repository, digest string) (bool, error) {
	list, err := c.list(ctx)
	return slices.Contains(list, digest+" "+repository), err
}

// Give implements launch.Consents, and writes the agreement to the audit log.
func (c consents) Give(ctx context.Context, by capability.Principal, repository, digest string) error {
	list, err := c.list(ctx)
	if err != nil {
		return err
	}
	list = append(list, digest+" "+repository)
	data, err := jsonx.Marshal(list[max(0, len(list)-maxConsents):])
	if err != nil {
		return err
	}
	if err := c.store.Save(ctx, data); err != nil {
		return err
	}
	c.records.append(ctx, audit.Record{
		Logger: "agents", Event: audit.ConfigChanged, User: by.ID, Success: audit.OutcomeSuccess,
		Metadata: audit.Metadata{WorkDir: repository, Attrs: []audit.Attr{{Key: "setup", Value: digest}}},
	}, audit.Synced)
	return nil
}
