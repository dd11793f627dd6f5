package compile

import (
	"cmp"
	"iter"
	"strings"

	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/core/catalog/ordered"
)

// Spelling is the encoding of names in a protocol: a dialect and its limit in bytes (0 means
// 64). The zero value writes plain names.
type Spelling struct {
	Dialect naming.Dialect
	Limit   int
}

// Write returns the action's name in the spelling.
func (sp Spelling) Write(a *Agent, x *Action) string {
	if sp.Dialect == "" || sp.Dialect == naming.Dotted {
		return x.Name
	}
	return a.Wire(x, sp.Dialect, sp.Limit)
}

// Read returns the action of a name, as it is or in the spelling of a surface. An unknown
// name costs one look-up, also among a hundred thousand: only a name with the length and the
// end of a shortened one is compared with names that have the same beginning.
func (sp Spelling) Read(a *Agent, name string) (*Action, bool) {
	if x, ok := a.Action(name); ok && sp.Write(a, x) == name {
		return x, true
	}
	if sp.Dialect != "" && sp.Dialect != naming.Dotted {
		if x := sp.search(a, name); x != nil {
			return a.Action(x.Name) // as it is in this context
		}
	}
	return a.Action(name)
}

// search returns the action of the view, listed or not, whose written name is wire, or nil.
func (sp Spelling) search(a *Agent, wire string) *Action {
	for x := range a.foldRange(naming.Fold(wire)) {
		if sp.Write(a, x) == wire {
			return x
		}
	}
	const suffix = 9 // '_' and eight hex digits of a hash
	at := len(wire) - suffix
	if at <= 0 || wire[at] != '_' || strings.Trim(wire[at+1:], "0123456789abcdef") != "" {
		return nil
	}
	head := naming.Fold(wire[:at])
	for x := range a.foldRange(head) {
		if sp.Write(a, x) == wire {
			return x
		}
	}
	limit := sp.Limit
	if limit <= 0 {
		limit = 64
	}
	if len(wire) != limit {
		return nil
	}
	tried := 0
	for x := range a.folds.From(func(x *Action) int { return cmp.Compare(x.fold, head) }) {
		if tried++; tried > maxTried || !strings.HasPrefix(x.fold, head) {
			break
		}
		if sp.Write(a, x) == wire {
			return x
		}
	}
	return nil
}

// Chunks yields the actions in pieces, by name, with a digest of each. A result computed from
// a piece is valid for every catalog with that piece.
func (a *Agent) Chunks() iter.Seq2[ordered.Sum, []*Action] { return a.list.Chunks() }

// toolOf returns the entry's claim on a declared name.
func toolOf(e *catalog.Entry, declared string) *naming.Tool {
	return &naming.Tool{
		Capability: string(e.ID), Declared: declared, Label: e.Label(),
		Extension: e.Module.Extension, Contribution: e.Contribution.ID,
	}
}

// NameOf returns the public name of an entry's action in the context's workspace and agent, even
// if not listed now, and the level of its label (0 for a bare name). declared is the
// requested name: the entry's own or an exposed alias. ok is false if the action is not
// visible or its name is withheld.
func (a *Agent) NameOf(e *catalog.Entry, declared string) (name string, level int, ok bool) {
	if !e.Minted() {
		name := string(e.Action)
		for x := range a.foldRange(naming.Fold(name)) {
			if x.Name == name && x.Canonical == e.Action {
				return name, 0, true
			}
		}
		return "", 0, false
	}
	// The label of a function on several nodes comes from the first entry that passes the
	// standing filter, so every entry is tried.
	for _, first := range a.Snapshot().Action(e.Action) {
		for level, name := range toolOf(first, declared).Names() {
			for x := range a.foldRange(naming.Fold(name)) {
				if x.Canonical == e.Action && x.Name == name {
					return name, level, true
				}
			}
		}
	}
	return "", 0, false
}

// Wants returns the names that an entry requests in the context: the declared one if it is a
// single tool, and the aliases that the operator exposed.
func (a *Agent) Wants(e *catalog.Entry) []string {
	var out []string
	if e.Minted() {
		out = append(out, a.Snapshot().Settings().Declared(e))
	}
	for _, alias := range a.Snapshot().Settings().Naming.ExposeAliases {
		for _, own := range e.Contribution.Aliases {
			if own == alias {
				out = append(out, alias)
				break
			}
		}
	}
	return out
}
