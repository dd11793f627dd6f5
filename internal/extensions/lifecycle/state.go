package lifecycle

import (
	"context"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/extension"
)

// tier returns the sandbox tier that an extension needs: T3 if it came from a URL and
// runs programs, else T2.
func (m *Manager) tier(x *Extension) string {
	if x.SourceURL != "" && slices.Contains(x.Permissions, "exec") {
		return "T3"
	}
	return "T2"
}

func givenOf(x *Extension) (g extension.Consent, ok bool) {
	if x == nil || len(x.Consent) == 0 {
		return g, false
	}
	return g, jsonx.Unmarshal(x.Consent, &g) == nil
}

// Screen returns what the operator must agree to before the extension may run.
// agentVisible are the actions to show to agents, "all" or <command>.<action>; nil keeps
// the earlier choice. An unknown action is invalid_input.
func (m *Manager) Screen(ctx context.Context, id string, agentVisible []string) (extension.Screen, error) {
	row, err := m.cfg.Registry.Get(ctx, id)
	if err != nil {
		return extension.Screen{}, err
	}
	pkg, err := m.installed(ctx, &row)
	if err != nil {
		return extension.Screen{}, err
	}
	return m.screen(&row, pkg, agentVisible)
}

func (m *Manager) screen(row *Extension, pkg *extension.Package, agentVisible []string) (extension.Screen, error) {
	if agentVisible == nil {
		agentVisible = row.AgentVisible
	}
	for _, name := range agentVisible {
		if name != "all" && !pkg.HasAction(name) {
			return extension.Screen{}, capability.Errorf(capability.CodeInvalidInput, "extensions.enable", "%s has no action %.100q", row.ID, name).
				With("unknown_action", "write command.action, such as "+first(pkg.AgentActions([]string{"all"}))+", or all")
		}
	}
	s := extension.NewScreen(pkg, row.TreeHash, source(row), m.tier(row), agentVisible)
	if given, had := givenOf(row); had {
		s.More = given.Beyond(&s)
	}
	return s, nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// installed returns an installed, intact package. Errors: conflict (not installed) and
// those of intact, which are recorded in the audit log.
func (m *Manager) installed(ctx context.Context, row *Extension) (*extension.Package, error) {
	if row.Status != Installed {
		return nil, capability.Errorf(capability.CodeConflict, "extensions", "%s is not installed: its state is %s", row.ID,
			row.Status).With(ReasonState, "install it again")
	}
	if err := m.intact(ctx, row); err != nil {
		if capability.AsError(err).Reason == ReasonChanged {
			m.record(ctx, audit.Record{
				Event: audit.SecurityViolation, Extension: row.ID, Success: audit.OutcomeFailure, Error: err.Error(),
				Metadata: audit.Metadata{Reason: ReasonChanged},
			}, audit.Synced)
		}
		return nil, err
	}
	return m.read(row.ID)
}

// Answer is the operator's consent to a screen.
type Answer struct {
	// TreeHash is that of the shown screen; "" if the operator has not consented.
	TreeHash string
	// AgentVisible are the actions to show to agents, as for Screen; nil keeps the earlier choice.
	AgentVisible []string
}

// Enable enables an extension. Errors: approval_required, with the screen as detail
// "screen", if the operator has not consented to it now or before; conflict, if it is
// not installed, being changed, or the consent is for another version; denied, if its
// files were changed; and those of Config.Tier, if the sandbox is too weak.
func (m *Manager) Enable(ctx context.Context, by capability.Principal, id string, a Answer) (Extension, error) {
	row, release, err := m.hold(ctx, id)
	if err != nil {
		return row, err
	}
	defer release()
	pkg, err := m.installed(ctx, &row)
	if err != nil {
		return row, err
	}
	if err := m.cfg.Tier(m.tier(&row)); err != nil {
		return row, err
	}
	screen, err := m.screen(&row, pkg, a.AgentVisible)
	if err != nil {
		return row, err
	}
	given, had := givenOf(&row)
	covered := had && given.TreeHash == row.TreeHash && len(screen.More) == 0
	switch {
	case a.TreeHash != "" && a.TreeHash != row.TreeHash:
		return row, capability.Errorf(capability.CodeConflict, "extensions.enable", "%s is not the package that was shown any more",
			row.ID).With(ReasonState, "look at it again")
	case !screen.Asks() || covered:
	case a.TreeHash == "":
		return row, capability.Errorf(capability.CodeApprovalRequired, "extensions.enable",
			"%s requests permissions that no user has approved yet", row.ID).
			With(ReasonConsent, "read what it asks for, then enable it with --yes").Detail("screen", screen)
	}
	if a.TreeHash != "" {
		given := screen.Consent(by.ID, m.cfg.Now())
		row.Consent = jsonOf(given)
	}
	if a.AgentVisible != nil {
		row.AgentVisible = a.AgentVisible
	}
	row.Enabled = true
	if err := m.cfg.Registry.Apply(ctx, Change{Put: &row, Raise: true}); err != nil {
		return row, err
	}
	tools := screen.Consent("", m.cfg.Now()).AgentTools
	m.record(ctx, audit.Record{
		Event: audit.ExtensionEnabled, Extension: row.ID, User: by.ID, Success: audit.OutcomeSuccess,
		Metadata: audit.Metadata{Permissions: pkg.Permissions, Attrs: []audit.Attr{
			{Key: "version", Value: row.Version},
			{Key: "tree_hash", Value: row.TreeHash},
			{Key: "agent_tools", Value: list(tools)},
		}},
	}, audit.Synced)
	m.changed(ctx)
	return row, nil
}

func list(l []string) string {
	data, err := jsonx.Marshal(l)
	if err != nil {
		return ""
	}
	return string(data)
}

// hold reserves an extension for a change and returns its row and the function that releases it.
func (m *Manager) hold(ctx context.Context, id string) (Extension, func(), error) {
	release, err := m.take(id)
	if err != nil {
		return Extension{}, nil, err
	}
	row, err := m.cfg.Registry.Get(ctx, id)
	if err != nil {
		release()
		return row, nil, err
	}
	return row, release, nil
}

// Disable disables an extension, so that later calls fail. With kill it also stops the
// current runs.
func (m *Manager) Disable(ctx context.Context, by capability.Principal, id string, kill bool) (Extension, error) {
	row, release, err := m.hold(ctx, id)
	if err != nil {
		return row, err
	}
	defer release()
	if row.Enabled {
		row.Enabled = false
		if err := m.cfg.Registry.Apply(ctx, Change{Put: &row, Raise: true}); err != nil {
			return row, err
		}
		m.record(ctx, audit.Record{Event: audit.ExtensionDisabled, Extension: row.ID, User: by.ID, Success: audit.OutcomeSuccess}, audit.Synced)
		m.changed(ctx)
	}
	if kill && m.cfg.Executions != nil {
		return row, m.cfg.Executions.Stop(ctx, row.ID)
	}
	return row, nil
}

// Filter restricts a list. Zero fields do not restrict it.
type Filter struct {
	EnabledOnly bool
	Status      Status
}

// List returns the extensions, including those that are being installed or have failed.
func (m *Manager) List(ctx context.Context, f Filter) ([]Extension, error) {
	rows, err := m.cfg.Registry.All(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(rows, func(x Extension) bool {
		return f.EnabledOnly && !x.Enabled || f.Status != "" && x.Status != f.Status
	}), nil
}

// Detail is one extension with its parsed parts.
type Detail struct {
	Extension
	Package *extension.Package `json:"package,omitempty"`
	Usage   string             `json:"usage,omitempty"`
	Problem string             `json:"problem,omitempty"` // why the package is missing
	Busy    bool               `json:"busy,omitempty"`
}

// Show returns one extension. If its package cannot be read, Problem states why.
func (m *Manager) Show(ctx context.Context, id string) (Detail, error) {
	row, err := m.cfg.Registry.Get(ctx, id)
	if err != nil {
		return Detail{}, err
	}
	d := Detail{Extension: row, Busy: m.Busy(id)}
	if row.Status != Installed {
		return d, nil
	}
	if d.Package, err = m.read(row.ID); err == nil {
		d.Usage, err = m.Usage(row.ID)
	}
	if err != nil {
		d.Problem = capability.AsError(err).Message
	}
	return d, nil
}

// Busy reports whether an extension is being changed.
func (m *Manager) Busy(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.busy[strings.ToLower(id)]
}

// Record returns one install record.
func (m *Manager) Record(ctx context.Context, id string) (Record, error) {
	return m.cfg.Registry.Record(ctx, id)
}

// Records returns the newest records of an extension ("" = all).
func (m *Manager) Records(ctx context.Context, id string, limit int) ([]Record, error) {
	return m.cfg.Registry.Records(ctx, id, min(max(limit, 1), 1000))
}

// Usage returns at most 256 KiB of the user's guide of an installed extension.
func (m *Manager) Usage(id string) (jsonText string, err error) {
	err = m.file(id, func(t *archive.Tree, man *extension.Manifest) error {
		jsonText, err = extension.Usage(t, man)
		return err
	})
	return jsonText, err
}

// Icon returns an extension's icon and its file name, whose suffix is the type. An SVG
// must be served as an image only, with a Content-Security-Policy that denies everything.
func (m *Manager) Icon(id string) (data []byte, name string, err error) {
	err = m.file(id, func(t *archive.Tree, man *extension.Manifest) error {
		if name = man.Icon; name == "" {
			return capability.Errorf(capability.CodeNotFound, "extensions", "%s has no icon", id).With("file_not_found", "")
		}
		data, err = t.ReadFile(name, 256<<10)
		return err
	})
	return data, name, err
}

// file calls use with the open package of an installed extension.
func (m *Manager) file(id string, use func(*archive.Tree, *extension.Manifest) error) error {
	x, ok := m.View().Find(id)
	if !ok || x.Package == nil {
		return capability.Errorf(capability.CodeNotFound, "extensions", "there is no installed extension %.130q", id).With("extension_not_found",
			"")
	}
	dir, err := m.open(x.ID)
	if err != nil {
		return err
	}
	defer dir.Close()
	tree, err := archive.OpenPackage(dir)
	if err != nil {
		return err
	}
	return use(tree, &x.Package.Manifest)
}
