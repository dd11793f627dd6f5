// Package mutation breaks the evaluator on purpose, one rule at a time, and
// holds that a test notices. A mutation is one textual replacement, built with
// go test's overlay: nothing on disk changes.
package mutation_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutation is a rule and how it is broken. The text must be in the file once.
type mutation struct {
	rule, file, old, broken string
	notices                 string // package whose tests must fail; "" is the file's own
}

const (
	eval      = "extensions/eval"
	selection = "core/catalog/arbitration/select.go"
	pins      = "core/catalog/arbitration/pins.go"
	defaults  = "core/catalog/arbitration/defaults.go"
	frame     = "core/catalog/arbitration/frame.go"
)

func mutations() []mutation {
	return []mutation{
		// Arbitration.
		{"step 1 is strict", selection, `return c.unavailable(e)`, `return false`, ""},
		{"several fields of a selector all count", frame, `return (w.kind == "" || kind == w.kind) && (w.instance == "" || instance == w.instance)`, `return w.kind == "" || kind == w.kind || w.instance != "" && instance == w.instance`, ""},
		{"a blank selector never means any", selection, `bad != nil {`, `bad != nil && false {`, ""},
		{
			"what was denied is provider_denied", selection, `if r.Step == 0 && want.matches(r.Entry) && !c.unknown(r.Entry) {`,
			`if r.Step == 9 && want.matches(r.Entry) && !c.unknown(r.Entry) {`, "",
		},
		{"a session binding comes before the route", selection, `c.session, c.route, c.support`, `c.route, c.session, c.support`, eval},
		{
			"the longest binding wins", frame, `len(b.Actions) > len(f.Context.Bindings[best].Actions)`,
			`len(b.Actions) < len(f.Context.Bindings[best].Actions)`, eval,
		},
		{"a strict pin that is down fails", pins, `case !strict:`, `case !strict || reason == ReasonUnavailable:`, ""},
		{"a soft pin that is down is flagged", pins, `return carryOn(true, reason)`, `return carryOn(false, reason)`, ""},
		{"the selector excludes a pin", pins, `if has(c.excluded) != nil {`, `if has(c.excluded) == c.all[0] {`, ""},
		{"a pin that was denied fails", pins, `if r.Step == 0 && r.Entry.Key() == key {`, `if r.Step == 9 && r.Entry.Key() == key {`, ""},
		{"an unknown binding fails", pins, `case step == 2 && strict:`, `case step == 9 && strict:`, ""},
		{"nobody else answers in the current conversation", pins, `if len(rest) == 0 || current {`, `if len(rest) == 0 {`, ""},
		{"only route-aware families follow the conversation", frame, `if r == nil || !family.RouteAware {`, `if r == nil {`, ""},
		{
			"there must be a conversation to answer in", selection, `c.family.Address == actions.AddressCurrent && c.f.Context.Route == nil`,
			`c.family.Address == "" && c.f.Context.Route == nil`, "",
		},
		{"a slot-backed family skips the adapter", defaults, `bySlot := c.slotBacked() && len(c.Request.Selector) == 0`, `bySlot := false`, ""},
		{"several accounts of the adapter narrow", defaults, `case len(near) > 1:`, `case len(near) > 99:`, ""},
		{"a forced default of the agent comes first", defaults, `n += 1 << 20`, `n += 0`, ""},
		{"a forced default that cannot serve is flagged", defaults, `c.flag(5, best.Provider, "forced default cannot serve")`, `_ = best`, ""},
		{"the highest rank wins", defaults, `case i == 0 || rank > best:`, `case i == 0 || rank < best:`, ""},
		{"the operator's rank replaces the declared", "core/catalog/snapshot.go", `return rank
	}
	return e.Contribution.Rank`, `return rank + e.Contribution.Rank
	}
	return e.Contribution.Rank`, "core/catalog/arbitration"},
		{"only the slot's holder serves", defaults, `return c.noSlot(choice)`, `return false`, ""},
		{
			"a planner is not guessed for", defaults, `if c.Request.Caller == Planner && c.family.Mode != actions.ModeRanked && changes {`,
			`if c.family.Mode != actions.ModeRanked && changes && false {`, "",
		},
		{"ties go by extension id", selection, `cmp.Compare(a.Module.Extension, b.Module.Extension), cmp.Compare(a.Contribution.ID, b.Contribution.ID), cmp.Compare(a.Key(), b.Key()),`, `cmp.Compare(b.Module.Extension, a.Module.Extension), cmp.Compare(a.Contribution.ID, b.Contribution.ID), cmp.Compare(a.Key(), b.Key()),`, ""},
		{
			"ties of one contribution go by provider key", selection,
			`cmp.Compare(a.Contribution.ID, b.Contribution.ID), cmp.Compare(a.Key(), b.Key()),`,
			`cmp.Compare(a.Contribution.ID, b.Contribution.ID), cmp.Compare(b.Key(), a.Key()),`, eval,
		},
		{"composed members run by priority", selection, `cmp.Compare(priority(b), priority(a))`, `cmp.Compare(priority(a), priority(b))`, ""},
		{
			"a scope without a value fails closed", frame, `value != "" && slices.Contains(list, value)`,
			`value == "" || slices.Contains(list, value)`, "",
		},
		{"same-account looks at the account", frame, `return limit == "same-account" &&`, `return limit == "never" &&`, ""},
		{"a block blocks", frame, `if f.blocked(e.Action) {`, `if false {`, ""},
		{"Cedar's denials are not candidates", selection, `reason = ReasonDenied`, `reason = ""`, ""},

		// Rules.
		{
			"each layer with an allow-list must allow", "core/catalog/rules/rules.go", `if l := layers[name]; l != nil && !l.allowed {`,
			`if l := layers[name]; l != nil && !l.allowed && len(layers) == 1 {`, "",
		},
		{"a deny beats an allow", "core/catalog/rules/rules.go", `if hit && !v.Denied {`, `if hit && !v.Denied && len(v.Matched) == 1 {`, ""},
		{"an approval hides nothing", "core/catalog/rules/rules.go", `v.Approval = v.Approval || hit`, `v.Denied = v.Denied || hit`, ""},
		{"globs are anchored", "core/catalog/rules/rules.go", `return p == len(pattern)`, `return true`, ""},
		{"an agent's rule may name its workspace", "core/catalog/rules/rules.go", `&& (r.Workspace == "" || r.Workspace == c.Workspace)`, ``, ""},

		// Names.
		{"all that meet are labelled", "core/catalog/naming/naming.go", `g = t.fight(fold)`, `t.lone[fold] = tool; return`, ""},
		{
			"a canonical name is nobody else's", "core/catalog/naming/naming.go", `return t.reserved(fold) || t.families[fold] > 0 }`,
			`return t.families[fold] > 0 }`, "",
		},
		{
			"a label never takes a declared name", "core/catalog/naming/allocate.go", `if t.core(fold) || t.lone[fold] != nil {`,
			`if t.core(fold) {`, "",
		},
		{"two that insist need a pin", "core/catalog/naming/allocate.go", `return pinned, insisting`, `_ = pinned; return keep, insisting`, ""},
		{"nobody insists on a canonical name", "core/catalog/naming/allocate.go", `case core:
		return nil, insisting`, `case core:
		return keep, insisting`, ""},
		{"reject withholds all", "core/catalog/naming/allocate.go", `if t.opt.Reject {`, `if t.opt.Reject && len(g.members) > 9 {`, ""},
		{"runs of odd bytes fold to one", "core/catalog/naming/wire.go", `if gap && len(b) > 0 {`, `if gap {`, ""},
		{"earlier groups are asked again", "core/catalog/naming/naming.go", `if later > fold && !t.dirty[later] {`, `if false {`, ""},

		// Slots, backends, conflicts.
		{
			"a missing slot provider has no stand-in", "core/catalog/slots.go",
			`if c.selector == choice.Requested || c.runtime == choice.Requested {`,
			`if c.selector == choice.Requested || c.runtime == choice.Requested || len(claims) == 1 {`, "",
		},
		{
			"a slot's provider that is down is an error", "core/catalog/slots.go", `case len(match) == 1 && !match[0].eligible:`,
			`case len(match) == 9:`, "",
		},
		{"an agent's override beats a workspace's", "core/catalog/slots.go", `score += 2`, `score++`, ""},
		{"losers of a slot are withheld", "core/catalog/slots.go", `if e.Runtime == c.winner.runtime {`, `if e.Runtime != "" {`, ""},
		{"disabled is told from unknown", "core/catalog/slots.go", `if d.disabled {`, `if false {`, ""},
		{
			"what is withheld holds no slot", "core/catalog/conflict.go", `r.admitClaims()`,
			`for _, list := range r.slots { for i := range list { list[i].eligible = true } }`, "",
		},
		{
			"health comes before rank", "core/catalog/backends.go", `cmp.Compare(unhealth(a), unhealth(b)), cmp.Compare(s.RankOf(b), s.RankOf(a)),`,
			`cmp.Compare(s.RankOf(b), s.RankOf(a)), cmp.Compare(unhealth(a), unhealth(b)),`, "",
		},
		{
			"an unprobed backend is not picked", "core/catalog/backends.go",
			`return h == capability.HealthHealthy || h == capability.HealthDegraded`, `return h != capability.HealthUnhealthy`, "",
		},
		{"a configured backend is not replaced", "core/catalog/backends.go", `id = s.settings.Backends[req.Class].Selected`, `id = ""`, ""},
		{"an exclusive class blocks the start", "core/catalog/backends.go", `if !set.Exclusive {`, `if true {`, ""},
		{
			"only an exclusive claim contests a selector", "core/catalog/backends.go", `if len(w.members) < 2 || !w.exclusive {`,
			`if len(w.members) < 2 {`, "",
		},
		{"one provider key is one contribution's", "core/catalog/difference.go", `} else if last != e.Runtime {`, `} else if false {`, ""},
		{"a minted action is one tool's", "core/catalog/difference.go", `if len(tools) > 1 {`, `if len(tools) > 9 {`, ""},
		{
			"tools that change join anew", "core/catalog/transaction.go", `if slices.Equal(was, is) {`,
			`if slices.Equal(was, is) || len(was) > 0 {`, "",
		},
		{
			"a pin decides a contested key", "core/catalog/conflict.go", `if pin := owners[key]; slices.Contains(members, pin) {`,
			`if pin := owners[key]; pin == "none" {`, "",
		},
		{
			"superseding both ways decides nothing", "core/catalog/conflict.go", `(!supersedes(winner, m) || supersedes(m, winner))`,
			`!supersedes(winner, m)`, "",
		},
		{
			"cycles of requirements are withheld", "core/catalog/conflict.go", `if n > 0 && r.withheld[claim{runtime: id}] == "" {`, `if n > 9 {`,
			"",
		},
		{"what conflicts is withheld", "core/catalog/conflict.go", `r.withheld[claim{runtime: id}] = "dependency_conflict"`, `_ = id`, ""},
		{
			"the odd one of a mapping stays apart", "core/catalog/mapping.go", `!function && p.schema == schema && p.base:`, `!function && p.base:`,
			"",
		},
		{"functions merge all or nothing", "core/catalog/mapping.go", `case function && agree,`, `case function && (agree || p.base),`, ""},
		{"a family's schema must be served", "core/catalog/mapping.go", `p.schema == schema && p.base:`, `p.schema == schema:`, ""},

		{
			"what is bound to a slot is looked at when the slot changes", "core/catalog/difference.go",
			`out = append(out, s.ruling.bound[slot]...)`, `_ = s`, "core/catalog/compile",
		},
		{"what leans on its own module is held where that is lost", "core/catalog/conflict.go", `if r.takesWhole() {`, `if false {`, ""},
		{"a contribution is rejected as a whole", "core/catalog/unit.go", `if m.rejected != nil {`, `if false {`, ""},
		{"schemas are readable", "core/catalog/unit.go", `return nil, "invalid_schema"`, `_ = m`, ""},

		// What contributions may say.
		{"nobody raises a kind", "core/catalog/entry.go", `s := kind
`, `s := kind | toAgent
`, ""},
		{
			"an effect has a floor", "core/catalog/unit.go", `if e.Row != nil && (c.Effect == "" || !e.Effect.AtLeast(e.Row.Effect)) {`,
			`if e.Row != nil && c.Effect == "" {`, "",
		},
		{"modes are the registry's", "core/catalog/unit.go", `return "arbitration_override_forbidden"`, `return ""`, ""},
		{
			"nobody joins a tool by naming it", "core/catalog/unit.go",
			`strings.HasPrefix(string(c.Action), "ext.") && c.Action != mintedAction(m, c)`, `false`, "",
		},
		{
			"reserved roots are reserved", "core/catalog/settings.go", `if slices.Contains(actions.ReservedRoots(), root) {`,
			`if slices.Contains(actions.ReservedRoots(), root) && root == "plugin" {`, "",
		},
		{"extension ids are never taken over", "core/catalog/catalog.go", `taken && source != b.Source {`, `taken && source == "" {`, ""},
		{"a panic leaves the old snapshot", "core/catalog/transaction.go", `if p := recover(); p != nil {`, `if p := any(nil); p != nil {`, ""},
		{"generations grow", "core/catalog/transaction.go", `Generation: prev.Generation + 1`, `Generation: prev.Generation`, ""},

		// Compiling.
		{
			"what a context shares is decided under its snapshot", "core/catalog/compile/compile.go",
			`if v.frame == nil || keyOf(v.frame.Snapshot, ctx) != key {`, `if v.frame == nil {`, "",
		},
		{"what the adapter hides is hidden", "core/catalog/compile/compile.go", `if x.dynamic || through`, `if through`, ""},
		{"a session's rules are looked at", "core/catalog/compile/compile.go", `globs = append(globs, f.DynamicGlobs()...)`, `_ = 0`, ""},
		{
			"only the route's provider answers", "core/catalog/compile/view.go", `return e.Key() != route })`,
			`return e.Key() == "" && route == "" })`, "",
		},
		{"what is down is not listed", "core/catalog/compile/view.go", `if !e.Eligible() {`, `if false {`, ""},
		{
			"a selector is required where a call would fail", "core/catalog/compile/view.go", `requires = err != nil`,
			`requires = err != nil || len(open) > 1`, "",
		},
		{
			"names are given among what passes the standing filter", "core/catalog/compile/view.go",
			`reason, _ := v.frame.Standing(e, capability.AudienceAgent); reason == ""`, `e.VisibleTo(capability.AudienceAgent)`, "",
		},
		{
			"one provider needs no selector", "core/catalog/compile/schema.go", `if len(a.Entries) < 2 && !a.RequiresSelection {`,
			`if len(a.Entries) < 1 {`, "",
		},
		{
			"contexts differ in what something names", "core/catalog/compile/compile.go", `k.conversation = named("conversation", r.Conversation)`,
			`k.conversation = ""`, "",
		},
	}
}

// TestEveryRuleIsHeldByATest takes some minutes: it builds the evaluator once for
// each mutation.
func TestEveryRuleIsHeldByATest(t *testing.T) {
	if os.Getenv("MUTATE") == "" {
		t.Skip("MUTATE=1 breaks every rule of the evaluator, one at a time")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range []string{
		"core/catalog", "core/catalog/arbitration", "core/catalog/naming", "core/catalog/rules",
		"core/catalog/compile", eval,
	} {
		if out, err := tests(t, root, pkg).CombinedOutput(); err != nil {
			t.Fatalf("with nothing broken: %s", out)
		}
	}
	slots := make(chan struct{}, 2)
	for _, m := range mutations() {
		t.Run(strings.ReplaceAll(m.rule, " ", "-"), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			m.check(t, root)
		})
	}
}

// TestMutationsApply is quick: every replacement must still find its place.
func TestMutationsApply(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, m := range mutations() {
		source, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), m.old); n != 1 {
			t.Errorf("%s: %s has its text %d times: %s; want n = 1", m.rule, m.file, n, m.old)
		}
		if seen[m.rule] {
			t.Errorf("%s: twice", m.rule)
		}
		seen[m.rule] = true
	}
}

func (m mutation) check(t *testing.T, root string) {
	t.Helper()
	path := filepath.Join(root, "internal", m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	broken, overlay := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json")
	doc, err := json.Marshal(map[string]any{"Replace": map[string]string{path: broken}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{broken: []byte(strings.Replace(string(source), m.old, m.broken, 1)), overlay: doc} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	notices := m.notices
	if notices == "" {
		notices = filepath.Dir(m.file)
	}
	out, err := tests(t, root, notices, "-overlay", overlay).CombinedOutput()
	switch {
	case strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]"):
		t.Errorf("the mutation of %s does not build:\n%s", m.file, out)
	case err == nil:
		t.Errorf("nobody notices that %s was broken:\n- %s\n+ %s", m.file, m.old, m.broken)
	}
}

func tests(t *testing.T, root, pkg string, flags ...string) *exec.Cmd {
	t.Helper()
	args := append([]string{"test", "-vet=off", "-short", "-count=1", "-failfast", "-timeout=60s"}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, "./internal/"+pkg)...)
	cmd.Dir = root
	return cmd
}
