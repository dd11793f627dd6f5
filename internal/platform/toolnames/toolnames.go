// Package toolnames stores how the tools of MCP servers are named in one home, and the names that
// they had before that changed.
package toolnames

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

const (
	// formerTTL is how long a former name still reaches its tool.
	formerTTL = 30 * 24 * time.Hour
	maxFormer = 10_000
	maxFile   = 8 << 20
)

// state is the content of the file.
type state struct {
	// Upstreams is the setting in force when the server ran last.
	Upstreams string               `json:"upstreams"`
	Former    []catalog.FormerName `json:"former,omitempty"`
	// OwnTools is exposure.own unless catalog.yaml has it. Homes from before the setting have none,
	// and go on listing the tools.
	OwnTools string `json:"own_tools,omitempty"`
}

// Config holds the dependencies of Names.
type Config struct {
	Path   string // of the file
	Fresh  bool   // the home was created by this start, so that no client uses other names
	Log    *audit.Log
	Logger *slog.Logger
	Now    func() time.Time
}

// Names is the naming of one home. It is safe for concurrent use.
type Names struct {
	cfg Config

	mu      sync.Mutex
	state   state
	fixed   bool // catalog.yaml has the setting
	catalog *catalog.Catalog
	apply   func(catalog.Settings) error
}

// Open reads the file. If it does not exist, tools of a fresh home are always named with their server,
// and those of others only if needed, as before the setting existed.
func Open(cfg Config) (*Names, error) {
	n := &Names{cfg: cfg}
	info, err := os.Stat(cfg.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		n.state.Upstreams = catalog.NamesNeeded
		if cfg.Fresh {
			n.state.Upstreams, n.state.OwnTools = catalog.NamesAlways, catalog.OwnHidden
		}
		return n, n.save(n.state)
	case err == nil && info.Size() > maxFile:
		err = errors.New("it is too large")
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(cfg.Path)
	}
	if err == nil {
		err = json.Unmarshal(data, &n.state)
	}
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "naming", cfg.Path+" cannot be read", err).
			With("invalid_settings", "remove the file; former names of tools are then unknown")
	}
	return n, nil
}

func (n *Names) save(s state) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := hostfs.WriteFile(n.cfg.Path, append(data, '\n')); err != nil {
		return capability.Wrap(capability.CodeFailed, "naming", n.cfg.Path+" cannot be written", err)
	}
	return nil
}

// Complete adds the setting, unless catalog.yaml has it, and the former names to the settings of a
// catalog that is created with them.
func (n *Names) Complete(set *catalog.Settings) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fixed = set.Naming.Upstreams != ""; !n.fixed {
		set.Naming.Upstreams = n.state.Upstreams
	}
	if set.Exposure.OwnTools == "" {
		set.Exposure.OwnTools = n.state.OwnTools
	}
	set.Naming.Former = slices.Clone(n.state.Former)
}

// Use sets the catalog that was created with the completed settings, and what applies others to it.
func (n *Names) Use(c *catalog.Catalog, apply func(catalog.Settings) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.catalog, n.apply = c, apply
}

// Settle records the former names after a start whose catalog.yaml changed the setting. The sources
// have published their tools before.
func (n *Names) Settle(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	set := *n.catalog.Snapshot().Settings()
	if set.Naming.Upstreams == n.state.Upstreams {
		return
	}
	before := set
	before.Naming.Upstreams = n.state.Upstreams
	if _, err := n.change(ctx, capability.Principal{}, &before, set); err != nil {
		n.cfg.Logger.Error("the former names of tools were not stored", "err", err)
	}
}

// Naming describes the naming of a home.
type Naming struct {
	Upstreams string `json:"upstreams"`
	// Fixed is true if catalog.yaml has the setting.
	Fixed  bool                 `json:"fixed"`
	Former []catalog.FormerName `json:"former"` // those that still reach their tools
}

// Get returns the naming in force.
func (n *Names) Get() Naming {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Naming{
		Upstreams: n.catalog.Snapshot().Settings().Naming.Upstreams, Fixed: n.fixed, Former: append([]catalog.FormerName{}, n.valid()...),
	}
}

// valid returns the former names whose time has not passed. The caller holds mu.
func (n *Names) valid() (list []catalog.FormerName) {
	now := n.cfg.Now()
	for _, f := range n.state.Former {
		if f.Until.After(now) {
			list = append(list, f)
		}
	}
	return list
}

// Changed is the result of a change of the naming.
type Changed struct {
	Upstreams string           `json:"upstreams"`
	Renames   []compile.Rename `json:"renames"`
	Until     time.Time        `json:"until"` // the old names reach the tools until then
}

// Change changes whether names begin with the name of the server, for all tools of MCP servers. With
// dry it only returns the renames. Errors: invalid_input; conflict, reason naming_fixed, if
// catalog.yaml has the setting.
func (n *Names) Change(ctx context.Context, by capability.Principal, to string, dry bool) (Changed, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if to != catalog.NamesAlways && to != catalog.NamesNeeded {
		return Changed{}, capability.Errorf(capability.CodeInvalidInput, "naming", "%.40q is not a way of naming: %s or %s", to,
			catalog.NamesAlways, catalog.NamesNeeded)
	}
	before := *n.catalog.Snapshot().Settings()
	after := before
	after.Naming.Upstreams = to
	if dry {
		return n.changed(compile.Renames(n.catalog.Snapshot(), &before, &after), to), nil
	}
	if n.fixed {
		return Changed{}, capability.Errorf(capability.CodeConflict, "naming", "naming.upstreams is set in catalog.yaml").
			With("naming_fixed", "change it there and start the server again; --dry-run shows the names that change")
	}
	return n.change(ctx, by, &before, after)
}

func (n *Names) changed(renames []compile.Rename, to string) Changed {
	until := n.cfg.Now().UTC().Add(formerTTL).Truncate(time.Second)
	return Changed{Upstreams: to, Renames: append([]compile.Rename{}, renames...), Until: until}
}

// change stores the renames between two settings and configures the catalog with the second. The
// caller holds mu.
func (n *Names) change(ctx context.Context, by capability.Principal, before *catalog.Settings, after catalog.Settings) (Changed, error) {
	out := n.changed(compile.Renames(n.catalog.Snapshot(), before, &after), after.Naming.Upstreams)
	next := state{Upstreams: after.Naming.Upstreams, Former: n.valid(), OwnTools: n.state.OwnTools}
	for _, r := range out.Renames {
		// The name that a tool has again is not a former one.
		next.Former = slices.DeleteFunc(next.Former, func(f catalog.FormerName) bool {
			return f.Action == r.Action && (f.Name == r.New || f.Name == r.Old)
		})
		next.Former = append(next.Former, catalog.FormerName{Name: r.Old, Action: r.Action, Definition: r.Definition, Until: out.Until})
	}
	next.Former = next.Former[max(0, len(next.Former)-maxFormer):]
	after.Naming.Former = slices.Clone(next.Former)
	if err := n.save(next); err != nil {
		return Changed{}, err
	}
	if err := n.apply(after); err != nil {
		return Changed{}, err
	}
	n.state = next
	n.cfg.Logger.Info("names of tools changed", "upstreams", out.Upstreams, "renames", len(out.Renames))
	if n.cfg.Log == nil {
		return out, nil
	}
	_, err := n.cfg.Log.Append(context.WithoutCancel(ctx), audit.Record{
		Event: audit.CapabilityNameDisambiguated, Logger: "catalog", User: by.ID, Success: audit.OutcomeSuccess,
		Metadata: audit.Metadata{
			Principal: audit.Principal{ID: by.ID, Role: by.Role}, Attrs: []audit.Attr{{Key: "upstreams", Value: out.Upstreams}},
		},
	}, audit.Synced)
	return out, err
}
