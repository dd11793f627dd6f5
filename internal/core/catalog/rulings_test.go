package catalog_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

func TestSlots(t *testing.T) {
	t.Parallel()
	const down = capability.StateUnavailable
	slot := func(selected, mode string, overrides ...catalog.SlotOverride) catalog.Settings {
		return catalog.Settings{Slots: map[string]catalog.SlotSetting{"memory": {Selected: selected, Mode: mode, Overrides: overrides}}}
	}
	core, lance := module("core", memory("store", "builtin", "")), module("lance", memory("store", "lancedb", ""))
	dormant := func(stage string) capability.Module {
		m := module("off", memory("store", "off", ""))
		m.Stage = stage
		return m
	}
	tiers := []catalog.SlotOverride{
		{Workspace: "w", Selected: "b"}, {Agent: "a", Selected: "c"}, {Workspace: "w", Agent: "a", Selected: "d", Mode: "parallel"},
	}
	four := []capability.Module{
		module("x1", memory("s", "builtin", "")), module("x2", memory("s", "b", "")),
		module("x3", memory("s", "c", "")), module("x4", memory("s", "d", "")),
	}
	needy := memory("store", "builtin", "")
	needy.Depends = &capability.Depends{Requires: []string{"none/x"}}
	for _, tt := range []struct {
		name             string
		settings         catalog.Settings
		modules          []capability.Module
		workspace, agent string
		want             string // source, mode, winner or error, available
		left             string // entries the choice leaves out
	}{
		{
			"default",
			catalog.Settings{},
			[]capability.Module{core, lance},
			"", "",
			"slot_default exclusive core/store builtin,lancedb -lance/store", "lance/store",
		},
		{
			"blank is the default", slot("  ", ""),
			[]capability.Module{core, lance},
			"", "",
			"slot_default exclusive core/store builtin,lancedb -lance/store", "lance/store",
		},
		{
			"configured", slot(" lancedb ", ""),
			[]capability.Module{core, lance},
			"", "",
			"configured exclusive lance/store builtin,lancedb -core/store", "core/store",
		},
		{
			"by runtime id", slot("lance/store", ""),
			[]capability.Module{core, lance},
			"", "",
			"configured exclusive lance/store builtin,lancedb -core/store", "core/store",
		},
		{
			"parallel leaves nothing out", slot("lancedb", "parallel"),
			[]capability.Module{core, lance},
			"", "",
			"configured parallel lance/store builtin,lancedb -core/store", "",
		},
		{
			"unknown", slot("qdrant", ""),
			[]capability.Module{core, lance},
			"", "", "configured exclusive slot_provider_unknown builtin,lancedb",
			"core/store lance/store",
		},
		{
			"one other candidate is not a fallback",
			catalog.Settings{},
			[]capability.Module{lance},
			"", "",
			"slot_default exclusive slot_provider_unknown lancedb", "lance/store",
		},
		{"nobody", catalog.Settings{}, nil, "", "", "slot_default exclusive slot_provider_unknown ", ""},
		{
			"ambiguous",
			catalog.Settings{},
			[]capability.Module{core, module("fork", memory("store", "builtin", ""))},
			"", "",
			"slot_default exclusive slot_ambiguous builtin", "core/store fork/store",
		},
		{
			"down",
			catalog.Settings{},
			[]capability.Module{module("core", memory("store", "builtin", down)), lance},
			"", "",
			"slot_default exclusive slot_provider_unavailable builtin,lancedb", "core/store lance/store",
		},
		{
			"withheld",
			catalog.Settings{},
			[]capability.Module{module("core", needy), lance},
			"", "",
			"slot_default exclusive slot_provider_unavailable builtin,lancedb", "core/store lance/store",
		},
		{
			"disabled", slot("off", ""),
			[]capability.Module{core, dormant("disabled")},
			"", "",
			"configured exclusive slot_provider_disabled builtin", "core/store",
		},
		{
			"not activated", slot("off/store", ""),
			[]capability.Module{core, dormant("approved")},
			"", "",
			"configured exclusive slot_provider_unavailable builtin", "core/store",
		},
		{"base", slot("builtin", "", tiers...), four, "v", "z", "configured exclusive x1/s b,builtin,c,d -x2/s,x3/s,x4/s", "x2/s x3/s x4/s"},
		{"workspace", slot("builtin", "", tiers...), four, "w", "z", "configured exclusive x2/s b,builtin,c,d -x1/s,x3/s,x4/s", "x1/s x3/s x4/s"},
		{
			"agent beats workspace", slot("builtin", "", tiers...), four, "v", "a", "configured exclusive x3/s b,builtin,c,d -x1/s,x2/s,x4/s",
			"x1/s x2/s x4/s",
		},
		{
			"agent beats workspace where both are named", slot("builtin", "", tiers[:2]...), four, "w", "a",
			"configured exclusive x3/s b,builtin,c,d -x1/s,x2/s,x4/s", "x1/s x2/s x4/s",
		},
		{
			"both beat either, and bring their mode", slot("builtin", "", tiers...), four, "w", "a",
			"configured parallel x4/s b,builtin,c,d -x1/s,x2/s,x3/s", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := built(t, tt.settings, tt.modules...)
			choice := s.Slot("memory", tt.workspace, tt.agent)
			got := choice.Source + " " + choice.Mode + " " + choice.Winner
			if choice.Err != nil {
				got += choice.Err.Code
				if e := catalog.AsSlotError(fmt.Errorf("wrapped: %w", choice.Err)); e != choice.Err || e.Remediation == "" || e.Error() == "" ||
					capability.AsError(e).Reason != e.Code {
					t.Errorf(`%+v; want e = %v, e.Remediation other than "", e.Error() other than "", capability.AsError(e).Reason = %v`,
						e, choice.Err, e.Code)
				}
			}
			got += " " + strings.Join(choice.Available, ",")
			if len(choice.Losers) > 0 {
				got += " -" + strings.Join(choice.Losers, ",")
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			var left []string
			for e := range s.Entries() {
				if s.SlotWithholds(e, tt.workspace, tt.agent) {
					left = append(left, e.Runtime)
				}
			}
			slices.Sort(left)
			if d := cmp.Diff(tt.left, strings.Join(left, " ")); d != "" {
				t.Errorf("strings.Join(left, \" \") differs from want (-want +got):\n%s", d)
			}
		})
	}
	// A plain tool bound to the slot goes with its holder; one that is not stays.
	bound, free := tool("bound", "bound"), tool("free", "free")
	bound.Arbitration = &capability.Arbitration{Slot: "memory"}
	for selected, want := range map[string]bool{"lancedb": false, "builtin": true} {
		s := built(t, slot(selected, ""), core, module("lance", memory("store", "lancedb", ""), bound, free))
		if got := s.SlotWithholds(s.Action("ext.lance.bound")[0], "", ""); got != want {
			t.Errorf("%s: the bound tool is left out: %v; want got = %v", selected, got, want)
		}
		if s.SlotWithholds(s.Action("ext.lance.free")[0], "", "") {
			t.Error("a tool that is not bound is left out")
		}
	}
	for settings, want := range map[*catalog.Settings]string{
		{}: "singleton_slot memory slot_default core/store+lance/store core/store",
		{Slots: map[string]catalog.SlotSetting{"memory": {Selected: "lancedb"}}}: "singleton_slot memory configured core/store+lance/store lance/store",
		{Slots: map[string]catalog.SlotSetting{"memory": {Selected: "none"}}}:    "singleton_slot memory unresolved core/store+lance/store",
		{Slots: map[string]catalog.SlotSetting{"memory": {Mode: "parallel"}}}:    "",
	} {
		if got := conflicts(built(t, *settings, core, lance), false); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

func TestBackends(t *testing.T) {
	t.Parallel()
	const ok, degraded, bad, unknown = capability.HealthHealthy, capability.HealthDegraded, capability.HealthUnhealthy,
		capability.HealthUnknown
	exclusive := func(selected string) catalog.Settings {
		return catalog.Settings{Backends: map[string]catalog.BackendSetting{"acp": {Exclusive: true, Selected: selected}}}
	}
	off := backend("off", 99, ok)
	off.Availability.State = capability.StateUnavailable
	slow := backend("slow", 99, "")
	slow.Availability.State = capability.StateDegraded
	for _, tt := range []struct {
		name     string
		settings catalog.Settings
		modules  []capability.Module
		req      catalog.BackendRequest
		want     string
		blocking string
	}{
		{
			"rank",
			catalog.Settings{},
			[]capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))},
			catalog.BackendRequest{},
			"b",
			"",
		},
		{
			"no word on health is health",
			catalog.Settings{},
			[]capability.Module{module("e", backend("a", 1, ""))},
			catalog.BackendRequest{},
			"a",
			"",
		},
		{
			"health before rank",
			catalog.Settings{},
			[]capability.Module{module("e", backend("a", 1, ok), backend("b", 2, degraded))},
			catalog.BackendRequest{},
			"a", "",
		},
		{
			"degraded if nothing is well",
			catalog.Settings{},
			[]capability.Module{module("e", backend("a", 1, bad), backend("b", 0, degraded))},
			catalog.BackendRequest{},
			"b degraded", "",
		},
		{
			"state counts as health",
			catalog.Settings{},
			[]capability.Module{module("e", backend("a", 1, ok), off, slow)},
			catalog.BackendRequest{},
			"a", "",
		},
		{
			"unknown is never picked",
			catalog.Settings{},
			[]capability.Module{module("e", backend("a", 1, unknown), backend("b", 1, bad))},
			catalog.BackendRequest{},
			"backend_unavailable", "",
		},
		{
			"extension id, then contribution id",
			catalog.Settings{},
			[]capability.Module{module("f", backend("a", 1, ok)), module("e", backend("z", 1, ok), backend("b", 1, ok))},
			catalog.BackendRequest{},
			"b", "",
		},
		{
			"operator's rank",
			catalog.Settings{Ranks: map[capability.ProviderKey]int{"runtime-backend:acp:a": 7}},
			[]capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))},
			catalog.BackendRequest{},
			"a", "",
		},
		{
			"by id",
			catalog.Settings{},
			[]capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))},
			catalog.BackendRequest{ID: "a"},
			"a", "",
		},
		{
			"by id, unhealthy",
			catalog.Settings{},
			[]capability.Module{module("e", backend("a", 1, bad), backend("b", 2, ok))},
			catalog.BackendRequest{ID: "a"},
			"backend_unavailable", "",
		},
		{
			"by id, absent",
			catalog.Settings{},
			[]capability.Module{module("e", backend("a", 1, ok))},
			catalog.BackendRequest{ID: "z"},
			"backend_not_found", "",
		},
		{
			"by id, two",
			catalog.Settings{},
			[]capability.Module{module("e", backend("a", 1, ok)), module("f", backend("a", 1, ok))},
			catalog.BackendRequest{ID: "a"},
			"backend_selector_conflict", "",
		},
		{
			"configured",
			catalog.Settings{Backends: map[string]catalog.BackendSetting{"acp": {Selected: "a"}}},
			[]capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))},
			catalog.BackendRequest{},
			"a", "",
		},
		{
			"configured and unhealthy is not replaced",
			catalog.Settings{Backends: map[string]catalog.BackendSetting{"acp": {Selected: "a"}}},
			[]capability.Module{module("e", backend("a", 1, bad), backend("b", 2, ok))},
			catalog.BackendRequest{},
			"backend_unavailable", "",
		},
		{"by selector", catalog.Settings{}, []capability.Module{module("e", backend("a", 9, ok), backend("b", 2, ok, "s"),
			backend("c", 3, ok, "s"))}, catalog.BackendRequest{Selector: "s"}, "c", ""},
		{
			"by selector, absent",
			catalog.Settings{},
			[]capability.Module{module("e", backend("a", 9, ok, "s"))},
			catalog.BackendRequest{Selector: "a"},
			"backend_not_found", "",
		},
		{"contested selector", catalog.Settings{}, []capability.Module{
			module("e", backend("a", 9, ok, "!", "s")),
			module("f", backend("b", 9, ok, "s")),
		}, catalog.BackendRequest{Selector: "s"}, "backend_selector_conflict", ""},
		{"contested everything", catalog.Settings{}, []capability.Module{
			module("e", backend("a", 9, ok, "!", "s")),
			module("f", backend("b", 9, ok, "s")),
		}, catalog.BackendRequest{}, "backend_selector_conflict", ""},
		{"contested in part", catalog.Settings{}, []capability.Module{
			module("e", backend("a", 9, ok, "!", "s")),
			module("f", backend("b", 9, ok, "s", "t")),
		}, catalog.BackendRequest{}, "b", ""},
		{
			"a selector named twice is not a contest",
			catalog.Settings{},
			[]capability.Module{module("e", backend("a", 9, ok, "!", "s", "s"))},
			catalog.BackendRequest{Selector: "s"},
			"a", "",
		},
		{
			"pinned",
			catalog.Settings{Owners: map[string]string{"acp:s": "f/b"}},
			[]capability.Module{module("e", backend("a", 9, ok, "!", "s")), module("f", backend("b", 0, ok, "s"))},
			catalog.BackendRequest{Selector: "s"},
			"b", "",
		},
		{"shared by agreement", catalog.Settings{}, []capability.Module{
			module("e", backend("a", 9, ok, "s")),
			module("f", backend("b", 0, ok, "s")),
		}, catalog.BackendRequest{Selector: "s"}, "a", ""},

		{"exclusive class, one", exclusive(""), []capability.Module{module("e", backend("a", 1, ok))}, catalog.BackendRequest{}, "a", ""},
		{
			"exclusive class, two", exclusive(""),
			[]capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))},
			catalog.BackendRequest{ID: "a"},
			"a", "acp:backend_slot_conflict",
		},
		{
			"exclusive class, two, the default among them", exclusive(""),
			[]capability.Module{module("e", backend("builtin", 1, ok), backend("b", 2, ok))},
			catalog.BackendRequest{},
			"builtin", "",
		},
		{
			"exclusive class, selected", exclusive("a"),
			[]capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))},
			catalog.BackendRequest{},
			"a", "",
		},
		{
			"exclusive class, selected one is missing", exclusive("z"),
			[]capability.Module{module("e", backend("a", 1, ok), backend("b", 2, ok))},
			catalog.BackendRequest{},
			"backend_not_found", "acp:backend_not_found",
		},
		{
			"exclusive class, selected one is there twice", exclusive("a"),
			[]capability.Module{module("e", backend("a", 1, ok)), module("f", backend("a", 2, ok))},
			catalog.BackendRequest{},
			"backend_selector_conflict", "acp:backend_slot_conflict",
		},
		{"exclusive class, none", exclusive(""), nil, catalog.BackendRequest{}, "backend_not_found", "acp:backend_not_found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := built(t, tt.settings, tt.modules...)
			tt.req.Class = "acp"
			choice, err := s.Backend(tt.req)
			got := ""
			if err != nil {
				got = capability.AsError(err).Reason
			} else if got = choice.Entry.Contribution.Backend.ID; choice.Degraded {
				got += " degraded"
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			var blocking []string
			for _, issue := range s.Blocking() {
				if issue.Remediation == "" {
					t.Errorf(`no remediation; got issue.Remediation = %q; want issue.Remediation other than ""`, issue.Remediation)
				}
				blocking = append(blocking, issue.Class+":"+issue.Code)
			}
			if got := strings.Join(blocking, " "); got != tt.blocking {
				t.Errorf("%s, want %s", got, tt.blocking)
			}
		})
	}
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	needs := func(id string, requires ...string) capability.Contribution {
		c := tool(id, id)
		c.Depends = &capability.Depends{Requires: requires}
		return c
	}
	against := func(id string, conflicts ...string) capability.Contribution {
		c := tool(id, id)
		c.Depends = &capability.Depends{Conflicts: conflicts}
		return c
	}
	dormant := module("d", tool("x", "x"))
	dormant.Stage = capability.StageDisabled
	bad := tool("x", "x")
	bad.Action = "message.teleport"
	cli := capability.Contribution{ID: "cli", Kind: "surface.cli"}
	for _, tt := range []struct {
		name     string
		settings catalog.Settings
		modules  []capability.Module
		want     string
	}{
		{"there", catalog.Settings{}, []capability.Module{module("a", needs("x", "b/x")), module("b", tool("x", "x"))}, ""},
		{"a host's contribution counts", catalog.Settings{}, []capability.Module{module("a", needs("x", "b/cli")), module("b", cli)}, ""},
		{"missing", catalog.Settings{}, []capability.Module{module("a", needs("x", "b/x"), tool("y", "y"))}, "a/x=dependency_missing"},
		{
			"one of two is missing",
			catalog.Settings{},
			[]capability.Module{module("a", needs("x", "b/x", "b/y")), module("b", tool("x", "x"))},
			"a/x=dependency_missing",
		},
		{"chain", catalog.Settings{}, []capability.Module{
			module("a", needs("x", "b/x")), module("b", needs("x", "c/x")),
			module("c", needs("x", "z/z")),
		}, "a/x=dependency_missing b/x=dependency_missing c/x=dependency_missing"},
		{"chain that holds", catalog.Settings{}, []capability.Module{
			module("a", needs("x", "b/x")), module("b", needs("x", "c/x")),
			module("c", tool("x", "x")),
		}, ""},
		{"cycle, and who leans on it", catalog.Settings{}, []capability.Module{
			module("a", needs("x", "b/x")), module("b", needs("x", "a/x")),
			module("c", needs("x", "a/x")),
		}, "a/x=dependency_missing b/x=dependency_missing c/x=dependency_missing"},
		{"itself", catalog.Settings{}, []capability.Module{module("a", needs("x", "a/x"))}, "a/x=dependency_missing"},
		{"disabled", catalog.Settings{}, []capability.Module{module("a", needs("x", "d/x")), dormant}, "a/x=dependency_missing"},
		{"rejected", catalog.Settings{}, []capability.Module{module("a", needs("x", "b/x")), module("b", bad)}, "a/x=dependency_missing"},
		{
			"conflict",
			catalog.Settings{},
			[]capability.Module{module("a", against("x", "b/x")), module("b", tool("x", "x"))},
			"a/x=dependency_conflict",
		},
		{
			"conflict of both",
			catalog.Settings{},
			[]capability.Module{module("a", against("x", "b/x")), module("b", against("x", "a/x"))},
			"a/x=dependency_conflict b/x=dependency_conflict",
		},
		{
			"conflict, pinned",
			catalog.Settings{Owners: map[string]string{"conflict:a/x+b/x": "b/x"}},
			[]capability.Module{module("a", against("x", "b/x")), module("b", against("x", "a/x"))},
			"a/x=dependency_conflict",
		},
		{"conflict with nobody", catalog.Settings{}, []capability.Module{module("a", against("x", "b/x"))}, ""},
		{
			"what needs the loser of a conflict",
			catalog.Settings{},
			[]capability.Module{
				module("a", against("x", "b/x")), module("b", tool("x", "x")), module("c", needs("x", "a/x")),
				module("e", needs("x", "c/x")),
			},
			"a/x=dependency_conflict c/x=dependency_missing e/x=dependency_missing",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := withheld(built(t, tt.settings, tt.modules...)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	// What leans on its own module alone is held where the module loses it.
	lean, go1, go2 := needs("y", "mcp.github/go"), tool("go", "go"), tool("github.go", "go")
	if got := withheld(built(t, catalog.Settings{}, module("mcp.github", go1, lean),
		module("mcp", go2))); got != "mcp.github/go=route_surface_conflict mcp.github/y=dependency_missing mcp/github.go=route_surface_conflict" {
		t.Errorf("withheld(...) = %v, want %v", got, "mcp.github/go=route_surface_conflict mcp.github/y=dependency_missing mcp/github.go=route_surface_conflict")
	}
	// When the missing entry comes, all that waited for it come in one generation.
	c := empty(t, catalog.Settings{})
	apply(t, c, module("a", needs("x", "b/x")), module("c", needs("x", "a/x")))
	change, _, err := c.Replace(capability.Batch{Source: "b", Modules: []capability.Module{module("b", tool("x", "x"))}})
	if got := withheld(change.After); got != "" || err != nil {
		t.Errorf(`withheld(change.After) = %v, err = %v, want got == "" && err == nil`, got, err)
	}
	if d := cmp.Diff([]capability.Action{"ext.a.x", "ext.b.x", "ext.c.x"}, change.Touched); d != "" {
		t.Errorf("change.Touched differs from want (-want +got):\n%s", d)
	}
}

func TestRouteSurfaces(t *testing.T) {
	t.Parallel()
	const key = "messaging:slack:work"
	over := func(c capability.Contribution, ids ...string) capability.Contribution {
		c.Depends = &capability.Depends{Supersedes: ids}
		return c
	}
	send, reply := adapter("message.send", "slack", "work"), adapter("message.reply", "slack", "work")
	two := adapter("message.send", "slack", "home")
	augment := func(id string, exclusive bool, targets ...string) capability.Contribution {
		return capability.Contribution{
			ID: id, Kind: "capability.route-augmenter",
			Augment: &capability.Augment{Targets: targets, Exclusive: exclusive},
		}
	}
	for _, tt := range []struct {
		name      string
		settings  catalog.Settings
		modules   []capability.Module
		withheld  string
		conflicts string
	}{
		{"one", catalog.Settings{}, []capability.Module{module("a", send, reply, two)}, "", ""},
		{
			"two claims",
			catalog.Settings{},
			[]capability.Module{module("a", send, two), module("b", send)},
			"a/adapter=route_surface_conflict b/adapter=route_surface_conflict", "route_surface " + key + " unresolved a/adapter+b/adapter",
		},
		{"different actions do not meet", catalog.Settings{}, []capability.Module{module("a", send), module("b", reply)}, "", ""},
		{
			"pinned",
			catalog.Settings{Owners: map[string]string{key: "b/adapter"}},
			[]capability.Module{module("a", send), module("b", send)},
			"a/adapter=route_surface_conflict", "route_surface " + key + " operator_pin a/adapter+b/adapter b/adapter",
		},
		{
			"a pin to a stranger is none",
			catalog.Settings{Owners: map[string]string{key: "z/adapter"}},
			[]capability.Module{module("a", send), module("b", send)},
			"a/adapter=route_surface_conflict b/adapter=route_surface_conflict",
			"route_surface " + key + " unresolved a/adapter+b/adapter",
		},
		{
			"superseded",
			catalog.Settings{},
			[]capability.Module{module("a", send), module("b", over(send, "a/adapter"))},
			"a/adapter=route_surface_conflict", "route_surface " + key + " supersedes a/adapter+b/adapter b/adapter",
		},
		{
			"superseded both ways",
			catalog.Settings{},
			[]capability.Module{
				module("a", over(send, "b/adapter")),
				module("b", over(send, "a/adapter")),
			},
			"a/adapter=route_surface_conflict b/adapter=route_surface_conflict",
			"route_surface " + key + " unresolved a/adapter+b/adapter",
		},
		{
			"superseding one of two",
			catalog.Settings{},
			[]capability.Module{
				module("a", send), module("b", over(send, "a/adapter")),
				module("c", send),
			},
			"a/adapter=route_surface_conflict b/adapter=route_surface_conflict c/adapter=route_surface_conflict",
			"route_surface " + key + " unresolved a/adapter+b/adapter+c/adapter",
		},
		{
			"superseding all",
			catalog.Settings{},
			[]capability.Module{
				module("a", send), module("b", over(send, "a/adapter", "c/adapter")),
				module("c", over(send, "a/adapter")),
			},
			"a/adapter=route_surface_conflict c/adapter=route_surface_conflict",
			"route_surface " + key + " supersedes a/adapter+b/adapter+c/adapter b/adapter",
		},
		{
			"superseding in a circle",
			catalog.Settings{},
			[]capability.Module{
				module("a", over(send, "b/adapter")),
				module("b", over(send, "c/adapter")), module("c", over(send, "a/adapter")),
			},
			"a/adapter=route_surface_conflict b/adapter=route_surface_conflict c/adapter=route_surface_conflict",
			"route_surface " + key + " unresolved a/adapter+b/adapter+c/adapter",
		},
		{
			"a pin beats superseding",
			catalog.Settings{Owners: map[string]string{key: "a/adapter"}},
			[]capability.Module{module("a", send), module("b", over(send, "a/adapter"))},
			"b/adapter=route_surface_conflict",
			"route_surface " + key + " operator_pin a/adapter+b/adapter a/adapter",
		},
		{
			"rank decides nothing",
			catalog.Settings{Ranks: map[capability.ProviderKey]int{key: 9}},
			[]capability.Module{module("a", send), module("b", send)},
			"a/adapter=route_surface_conflict b/adapter=route_surface_conflict",
			"route_surface " + key + " unresolved a/adapter+b/adapter",
		},
		{
			"a minted id cut in two ways is nobody's",
			catalog.Settings{},
			[]capability.Module{module("mcp.github", tool("go", "go")), module("mcp", tool("github.go", "go"))},
			"mcp.github/go=route_surface_conflict mcp/github.go=route_surface_conflict",
			"route_surface ext.mcp.github.go unresolved mcp.github/go+mcp/github.go",
		},
		{
			"unless it is pinned",
			catalog.Settings{Owners: map[string]string{"ext.mcp.github.go": "mcp.github/go"}},
			[]capability.Module{module("mcp.github", tool("go", "go")), module("mcp", tool("github.go", "go"))},
			"mcp/github.go=route_surface_conflict", "route_surface ext.mcp.github.go operator_pin mcp.github/go+mcp/github.go mcp.github/go",
		},
		{"augmenters compose", catalog.Settings{}, []capability.Module{
			module("a", augment("x", true, "t")),
			module("b", augment("x", false, "t")),
		}, "", ""},
		{
			"augmenters that want a target for themselves",
			catalog.Settings{},
			[]capability.Module{module("a", augment("x", true, "t", "t", "u")), module("b", augment("x", true, "t"))},
			"",
			"route_surface augment:t unresolved a/x+b/x",
		},
		{"one augmenter names its target twice", catalog.Settings{}, []capability.Module{module("a", augment("x", true, "t", "t"))}, "", ""},
		{
			"augmenters, pinned",
			catalog.Settings{Owners: map[string]string{"augment:t": "a/x"}},
			[]capability.Module{module("a", augment("x", true, "t")), module("b", augment("x", true, "t"))},
			"",
			"route_surface augment:t operator_pin a/x+b/x a/x",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := built(t, tt.settings, tt.modules...)
			if got := withheld(s); got != tt.withheld {
				t.Errorf("got  %s\nwant %s", got, tt.withheld)
			}
			if got := conflicts(s, false); got != tt.conflicts {
				t.Errorf("got  %s\nwant %s", got, tt.conflicts)
			}
			for _, c := range s.Conflicts(false) {
				if (c.Resolution == "unresolved") != (c.Remediation != "") {
					t.Errorf(`%+v; want (c.Resolution == "unresolved") = (c.Remediation != "")`, c)
				}
			}
		})
	}
	s := built(t, catalog.Settings{}, module("a", send, two), module("b", send))
	if e, ok := s.Capability("a/adapter#message.send@home"); !ok || s.Withheld(e) != "" {
		t.Error(`the adapter's other account is touched; want ok = true, s.Withheld(e) = ""`)
	}
	if got := conflicts(built(t, catalog.Settings{}, module("a", send), module("b", two)),
		true); got != "canonical_overlap message.send expected a/adapter+b/adapter" {
		t.Errorf("conflicts(...) = %v, want %v", got, "canonical_overlap message.send expected a/adapter+b/adapter")
	}
}

// TestMappings checks that an operator's mapping makes one action of tools with equal
// schemas, but never of tools that differ.
func TestMappings(t *testing.T) {
	t.Parallel()
	search := func(name, schema string) capability.Contribution {
		c := tool("t", name)
		c.InputSchema = json.RawMessage(schema)
		return c
	}
	text := `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`
	same := `{"required":["text"], "type":"object", "properties":{"text":{"type":"string"}}}`
	odd := `{"type":"object","properties":{"body":{"type":"string"}},"required":["body"]}`
	mapping := func(action capability.Action) catalog.Settings {
		return catalog.Settings{CanonicalMap: []catalog.Mapping{{Ext: "mcp.*", Tool: "send", Action: action}}}
	}
	for _, tt := range []struct {
		name     string
		action   capability.Action
		schemas  []string
		joined   int
		rejected int
	}{
		{"two of one schema", "ops.send", []string{text, same}, 2, 0},
		{"alone", "ops.send", []string{odd}, 1, 0},
		{"the odd one stays apart", "ops.send", []string{text, odd, same}, 2, 1},
		{"of equally many, the first id's", "ops.send", []string{odd, text}, 1, 1},
		{"no schema is a schema", "ops.send", []string{"", ""}, 2, 0},
		{"a family of the core takes what serves it", "message.send", []string{text, same}, 2, 0},
		{"and not what does not", "message.send", []string{odd, odd}, 0, 2},
		{"nor what has none", "message.send", []string{"", ""}, 0, 2},
		{"nor another type", "message.send", []string{`{"type":"object","properties":{"text":{"type":"integer"}}}`}, 0, 1},
		{"nor one that needs more", "message.send", []string{`{"type":"object","properties":{"text":{"type":"string"},"key":{"type":"string"}},"required":["text","key"]}`}, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var modules []capability.Module
			for i, schema := range tt.schemas {
				modules = append(modules, module(fmt.Sprintf("mcp.s%d", i), search("send", schema)))
			}
			s := built(t, mapping(tt.action), append(modules, module("other", search("send", text)))...)
			if n := len(s.Action(tt.action)); n != tt.joined {
				t.Errorf("%d joined; want n = %v", n, tt.joined)
			}
			n := 0
			for id, reason := range s.Rejected() {
				if reason != "mapping_schema_mismatch" {
					t.Errorf(`id = %v, reason = %v, want reason == "mapping_schema_mismatch"`, id, reason)
				}
				n++
			}
			if n != tt.rejected {
				t.Errorf("%d stay apart; want n = %v", n, tt.rejected)
			}
			if s.Len() != len(tt.schemas)+1 || len(s.Action("ext.other.t")) != 1 {
				t.Error(`somebody is lost; want s.Len() = len(tt.schemas) + 1, len(s.Action("ext.other.t")) = 1`)
			}
			for _, e := range s.Action(tt.action) {
				if domain, _, _ := e.Key().Parts(); domain != e.Family.Domain {
					t.Errorf("%s is not of its family's domain; want domain = %v", e.Key(), e.Family.Domain)
				}
			}
		})
	}
	// It holds when servers come one by one, in whatever order, and go again.
	c := empty(t, mapping("ops.send"))
	apply(t, c, module("mcp.a", search("send", odd)))
	s := apply(t, c, module("mcp.b", search("send", text)), module("mcp.c", search("send", text)))
	if len(s.Action("ops.send")) != 2 || len(s.Action("ext.mcp.a.t")) != 1 {
		t.Error(`the many join, and the one that was there before leaves; want len(s.Action("ops.send")) = 2, ` +
			`len(s.Action("ext.mcp.a.t")) = 1`)
	}
	if _, _, err := c.Replace(capability.Batch{Source: "mcp.b"}); err != nil {
		t.Fatal(err)
	}
	s = c.Snapshot()
	if e := s.Action("ops.send"); len(e) != 1 || e[0].Module.Extension != "mcp.a" || s.Rejected()["mcp.c/t"] == "" {
		t.Errorf(`%v; want len(e) = 1, e[0].Module.Extension = "mcp.a", s.Rejected()["mcp.c/t"] other than ""`, s.Rejected())
	}
	if _, _, err := c.Configure(catalog.Settings{}); err != nil || len(c.Snapshot().Action("ops.send")) != 0 ||
		len(c.Snapshot().Rejected()) != 0 {
		t.Errorf(`a mapping that is gone leaves traces %v; want no error, len(c.Snapshot().Action("ops.send")) = 0, `+
			"len(c.Snapshot().Rejected()) = 0", err)
	}
}

func TestFunctionsOfNodesMergeAllOrNothing(t *testing.T) {
	t.Parallel()
	node := func(name, schema string) capability.Module {
		return module("node."+name, capability.Contribution{
			ID: "photo", Kind: "capability.agent-tool", Action: "fn.photo", Tool: "photo", InputSchema: json.RawMessage(schema),
			Provider: capability.NewProviderKey("fn", "node", name),
		})
	}
	const one, two = `{"type":"object"}`, `{"type":"object","properties":{"x":{}}}`
	c := empty(t, catalog.Settings{})
	for _, step := range []struct {
		m      capability.Module
		merged int
	}{
		{node("a", one), 1},
		{node("b", one), 2},
		{node("c", two), 0},
		{node("c", one), 3},
		{node("b", two), 0},
		{module("node.b"), 2},
	} {
		s := apply(t, c, step.m)
		if n := len(s.Action("fn.photo")); n != step.merged {
			t.Errorf("%s: %d merged; want n = %v", step.m.Extension, n, step.merged)
		}
		if len(s.Rejected()) > 0 {
			t.Errorf("s.Rejected() = %v, want len(s.Rejected()) == 0", s.Rejected())
		}
		for e := range s.Entries() {
			if e.Declared() != "photo" {
				t.Errorf("%s wants the name %s", e.ID, e.Declared())
			}
		}
	}
}
