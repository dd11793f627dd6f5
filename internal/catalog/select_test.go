package catalog_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
)

// offer is one provider of an action, as a test writes it.
type offer struct {
	name   string
	rank   int
	state  capability.State
	effect capability.Effect
	absent bool // the source published no provider
}

func candidates(t testing.TB, action capability.Action, offers ...offer) []*catalog.Entry {
	t.Helper()
	c := catalog.New()
	var snap *catalog.Snapshot
	for _, o := range offers {
		key := capability.NewProviderKey("fs", "endpoint", o.name)
		b := capability.Batch{Source: o.name, Modules: []capability.Module{{
			Extension: "endpoint." + o.name, ID: o.name, Origin: "endpoint", Contributions: []capability.Contribution{{
				ID: "x", Kind: "capability.agent-tool", Action: action, Provider: key, Rank: o.rank, Effect: o.effect,
				Availability: capability.Availability{State: o.state, Reason: map[bool]string{true: "connection refused"}[o.state == capability.StateUnavailable]},
			}},
		}}}
		if !o.absent {
			b.Providers = []capability.Provider{&provider{key: key}}
		}
		var err error
		if snap, _, err = c.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	return slices.Clone(snap.Action(action))
}

type provider struct {
	capability.Provider
	key capability.ProviderKey
}

func (p *provider) Key() capability.ProviderKey { return p.key }

func TestSelectSaysWhichStepDecided(t *testing.T) {
	t.Parallel()
	const down, degraded = capability.StateUnavailable, capability.StateDegraded
	tests := []struct {
		name     string
		action   capability.Action
		offers   []offer
		sel      capability.Selector
		entry    string // provider instance
		step     int
		by       string
		rejected []string
		rest     []string
	}{
		{"the only one", "fs.list", []offer{{name: "a"}}, nil, "a", 4, "only_supported", nil, nil},
		{"the only one that is well", "fs.list", []offer{{name: "a", state: down, rank: 9}, {name: "b", state: degraded}}, nil, "b", 4, "only_supported", []string{"a 4 unavailable"}, nil},
		{"one without a provider does not count", "fs.list", []offer{{name: "a", absent: true}, {name: "b"}}, nil, "b", 4, "only_supported", []string{"a 4 unavailable"}, nil},
		{"the highest rank", "fs.list", []offer{{name: "a"}, {name: "b", rank: 50}, {name: "c", rank: -1}}, nil, "b", 6, "ranked_default", []string{"a 6 lower_rank", "c 6 lower_rank"}, []string{"a", "c"}},
		{"ranks at the ends of the scale", "fs.list", []offer{{name: "a", rank: -1 << 62}, {name: "b", rank: 1 << 62}}, nil, "b", 6, "ranked_default", []string{"a 6 lower_rank"}, []string{"a"}},
		{"ids, where ranks tie", "fs.list", []offer{{name: "b"}, {name: "a"}, {name: "c", rank: -1}}, nil, "a", 7, "deterministic_fallback", []string{"b 7 tie_break", "c 7 lower_rank"}, []string{"b", "c"}},
		{"a selector", "fs.list", []offer{{name: "a", rank: 9}, {name: "b"}}, capability.Selector{"endpoint": " b "}, "b", 1, "explicit_selector", []string{"a 1 not_selected"}, nil},
		{"rank, within what a selector leaves", "fs.list", []offer{{name: "a"}, {name: "b", rank: 1}}, capability.Selector{"kind": "endpoint"}, "b", 6, "ranked_default", []string{"a 6 lower_rank"}, []string{"a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all := candidates(t, tt.action, tt.offers...)
			for range 5 {
				rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				sel, err := catalog.Select(capability.Target{Action: tt.action, Select: tt.sel}, all, nil)
				if err != nil {
					t.Fatal(err)
				}
				instance := func(k capability.ProviderKey) string { _, _, i := k.Parts(); return i }
				if got := instance(sel.Entry.Key()); got != tt.entry || sel.Step != tt.step || sel.DecidedBy != tt.by || sel.Fallback != (tt.step == 7) {
					t.Errorf("%s by %d %s", got, sel.Step, sel.DecidedBy)
				}
				var rejected, rest []string
				for _, r := range sel.Rejected {
					rejected = append(rejected, fmt.Sprintf("%s %d %s", instance(r.Provider), r.Step, r.Reason))
				}
				for _, e := range sel.Rest {
					rest = append(rest, instance(e.Key()))
				}
				slices.Sort(rejected)
				if d := cmp.Diff(tt.rejected, rejected); d != "" {
					t.Error(d)
				}
				if d := cmp.Diff(tt.rest, rest); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func TestSelectRefusesWhatItCannotKnow(t *testing.T) {
	t.Parallel()
	const down = capability.StateUnavailable
	write := func(names ...string) (out []offer) {
		for _, n := range names {
			out = append(out, offer{name: n, effect: capability.EffectWrite})
		}
		return out
	}
	tests := []struct {
		name   string
		action capability.Action
		offers []offer
		sel    capability.Selector
		code   capability.Code
		reason string
		says   []string
	}{
		{"a field nobody knows", "fs.list", write("a"), capability.Selector{"colour": "red"}, capability.CodeInvalidInput, "invalid_selector", []string{"colour", "endpoint"}},
		{"a blank value is never any", "fs.list", write("a"), capability.Selector{"endpoint": "  "}, capability.CodeInvalidInput, "invalid_selector", []string{"endpoint"}},
		{"nobody matches", "fs.list", write("a"), capability.Selector{"endpoint": "z"}, capability.CodeNotFound, "unknown_provider", []string{"endpoint=z", "fs:endpoint:a"}},
		{"the selected one is down", "fs.list", []offer{{name: "a"}, {name: "b", state: down}}, capability.Selector{"endpoint": "b"}, capability.CodeUnavailable, "provider_unavailable", []string{"connection refused"}},
		{"all are down", "fs.list", []offer{{name: "a", state: down}, {name: "b", state: down}}, nil, capability.CodeUnavailable, "provider_unavailable", []string{"connection refused"}},
		{
			"a write that is not ranked has several equal providers", "message.send",
			[]offer{{name: "a", rank: 5}, {name: "b", rank: 5}, {name: "c"}},
			nil, capability.CodeSelectionRequired, "selection_required",
			[]string{"fs:endpoint:a, fs:endpoint:b"},
		},
		{"nobody at all", "fs.list", nil, nil, capability.CodeUnknownCapability, "", []string{"fs.list"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var all []*catalog.Entry
			if tt.offers != nil {
				all = candidates(t, tt.action, tt.offers...)
			}
			_, err := catalog.Select(capability.Target{Action: tt.action, Select: tt.sel}, all, nil)
			e, ok := errors.AsType[*capability.Error](err)
			if !ok || e.Code != tt.code || e.Reason != tt.reason {
				t.Fatalf("%#v", err)
			}
			for _, want := range tt.says {
				if !strings.Contains(e.Message+" "+e.Hint, want) {
					t.Errorf("%q is not in %s (%s)", want, e.Message, e.Hint)
				}
			}
			if strings.Contains(e.Hint, "endpoint:c") {
				t.Error("one that lost by rank is offered")
			}
		})
	}
}

func TestAWokenProviderIsTaken(t *testing.T) {
	t.Parallel()
	all := candidates(t, "fs.list", offer{name: "a", state: capability.StateUnavailable}, offer{name: "b", state: capability.StateUnavailable}, offer{name: "c", absent: true})
	var asked []string
	sel, err := catalog.Select(capability.Target{Action: "fs.list"}, all, func(e *catalog.Entry) bool {
		asked = append(asked, string(e.Key()))
		return e.Module.ID == "b"
	})
	if err != nil || sel.Entry.Module.ID != "b" || !slices.Equal(asked, []string{"fs:endpoint:a", "fs:endpoint:b"}) || len(sel.Rejected) != 2 {
		t.Errorf("%+v %v %v", sel, asked, err)
	}
}

func TestMatchesReadsEveryField(t *testing.T) {
	t.Parallel()
	e := candidates(t, "fs.list", offer{name: "home:1"})[0]
	for s, want := range map[string]bool{
		"provider=fs:endpoint:home%3A1": true, "kind=endpoint": true, "channel=endpoint": true, "store=endpoint": true, "kind=node": false,
		"account=home:1": true, "instance=home:1": true, "endpoint=home:1": true, "endpoint=home": false, "node=home:1": false,
		"extension=ENDPOINT.home:1": true, "conversation=endpoint:home%3A1:C1": true, "conversation=endpoint:home%3A1": false, "odd=x": false,
	} {
		k, v, _ := strings.Cut(s, "=")
		if catalog.Matches(e, capability.Selector{k: v}) != want {
			t.Errorf("%s: want %v", s, want)
		}
	}
}

func FuzzSelect(f *testing.F) {
	f.Add(uint64(1), "endpoint", "a", true)
	f.Add(uint64(99), "kind", "endpoint", false)
	f.Add(uint64(0xffffffffffff), "", "", false)
	states := []capability.State{"", capability.StateReady, capability.StateDegraded, capability.StateUnavailable}
	f.Fuzz(func(t *testing.T, bits uint64, field, value string, alive bool) {
		var offers []offer
		for i := range 1 + bits%5 {
			b := bits >> (8 * i)
			offers = append(offers, offer{name: string(rune('a' + i)), rank: int(b>>2) & 3, state: states[b&3], absent: b&64 != 0, effect: capability.EffectWrite})
		}
		all := candidates(t, capability.Action([]string{"fs.list", "message.send"}[bits>>7&1]), offers...)
		target := capability.Target{Action: all[0].Action}
		if field != "" {
			target.Select = capability.Selector{field: value}
		}
		wake := func(*catalog.Entry) bool { return alive }
		sel, err := catalog.Select(target, all, wake)
		slices.Reverse(all)
		again, err2 := catalog.Select(target, all, wake)
		if (err == nil) != (err2 == nil) || capability.CodeOf(err) != capability.CodeOf(err2) {
			t.Fatalf("the order of candidates decides: %v, %v", err, err2)
		}
		if err != nil {
			return
		}
		woken := !sel.Entry.Contribution.Availability.Eligible()
		if !woken && sel.Entry != again.Entry {
			t.Fatalf("the order of candidates decides: %s, %s", sel.Entry.ID, again.Entry.ID)
		}
		if sel.Entry.Provider == nil || woken && !alive || target.Select != nil && !catalog.Matches(sel.Entry, target.Select) {
			t.Fatalf("%s was chosen", sel.Entry.ID)
		}
		if len(sel.Rejected) != len(all)-1 {
			t.Fatalf("%d candidates, %d rejected", len(all), len(sel.Rejected))
		}
		for _, e := range sel.Rest {
			if !e.Contribution.Availability.Eligible() || e.Contribution.Rank > sel.Entry.Contribution.Rank || target.Select != nil && !catalog.Matches(e, target.Select) {
				t.Fatalf("%s is left for a fallback", e.ID)
			}
		}
	})
}
