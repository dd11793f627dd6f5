package lifecycle

import (
	"context"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/extension"
)

// View holds every extension with its package, as of one generation of the registry.
// It is immutable.
type View struct {
	Generation int64
	Extensions []Loaded // ordered by id
}

// Loaded is one extension. If its files cannot be read, Package is nil and Err is set;
// if it is not installed, both are nil.
type Loaded struct {
	Extension
	Package *extension.Package
	Err     error
}

// View returns the current view. It does not read the disk.
func (m *Manager) View() *View { return m.view.Load() }

// Find returns one extension of the view, ignoring case.
func (v *View) Find(id string) (*Loaded, bool) {
	for i := range v.Extensions {
		if strings.EqualFold(v.Extensions[i].ID, id) {
			return &v.Extensions[i], true
		}
	}
	return nil, false
}

// reload builds the view. It reads only packages whose tree hash has changed. The caller
// holds order.
func (m *Manager) reload(ctx context.Context) error {
	rows, err := m.cfg.Registry.All(ctx)
	if err != nil {
		return err
	}
	v := &View{Extensions: make([]Loaded, 0, len(rows))}
	if v.Generation, err = m.cfg.Registry.Generation(ctx); err != nil {
		return err
	}
	old := m.view.Load()
	for _, row := range rows {
		x := Loaded{Extension: row}
		if row.Status == Installed {
			if had, ok := find(old, row.ID); ok && had.Package != nil && had.TreeHash == row.TreeHash {
				x.Package = had.Package
			} else {
				x.Package, x.Err = m.read(row.ID)
			}
		}
		v.Extensions = append(v.Extensions, x)
	}
	m.view.Store(v)
	return nil
}

func find(v *View, id string) (*Loaded, bool) {
	if v == nil {
		return nil, false
	}
	return v.Find(id)
}

// changed reloads the view and calls Config.Changed. An error of the reload is logged,
// because the change is already stored; the next call tries again.
func (m *Manager) changed(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	m.order.Lock()
	defer m.order.Unlock()
	if err := m.reload(ctx); err != nil {
		m.cfg.Logger.Error("extensions not reloaded", "err", err)
	}
	if m.cfg.Changed != nil {
		m.cfg.Changed(ctx)
	}
}

// Batch returns a module for each readable extension, without providers, and diagnostics
// for the extensions and parts that are left out.
func (v *View) Batch() (capability.Batch, []string) {
	b := capability.Batch{Source: "extensions"}
	var diagnostics []string
	for i := range v.Extensions {
		x := &v.Extensions[i]
		if x.Package == nil {
			if x.Err != nil {
				diagnostics = append(diagnostics, x.ID+": "+x.Err.Error())
			}
			continue
		}
		declared, notes, err := x.Package.Extension(string(x.Status), x.Enabled, x.AgentVisible)
		for _, n := range notes {
			diagnostics = append(diagnostics, x.ID+": "+n)
		}
		if err != nil {
			diagnostics = append(diagnostics, x.ID+": "+err.Error())
			continue
		}
		module := declared.Module()
		module.Digest = "sha256:" + x.TreeHash // a new digest invalidates grants and approvals
		b.Modules = append(b.Modules, module)
	}
	return b, diagnostics
}
