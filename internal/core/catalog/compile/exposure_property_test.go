package compile_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/core/catalog/search"
)

// TestDoorsAgree holds over random catalogs that what is shown, found, leased and
// explained is the same catalog: every shown name resolves to its action, whatever
// happened since; nothing is found that is not listed; records replay and tell
// planners nothing of whom they may not use.
func TestDoorsAgree(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := random{rand.New(rand.NewPCG(seed, 11))}
			c, err := catalog.New(settings(), 0)
			if err != nil {
				t.Fatal(err)
			}
			comp := compile.New(c)
			leases := compile.NewLeases(func() time.Time { return time.Time{} })
			var ix search.Index
			shown := make(map[string]map[string]capability.Action) // context → name → action
			for range 150 {
				source := fmt.Sprintf("s%d", r.IntN(8))
				b := capability.Batch{Source: source}
				if r.IntN(5) > 0 {
					b.Modules = append(b.Modules, r.module("e"+source[1:]))
				}
				if _, _, err := c.Replace(b); err != nil {
					t.Fatal(err)
				}
				for i, ctx := range contexts() {
					a, key := comp.Compile(&ctx), fmt.Sprint(i)
					d := doors{t, a, compile.Spelling{Dialect: naming.Strict64, Limit: 48}}
					d.resolves(leases, compile.LeaseKey{Session: key}, shown[key])
					if r.IntN(3) == 0 {
						if shown[key] == nil {
							shown[key] = make(map[string]capability.Action)
						}
						d.lists(leases, compile.LeaseKey{Session: key}, shown[key])
					}
					d.finds(&ix)
					d.explains()
				}
			}
		})
	}
}

type doors struct {
	t  *testing.T
	a  *compile.Agent
	sp compile.Spelling
}

// resolves holds that a name that was shown is its action or gone.
func (d doors) resolves(l *compile.Leases, key compile.LeaseKey, shown map[string]capability.Action) {
	d.t.Helper()
	for name, action := range shown {
		got, err := l.Resolve(key, d.a, d.sp, name)
		if err != nil {
			if e := capability.AsError(err); e.Reason != "capability_retracted" {
				d.t.Fatalf(`%s: %v; want e.Reason = "capability_retracted"`, name, err)
			}
			for x := range d.a.Actions() {
				if x.Canonical == action {
					d.t.Fatalf("%s is retracted, and listed as %s; want x.Canonical other than %v", action, x.Name, action)
				}
			}
			continue
		}
		if got.Canonical != action || got.Action != nil && got.Action.Canonical != action {
			d.t.Fatalf("%s was shown as %s and leads to %s; want got.Canonical = %v, not (got.Action != nil && "+
				"got.Action.Canonical != action)", action, name, got.Canonical, action)
		}
	}
}

func (d doors) lists(l *compile.Leases, key compile.LeaseKey, shown map[string]capability.Action) {
	d.t.Helper()
	x, err := d.a.Expose(compile.Limits{Exposure: catalog.Exposure{MaxDirect: 5}})
	if err != nil {
		d.t.Fatal(err)
	}
	if x.Deferred+len(x.Direct) != d.a.Len() || !slices.IsSortedFunc(x.Direct,
		func(a, b *compile.Action) int { return strings.Compare(a.Name, b.Name) }) {
		d.t.Fatalf("%d direct and %d deferred of %d", len(x.Direct), x.Deferred, d.a.Len())
	}
	l.Record(key, d.a, d.sp, x.Direct)
	for _, y := range x.Direct {
		shown[d.sp.Write(d.a, y)] = y.Canonical
		if _, err := d.a.ActionJSON(y, true); err != nil {
			d.t.Fatal(err)
		}
	}
	for y := range d.a.Actions() {
		got, err := l.Resolve(compile.LeaseKey{}, d.a, d.sp, d.sp.Write(d.a, y))
		if err != nil || got.Action != y {
			d.t.Fatalf("%s does not resolve: %v; want no error, got.Action = %v", y.Name, err, y)
		}
		names := make([]string, 0, 2)
		for _, want := range d.a.Wants(y.Entries[0]) {
			if name, _, ok := d.a.NameOf(y.Entries[0], want); ok {
				names = append(names, name)
			}
		}
		if len(names) > 0 && !slices.Contains(names, y.Name) && y.Entries[0].Minted() && !y.Alias {
			d.t.Fatalf("%s is not among the names of its entry: %v; want not (len(names) > 0 && !slices.Contains(names, y.Name) "+
				"&& y.Entries[0].Minted() && !y.Alias)", y.Name, names)
		}
	}
}

func (d doors) finds(ix *search.Index) {
	d.t.Helper()
	for _, query := range []string{"go query message", "acme invoice", "select:query,go,message.send"} {
		for _, h := range ix.Search(d.a, query, 20, compile.Spelling{}, nil) {
			if x, ok := d.a.Action(h.Action.Name); !ok || x != h.Action {
				d.t.Fatalf("%s is found and not listed; want ok = true, x = %v", h.Action.Name, h.Action)
			}
		}
	}
}

func (d doors) explains() {
	d.t.Helper()
	var last capability.Action
	for e := range d.a.Snapshot().Entries() {
		if e.Action == last {
			continue
		}
		last = e.Action
		req := arbitration.Request{Action: e.Action, Denied: func(e *catalog.Entry) bool { return e.Module.Extension == "e1" }}
		sel, _ := d.a.Select(req)
		x := arbitration.Explain(sel, d.a.Etag())
		if x.Text() == "" {
			d.t.Fatal(`it says nothing; want x.Text() other than ""`)
		}
		again, _ := d.a.Frame.Select(x.Inputs.Request(d.a.Snapshot(), x.Action, x.Caller))
		if again.Entry != sel.Entry || again.Step != sel.Step {
			d.t.Fatalf("%s does not replay; want again.Entry = %v, again.Step = %v", e.Action, sel.Entry, sel.Step)
		}
		doc, err := json.Marshal(x.ForPlanner())
		if err != nil {
			d.t.Fatal(err)
		}
		for _, r := range sel.Rejected {
			if r.Step == 0 && r.Reason != "undecided" && strings.Contains(string(doc), string(r.Entry.ID)) {
				d.t.Fatalf("a planner learns of %s: %s", r.Entry.ID, doc)
			}
		}
	}
}
