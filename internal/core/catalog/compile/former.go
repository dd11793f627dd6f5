package compile

import (
	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
)

// Rename is a tool whose name differs under other settings.
type Rename struct {
	Action     capability.Action `json:"action"`
	Old        string            `json:"old"`
	New        string            `json:"new"`
	Definition string            `json:"-"`
}

// Renames returns the tools of MCP servers whose names differ between two settings, in the order of
// their actions. The names are those of a context without workspace and agent.
func Renames(s *catalog.Snapshot, from, to *catalog.Settings) []Rename {
	before, after := namesUnder(s, from), namesUnder(s, to)
	var out []Rename
	for a, entries := range s.Families(nil, true) {
		if len(entries) == 0 || !catalog.FromMCP(entries[0]) {
			continue
		}
		if o, n := before[a], after[a]; o != n && o != "" && n != "" {
			out = append(out, Rename{Action: a, Old: o, New: n, Definition: catalog.DefinitionSum(entries[0])})
		}
	}
	return out
}

// namesUnder returns the public name of each minted tool of a snapshot under settings.
func namesUnder(s *catalog.Snapshot, set *catalog.Settings) map[capability.Action]string {
	v := newView("", "")
	v.frame = arbitration.NewFrame(s, &capability.Context{})
	v.reset(s, set)
	for a, entries := range s.Families(nil, true) {
		v.regroup(a, entries)
	}
	v.table.Settle()
	names := make(map[capability.Action]string, len(v.families))
	for a, f := range v.families {
		if f.entries[0].Minted() && len(f.tools) > 0 {
			names[a] = f.tools[0].Name().Public
		}
	}
	return names
}

// former resolves a name that a tool had before names were changed. unknown is the error for a name
// that no tool had. A tool whose definition differs, or that is gone, is not called: the error has
// the reason capability_retracted and the present name.
func (l *Leases) former(a *Agent, sp Spelling, name string, unknown error) (Resolved, error) {
	now := l.now()
	var had []capability.Action
	same := false
	for _, f := range a.Snapshot().Settings().Naming.Former {
		if !f.Until.After(now) || f.Name != name && (sp.Dialect == "" || naming.Wire(f.Name, sp.Dialect, sp.Limit) != name) {
			continue
		}
		had = append(had, f.Action)
		entries := a.Snapshot().Action(f.Action)
		same = len(entries) > 0 && catalog.DefinitionSum(entries[0]) == f.Definition && a.usableAs(f.Action)
	}
	switch {
	case len(had) == 0:
		return Resolved{}, unknown
	case len(had) == 1 && same:
		return Resolved{Canonical: had[0], Action: a.listed(had[0])}, nil
	}
	var names []string
	for _, action := range had {
		if x := a.listed(action); x != nil {
			names = append(names, sp.Write(a, x))
		}
	}
	return Resolved{}, renamed(name, "it was renamed, and may have changed; if you mean it, call ", names)
}
