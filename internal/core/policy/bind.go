package policy

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

// Bound completes a grant from the catalog. If only an action is given, it sets the module of the
// one extension that has it. A grant for an installed extension gets the extension's content
// hash and ends when the content changes; its action must be one of the extension's, by
// catalog name or as typed: <command>.<action>. Errors: not_found for an unknown action or
// module, unless g already has a content hash or the module belongs to an endpoint, which
// may connect later; conflict if the content hash is not the installed one.
func Bound(g Grant, snap *catalog.Snapshot) (Grant, error) {
	const op = "grants.create"
	if named(g.Action) && !named(g.Module) {
		g.Module = owner(g.Action, snap)
		if !named(g.Module) && strings.HasPrefix(g.Action, "ext.") && !strings.HasPrefix(g.Action, "ext."+remote) &&
			len(snap.Action(capability.Action(g.Action))) == 0 {
			return Grant{}, capability.Errorf(capability.CodeNotFound, op, "nothing that is installed here has the action %q", g.Action).
				With("", "junctor catalog lists what there is")
		}
	}
	if !named(g.Module) {
		return g, nil
	}
	m, ok := snap.Module(g.Module)
	switch {
	case !ok && (g.ContentHash != "" || strings.HasPrefix(g.Module, remote)):
		return g, nil
	case !ok:
		return Grant{}, capability.Errorf(capability.CodeNotFound, op,
			"no extension or module %q is installed here, so there is nothing to grant", g.Module).
			With("extension_not_found", "install it first; junctor modules list names all that there are")
	case m.Origin != extensionOrigin:
		return g, nil
	case g.ContentHash != "" && g.ContentHash != m.Digest:
		return Grant{}, capability.Errorf(capability.CodeConflict, op, "%s has another content now: %s", g.Module, m.Digest).
			With("", "leave the content hash out to grant what is installed")
	}
	g.ContentHash = m.Digest
	if !named(g.Action) {
		return g, nil
	}
	var names []string
	for _, e := range snap.ModuleEntries(g.Module) {
		if string(e.Action) == g.Action || typed(e) == g.Action {
			return g, nil
		}
		if name := typed(e); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return Grant{}, capability.Errorf(capability.CodeNotFound, op, "%s has no action %q", g.Module, g.Action).
		With("", "its actions are: "+strings.Join(names[:min(maxActionsNamed, len(names))], ", "))
}

// remote is the prefix of the modules of endpoints.
const remote = "remote."

func named(s string) bool { return s != "" && s != "*" }

// owner returns the extension id of the only extension that has an action, or "*" if there is no
// such extension, or another provider too.
func owner(action string, snap *catalog.Snapshot) string {
	id := "*"
	for _, e := range snap.Action(capability.Action(action)) {
		if e.Module.Origin != extensionOrigin || named(id) && id != e.Module.Extension {
			return "*"
		}
		id = e.Module.Extension
	}
	return id
}

// typed returns the name under which a user types an extension's action, <command>.<action>, for
// its command and for its tool. It is "" for all other entries.
func typed(e *catalog.Entry) string {
	if e.Module.Origin != extensionOrigin {
		return ""
	}
	if name, ok := strings.CutPrefix(e.Contribution.ID, "tool."); ok {
		return name
	}
	if name, ok := strings.CutPrefix(e.Contribution.ID, "command."); ok {
		return strings.TrimSuffix(name, ".run")
	}
	return ""
}
