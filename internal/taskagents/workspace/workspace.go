// Package workspace gives each task agent a working directory: a clone of a repository, a
// worktree beside those of other agents, or an empty folder. It publishes the work by commit,
// push and pull request.
//
// An agent may write anything into its folder, including the git directory, so its content is
// not trusted. All commands go through gitcmd, which executes nothing from the repository's
// configuration. Before a remote is contacted, the configuration is compared with our record,
// because a changed address would receive the work. Tokens are in a file outside the folder
// that only git's credential helper reads. Deletion uses our own names beneath one directory
// handle. Evidence of an agent's work consists of file names and git's answers; no file is
// opened and no link followed.
//
// Records are JSON files, one each, written beside the old one, synced and renamed, so that a
// crash never leaves a partial record. A record is written before what it describes is made
// and removed after it is gone; [Open] finishes what a crash interrupted.
package workspace

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/secret"
)

// Mode is the kind of a workspace.
type Mode string

// The modes. A Folder has no repository.
const (
	Clone    Mode = "clone"
	Worktree Mode = "worktree"
	Folder   Mode = "scratch"
	Checkout Mode = "checkout" // a worktree of a user's own repository, for a part of a task
)

// State is the state of a workspace. Only ready ones are returned to callers.
type State string

// The states.
const (
	Provisioning State = "provisioning"
	Ready        State = "ready"
	Removing     State = "removing"
)

// Workspace is the stored record of one workspace. Values are copies; only the Manager changes
// the stored one.
type Workspace struct {
	ID         string      `json:"id"`
	Mode       Mode        `json:"mode"`
	State      State       `json:"state"`
	Repo       forge.Repo  `json:"repo,omitzero"`
	Path       string      `json:"path"` // absolute, without links
	Branch     string      `json:"branch,omitempty"`
	BaseBranch string      `json:"baseBranch,omitempty"`
	BaseCommit string      `json:"baseCommit,omitempty"` // "" in a repository without commits
	Parent     string      `json:"parent,omitempty"`     // the clone that a worktree belongs to
	Label      string      `json:"label,omitempty"`
	Execution  string      `json:"execution,omitempty"` // of a Checkout: id of the task's thread
	Role       string      `json:"role,omitempty"`      // of a Checkout: id of the part
	Notes      []string    `json:"notes,omitempty"`     // parts that were left out, such as submodules
	Pull       *forge.Pull `json:"pull,omitempty"`
	Source     *Source     `json:"source,omitempty"` // of a Checkout: the user's checkout
	// Conflicts lists the files with conflicts that a merge of parts left in the branch.
	Conflicts []string `json:"conflicts,omitempty"`
	Merged    bool     `json:"merged,omitempty"`    // a Checkout's work is in the user's branch
	Published string   `json:"published,omitempty"` // commit of a Checkout that was pushed for the pull request
	// Setup has the results of the commands that prepared a Checkout.
	Setup []SetupStep `json:"setup,omitempty"`
	// OwnToken reports that the request had a token, which is stored for this workspace.
	OwnToken  bool      `json:"ownToken,omitempty"`
	Partial   bool      `json:"partial,omitempty"` // partial clone: files of old commits are fetched on demand
	CreatedAt time.Time `json:"createdAt"`
	UsedAt    time.Time `json:"usedAt"` // last change through the Manager
}

// root returns the key of the repository's lock: the id of the workspace that has the git
// directory, the parent's or its own, or a user's git directory.
func (w Workspace) root() string {
	if w.Source != nil {
		return w.Source.GitDir
	}
	if w.Parent != "" {
		return w.Parent
	}
	return w.ID
}

// Event is an event of a workspace: workspace_provisioned, workspace_finalized or
// workspace_removed.
type Event struct {
	Name      string
	Workspace Workspace
}

// Config configures a Manager. Base and State are required.
type Config struct {
	// Base is the folder of the workspaces and contains nothing else. State is the folder of
	// records and credentials, outside of Base. Both are created if needed.
	Base, State string
	// GitPath is the path of git; "" means git on PATH.
	GitPath string
	// Policy decides which repositories may be used.
	Policy forge.Policy
	// Forge returns the host of a repository's pull requests, or nil if it has none. If Forge
	// is nil, no repository has one.
	Forge func(forge.Repo) forge.Host
	// Token returns the credential for repositories of requests without token; an empty value
	// means anonymous access. If nil, access is anonymous.
	Token func(context.Context, forge.Repo) (secret.Value, error)
	// BranchPrefix is the first part of branch names; "" means eliza.
	BranchPrefix string
	// AuthorName and AuthorEmail are the author of commits; "" means Workspace Agent and an
	// address without mailbox.
	AuthorName, AuthorEmail string
	// Box runs the commands of setups. If nil, setups with commands fail.
	Box Box
	// TTL is the time after which GC removes an unused workspace; 0 means 24 h.
	TTL time.Duration
	// New workspaces are refused if the disk has fewer than MinFree free bytes (0 means 2 GiB)
	// or Base holds more than MaxBytes (0 means no limit).
	MinFree, MaxBytes int64
	// PartialAbove is the size in bytes, as reported by the forge, above which repositories
	// are cloned without the files of old commits; 0 means 1 GiB, negative never.
	PartialAbove int64
	// FreeSpace returns the free bytes for dir; nil reads them from the file system.
	FreeSpace func(dir string) (int64, error)
	// Now returns the time; nil means time.Now.
	Now func() time.Time
	// OnEvent receives every event; it must not block. May be nil.
	OnEvent func(Event)
}

func (c *Config) defaults() {
	if c.BranchPrefix == "" {
		c.BranchPrefix = "eliza"
	}
	if c.AuthorName == "" {
		c.AuthorName = "Workspace Agent"
	}
	if c.AuthorEmail == "" {
		c.AuthorEmail = "workspace-agent@noreply.invalid"
	}
	if c.TTL <= 0 {
		c.TTL = 24 * time.Hour
	}
	if c.MinFree == 0 {
		c.MinFree = 2 << 30
	}
	if c.PartialAbove == 0 {
		c.PartialAbove = 1 << 30
	}
	if c.FreeSpace == nil {
		c.FreeSpace = hostfs.Free
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnEvent == nil {
		c.OnEvent = func(Event) {}
	}
	if c.Forge == nil {
		c.Forge = func(forge.Repo) forge.Host { return nil }
	}
	if c.Token == nil {
		c.Token = func(context.Context, forge.Repo) (secret.Value, error) { return secret.Value{}, nil }
	}
}

// Manager creates, stores and removes workspaces. It is safe for concurrent use. A Base must
// have only one Manager.
type Manager struct {
	cfg     Config
	base    string // real
	state   string
	dir     *os.Root // base
	git     *gitcmd.Git
	network *gitcmd.Git
	local   *gitcmd.Git // for remotes in local folders
	records *RecordFolder[Workspace]
	locks   locks

	mu  sync.Mutex
	all map[string]Workspace
}

var (
	idForm      = regexp.MustCompile(`^ws-[0-9a-f]{16}$`)
	prefixForm  = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)
	largeOutput = 32 << 20
)

// Open reads the records and removes workspaces whose creation or removal a crash interrupted;
// failures of that are left to GC. The caller closes the manager. Errors: unavailable if git
// is missing or too old; invalid_input for an invalid configuration.
func Open(ctx context.Context, cfg Config) (*Manager, error) {
	cfg.defaults()
	if !prefixForm.MatchString(cfg.BranchPrefix) || strings.ContainsAny(cfg.AuthorName+cfg.AuthorEmail, "<>\n\x00") {
		return nil, capability.Errorf(capability.CodeInvalidInput, "workspace.open", "the branch prefix or the author cannot be used").
			With("invalid_configuration", "use lower-case letters, digits and hyphens for the prefix, no angle brackets for the author")
	}
	m := &Manager{cfg: cfg, state: cfg.State}
	protocols := []string{"https", "ssh"}
	for _, p := range cfg.Policy.OperatorPrefixes {
		if strings.HasPrefix(p, "http://") {
			protocols = append(protocols, "http")
			break
		}
	}
	var err error
	if m.git, err = gitcmd.New(gitcmd.Config{Path: cfg.GitPath, StdoutLimit: largeOutput}); err != nil {
		return nil, err
	}
	if m.network, err = gitcmd.New(gitcmd.Config{Path: cfg.GitPath, Protocols: protocols}); err != nil {
		return nil, err
	}
	if m.local, err = gitcmd.New(gitcmd.Config{Path: cfg.GitPath, LocalRemotes: true}); err != nil {
		return nil, err
	}
	if _, err := m.git.Version(ctx); err != nil {
		return nil, err
	}
	for _, dir := range []string{cfg.Base, filepath.Join(cfg.State, "credentials")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("folder of workspaces: %w", err)
		}
	}
	if m.base, err = filepath.EvalSymlinks(cfg.Base); err == nil {
		m.base, err = filepath.Abs(m.base)
	}
	if err == nil {
		m.state, err = filepath.Abs(cfg.State)
	}
	if err != nil {
		return nil, fmt.Errorf("folder of workspaces: %w", err)
	}
	if m.records, m.all, _, err = OpenRecords[Workspace](filepath.Join(cfg.State, "records")); err != nil {
		return nil, err
	}
	if m.dir, err = os.OpenRoot(m.base); err != nil {
		return nil, fmt.Errorf("folder of workspaces: %w", err)
	}
	for _, w := range m.snapshot() {
		if w.State != Ready {
			_ = m.discard(ctx, w) // a failure here must not prevent the start; GC tries again
		}
	}
	return m, nil
}

// Close closes the base folder; the manager is unusable afterwards.
func (m *Manager) Close() error { return m.dir.Close() }

func newID() string { return ids.Hex("ws-", 8) }

// Get returns a ready workspace by its id. Error: not_found, reason
// workspace_not_found.
func (m *Manager) Get(id string) (Workspace, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w, ok := m.all[id]; ok && w.State == Ready {
		return w, nil
	}
	return Workspace{}, capability.Errorf(capability.CodeNotFound, "workspace.get", "there is no workspace %.100q", id).
		With("workspace_not_found", "list them with: junctor workspaces list")
}

// Resolve returns the newest ready workspace with a label, otherwise the one with that id. It
// fails like Get.
func (m *Manager) Resolve(labelOrID string) (Workspace, error) {
	for _, w := range m.List() {
		if labelOrID != "" && w.Label == labelOrID {
			return w, nil
		}
	}
	return m.Get(labelOrID)
}

// List returns all ready workspaces, the newest first.
func (m *Manager) List() []Workspace {
	return slices.DeleteFunc(m.snapshot(), func(w Workspace) bool { return w.State != Ready })
}

// CloneOf returns the root of the cloned repository that a folder is in, or "". It is "" for a worktree of a user's
// checkout. The path is absolute, without links.
func (m *Manager) CloneOf(dir string) string {
	for _, w := range m.snapshot() {
		if w.Source == nil && (w.Repo.URL != "" || w.Parent != "") && (dir == w.Path || strings.HasPrefix(dir, w.Path+"/")) {
			return w.Path
		}
	}
	return ""
}

func (m *Manager) snapshot() []Workspace {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Workspace, 0, len(m.all))
	for _, w := range m.all {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b Workspace) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return out
}

// update calls change with the record of a ready workspace, sets UsedAt to now and stores it. It
// fails with not_found, reason workspace_not_found.
func (m *Manager) update(id string, change func(*Workspace)) (Workspace, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, ok := m.all[id]
	if !ok || w.State != Ready {
		return w, capability.Errorf(capability.CodeNotFound, "workspace.get", "there is no such workspace").With("workspace_not_found",
			"list them with: junctor workspaces list")
	}
	change(&w)
	w.UsedAt = m.cfg.Now().UTC()
	return w, m.putLocked(w)
}

func (m *Manager) put(w Workspace) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.putLocked(w)
}

func (m *Manager) putLocked(w Workspace) error {
	if err := m.records.Put(w.ID, w); err != nil {
		return capability.Wrap(capability.CodeFailed, "workspace.record", "the workspace's record could not be written", err).With("no_space",
			"look at the disk")
	}
	m.all[w.ID] = w
	return nil
}

// locks holds one lock for each repository, because its worktrees share refs, configuration and
// the list of worktrees.
type locks struct {
	mu sync.Mutex
	m  map[string]*lock
}

type lock struct {
	held  chan struct{} // full while the lock is held
	users int
}

// take acquires the lock of a repository and returns the function that releases it. It fails
// with ctx's error.
func (l *locks) take(ctx context.Context, key string) (func(), error) {
	l.mu.Lock()
	if l.m == nil {
		l.m = make(map[string]*lock)
	}
	one := l.m[key]
	if one == nil {
		one = &lock{held: make(chan struct{}, 1)}
		l.m[key] = one
	}
	one.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.m, key)
		}
	}
	select {
	case one.held <- struct{}{}:
		return func() { <-one.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, capability.AsError(ctx.Err())
	}
}
