package compile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/core/catalog/ordered"
)

// Action is one thing a planner can do in a context: a family with all its
// providers, or a single tool. It is immutable.
type Action struct {
	Name              string            // planner name
	Canonical         capability.Action // the action that a call of this name makes
	Alias             bool              // an alias the operator exposed
	Title             string
	Description       string
	Family            *actions.Row
	Entries           []*catalog.Entry // that may be chosen here, in the catalog's order
	RequiresSelection bool             // a call without a selector would fail here
	fold              string
	sum               ordered.Sum
}

// Providers returns the provider keys of the entries, sorted and without repetitions.
func (a *Action) Providers() []string { return arbitration.Keys(a.Entries) }

// Capabilities returns the capability ids of the entries.
func (a *Action) Capabilities() []capability.ID {
	out := make([]capability.ID, len(a.Entries))
	for i, e := range a.Entries {
		out[i] = e.ID
	}
	return out
}

// Effect returns the strongest effect of the entries.
func (a *Action) Effect() capability.Effect {
	effect := a.Entries[0].Effect
	for _, e := range a.Entries[1:] {
		if e.Effect.AtLeast(effect) {
			effect = e.Effect
		}
	}
	return effect
}

func byName() ordered.Order[*Action] {
	return ordered.Order[*Action]{
		Compare: func(a, b *Action) int { return cmp.Compare(a.Name, b.Name) },
		Sum:     func(a *Action) ordered.Sum { return a.sum },
	}
}

func byFold() ordered.Order[*Action] {
	return ordered.Order[*Action]{
		Compare: func(a, b *Action) int { return cmp.Or(cmp.Compare(a.fold, b.fold), cmp.Compare(a.Name, b.Name)) },
		Sum:     func(a *Action) ordered.Sum { return a.sum },
	}
}

// seal computes the fold and the digest of the action and returns it.
func (a *Action) seal() *Action {
	a.fold = naming.Fold(a.Name)
	b := make([]byte, 0, 128+32*len(a.Entries))
	b = append(append(b, a.Name...), 0)
	b = append(append(b, a.Canonical...), 0)
	b = strconv.AppendBool(b, a.RequiresSelection)
	b = strconv.AppendBool(b, a.Alias)
	for _, e := range a.Entries {
		sum := e.Sum()
		b = append(b, sum[:]...)
	}
	a.sum = sha256.Sum256(b)
	return a
}

// Agent is the agent catalog of one context: the actions that it may use, with their names, and
// the choice among their providers. It is immutable and safe for concurrent use.
type Agent struct {
	Frame *arbitration.Frame
	// Contests are the contested names of the context's workspace and agent.
	Contests []naming.Contest

	list  ordered.List[*Action] // by name
	folds ordered.List[*Action] // by fold: every name of the view, even if not listed here
	etag  string
}

// Snapshot returns the snapshot that the catalog was compiled from.
func (a *Agent) Snapshot() *catalog.Snapshot { return a.Frame.Snapshot }

// Etag returns the hex SHA-256 of the content, which is equal for equal catalogs.
func (a *Agent) Etag() string { return a.etag }

// Len returns the number of actions.
func (a *Agent) Len() int { return a.list.Len() }

// Actions yields every action, ordered by name.
func (a *Agent) Actions() iter.Seq[*Action] { return a.list.All() }

// Action returns the action with a planner name.
func (a *Agent) Action(name string) (*Action, bool) {
	return a.list.Find(func(x *Action) int { return cmp.Compare(x.Name, name) })
}

// From yields, in order, the actions whose names are equal to or after name.
func (a *Agent) From(name string) iter.Seq[*Action] {
	return a.list.From(func(x *Action) int { return cmp.Compare(x.Name, name) })
}

// Select chooses a provider in the catalog's context.
func (a *Agent) Select(req arbitration.Request) (*arbitration.Selection, error) {
	return a.Frame.Select(req)
}

// Wire returns the action's name in a dialect, of at most limit bytes (0 means 64). If names
// differ only in bytes that the dialect lacks, a hash distinguishes them.
func (a *Agent) Wire(x *Action, d naming.Dialect, limit int) string {
	w := naming.Wire(x.Name, d, limit)
	if d == naming.Dotted {
		return w
	}
	var own *Action
	clash := false
	for other := range a.foldRange(x.fold) {
		if other.Name == x.Name {
			own = other // its entries do not depend on the context
		} else if naming.Wire(other.Name, d, limit) == w {
			clash = true
		}
	}
	if clash && own != nil {
		return naming.Distinct(w, limit, string(own.Entries[0].ID))
	}
	return w
}

// foldRange yields the actions of the view whose name has that fold, listed here or not.
func (a *Agent) foldRange(fold string) iter.Seq[*Action] {
	return func(yield func(*Action) bool) {
		for other := range a.folds.From(func(x *Action) int { return cmp.Compare(x.fold, fold) }) {
			if other.fold != fold || !yield(other) {
				return
			}
		}
	}
}

func etagOf(list ordered.List[*Action]) string {
	d := list.Digest()
	return hex.EncodeToString(d[:])
}

// NameConflicts returns the contested names as conflict records.
func (a *Agent) NameConflicts() []catalog.Conflict {
	out := make([]catalog.Conflict, 0, len(a.Contests))
	for _, n := range a.Contests {
		c := catalog.Conflict{
			Class: catalog.ClassPlannerName, Key: n.Fold, Members: n.Members, Resolution: string(n.Resolution),
			Winner: n.Winner,
		}
		if n.Resolution == naming.Withheld {
			c.Remediation = fmt.Sprintf("set catalog.naming.pins.%q to one of: %s", n.Fold, strings.Join(n.Members, ", "))
		}
		out = append(out, c)
	}
	return out
}

// in returns the catalog for another context with the same cache key. It differs only in
// Frame.Context, so that records name the right principal and conversation.
func (a *Agent) in(ctx *capability.Context) *Agent {
	own := a.Frame.Context
	if own == ctx {
		return a
	}
	same := own.Workspace == ctx.Workspace && own.Agent == ctx.Agent && own.Session == ctx.Session && own.ModelProvider == ctx.ModelProvider &&
		(own.Route == nil) == (ctx.Route == nil) && (own.Route == nil || *own.Route == *ctx.Route) && len(own.Grants)+len(ctx.Grants) == 0
	if same {
		return a
	}
	frame := *a.Frame
	frame.Context = ctx
	b := *a
	b.Frame = &frame
	return &b
}
