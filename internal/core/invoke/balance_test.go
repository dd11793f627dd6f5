package invoke_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
)

const door = capability.Action("device.function.invoke")

// device is a node with functions; each answers with the node's name.
type device struct {
	fake
	byPlace bool // of the last call
}

// Arguments takes a list for arguments by place.
func (d *device) Arguments(input json.RawMessage) (json.RawMessage, error) {
	if d.byPlace = len(input) > 0 && input[0] == '['; d.byPlace {
		return nil, nil
	}
	return input, nil
}

// node publishes a node that offers the functions with an effect and a schema.
func (r *rig) node(id string, effect capability.Effect, schema string, users []string, functions ...string) *device {
	r.Helper()
	d := &device{fake: fake{key: capability.NewProviderKey("fn", "node", id)}}
	d.do = func(context.Context, capability.Call) (capability.Result, error) {
		return capability.Result{Value: json.RawMessage(`"` + id + `"`)}, nil
	}
	m := capability.Module{Extension: "node." + id, ID: "node." + id, Label: id, Origin: "node", Endpoint: "node:" + id, Users: users}
	generic := &fake{key: capability.NewProviderKey("device", "node", id)}
	m.Contributions = []capability.Contribution{{
		ID: "~invoke", Kind: "capability.agent-tool", Action: door, Effect: capability.EffectExternal, Provider: generic.key,
		Member: capability.Member{Module: m.Extension, Kind: "door", Name: string(door)},
	}}
	for _, f := range functions {
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: f, Kind: "capability.agent-tool", Action: capability.Action("fn." + f), Tool: f, Effect: effect, Provider: d.key,
			InputSchema: json.RawMessage(schema),
			Member:      capability.Member{Module: m.Extension, Kind: "function", Name: f},
		})
	}
	if _, _, err := r.catalog.Replace(capability.Batch{
		Source: "node/" + id, Modules: []capability.Module{m},
		Providers: []capability.Provider{d, generic},
	}); err != nil {
		r.Fatal(err)
	}
	return d
}

// turns is a choice of nodes that would rather have another one each time.
func turns() func(*invoke.Config) {
	n := 0
	return func(c *invoke.Config) {
		c.Balance = func(b capability.Balance, among []*catalog.Entry) ([]*catalog.Entry, error) {
			n++
			nodeOf := func(e *catalog.Entry) string { _, _, node := e.Key().Parts(); return node }
			out := slices.DeleteFunc(slices.Clone(among), func(e *catalog.Entry) bool { return slices.Contains(b.Excluded, nodeOf(e)) })
			if len(out) == 0 {
				return nil, capability.Errorf(capability.CodeUnavailable, "nodes", "nobody").With("no_available_nodes", "")
			}
			slices.SortFunc(out, func(a, b *catalog.Entry) int { return cmp.Compare(nodeOf(a), nodeOf(b)) })
			out = slices.Concat(out[n%len(out):], out[:n%len(out)])
			slices.SortStableFunc(out, func(x, y *catalog.Entry) int {
				at := func(e *catalog.Entry) int {
					if i := slices.Index(b.Preferred, nodeOf(e)); i >= 0 {
						return i
					}
					return len(b.Preferred)
				}
				return at(x) - at(y)
			})
			return out, nil
		}
	}
}

func through(who capability.Principal, function, args string, selector capability.Selector) capability.Invocation {
	input := `{"function":"` + function + `"}`
	if args != "" {
		input = `{"function":"` + function + `","args":` + args + `}`
	}
	return capability.Invocation{
		Surface: "http", Principal: who, Target: capability.Target{Action: door, Select: selector},
		Input: json.RawMessage(input),
	}
}

const anySchema = `{"type":"object"}`

// TestDoorIsJudgedAsWhatGoesThroughIt: by its action, its capability id, its member,
// and behind catalog.call.
func TestDoorIsJudgedAsWhatGoesThroughIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.node("a", capability.EffectAdmin, anySchema, nil, "wipe")
	r.node("b", capability.EffectRead, anySchema, nil, "look")
	call := &fake{key: "catalog:core:default"}
	if _, _, err := r.catalog.Replace(capability.Batch{Source: "core", Providers: []capability.Provider{call}, Modules: []capability.Module{{
		Extension: "core", ID: "core", Origin: "core", Contributions: []capability.Contribution{{
			ID: "call", Kind: "capability.agent-tool", Action: "catalog.call", Effect: capability.EffectRead, Provider: call.key,
			Member: capability.Member{Module: "core", Kind: "tool", Name: "call"},
		}},
	}}}); err != nil {
		t.Fatal(err)
	}
	var id capability.ID
	for e := range r.catalog.Snapshot().Entries() {
		if e.Action == door && e.Module.Label == "a" {
			id = e.ID
		}
	}
	list, _, err := r.engine.Agent(through(agent(), "", "", nil))
	if err != nil {
		t.Fatal(err)
	}
	planner := ""
	for x := range list.Actions() {
		if x.Canonical == door {
			planner = x.Name
		}
	}
	ways := map[string]func(function string) capability.Invocation{
		"action": func(f string) capability.Invocation { return through(agent(), f, "", nil) },
		"id": func(f string) capability.Invocation {
			inv := through(agent(), f, "", nil)
			inv.Target = capability.Target{Capability: id}
			return inv
		},
		"member": func(f string) capability.Invocation {
			inv := through(agent(), f, "", nil)
			inv.Target = capability.Target{Member: capability.Member{Module: "node.a", Kind: "door", Name: string(door)}}
			return inv
		},
		"catalog.call": func(f string) capability.Invocation {
			inv := through(agent(), f, "", nil)
			inv.Target = capability.Target{Action: "catalog.call"}
			inv.Input = json.RawMessage(`{"name":"` + planner + `","arguments":` + string(inv.Input) + `}`)
			return inv
		},
	}
	for name, way := range ways {
		reply, err := r.engine.Invoke(t.Context(), way("wipe"))
		fails(t, err, capability.CodeUnknownCapability, "function_not_found")
		if got := r.events(reply.Invocation); !slices.Equal(got, []string{"permission_denied"}) {
			t.Errorf(`%s: the refusal is recorded as %v; want got = []string{"permission_denied"}`, name, got)
		}
		if p := r.engine.Plan(t.Context(), way("wipe")); capability.CodeOf(p.Err) != capability.CodeUnknownCapability {
			t.Errorf("%s: the plan is %v; want capability.CodeOf(p.Err) = capability.CodeUnknownCapability", name, p.Err)
		}
		if name == "action" || name == "catalog.call" {
			if reply, err := r.engine.Invoke(t.Context(), way("look")); err != nil || string(reply.Result) != `"b"` {
				t.Errorf(`%s: %s %v; want no error, string(reply.Result) = "\"b\""`, name, reply.Result, err)
			}
			if p := r.engine.Plan(t.Context(), way("look")); p.Err != nil || p.Entry.Contribution.Member.Name != "look" || p.Verdict.Consent != "" {
				t.Errorf(`%s: the plan is %+v; want p.Err = nil, p.Entry.Contribution.Member.Name = "look", p.Verdict.Consent = ""`,
					name, p)
			}
		}
	}
	inv := through(agent(), "look", "", nil)
	inv.Input = nil // who asks about the door itself
	if p := r.engine.Plan(t.Context(), inv); p.Entry == nil && capability.CodeOf(p.Err) != capability.CodeSelectionRequired {
		t.Errorf("the plan of the door is %+v; want not (p.Entry == nil && capability.CodeOf(p.Err) != capability.CodeSelectionRequired)",
			p)
	}
}

// TestDevicesOfOthersAreNotThere: neither what they are called nor that they are can
// be learned from an answer.
func TestDevicesOfOthersAreNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.node("anns", capability.EffectRead, `{"type":"object","properties":{"secret":{}}}`, []string{"ann"}, "look", "only")
	r.node("shared", capability.EffectRead, anySchema, nil, "look")
	ann := capability.Principal{ID: "agent:ann", Role: capability.RoleAgent}
	_, err := r.engine.Invoke(t.Context(), through(agent(), "only", "", nil))
	there := fails(t, err, capability.CodeUnknownCapability, "function_not_found")
	_, err = r.engine.Invoke(t.Context(), through(agent(), "nowhere", "", nil))
	if nowhere := fails(t, err, capability.CodeUnknownCapability, "function_not_found"); strings.ReplaceAll(nowhere.Message, "nowhere",
		"only") != there.Message || nowhere.Hint != there.Hint {
		t.Errorf(`%q tells from %q; want strings.ReplaceAll(nowhere.Message, "nowhere", "only") = %v, nowhere.Hint = %v`,
			there, nowhere, there.Message, there.Hint)
	}
	if reply, err := r.engine.Invoke(t.Context(), through(agent(), "look", "", nil)); err != nil || string(reply.Result) != `"shared"` {
		t.Errorf(`%s %v; want no error, string(reply.Result) = "\"shared\""`, reply.Result, err) // and not: it is another one on anns
	}
	if reply, err := r.engine.Invoke(t.Context(), through(ann, "only", "", nil)); err != nil || string(reply.Result) != `"anns"` {
		t.Errorf(`%s %v; want no error, string(reply.Result) = "\"anns\""`, reply.Result, err)
	}
	_, err = r.engine.Invoke(t.Context(), through(ann, "look", "", nil))
	fails(t, err, capability.CodeSelectionRequired, "selection_ambiguous")
}

func TestReadsOfNodesAreBalancedAndOthersAsk(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{tune: turns()})
	for _, id := range []string{"a", "b"} {
		r.node(id, capability.EffectRead, anySchema, nil, "look")
		r.node("w"+id, capability.EffectWrite, anySchema, nil, "set")
	}
	if reply, err := r.engine.Invoke(t.Context(), through(agent(), "look", "", nil)); err != nil || reply.Selection.DecidedBy != "balanced" {
		t.Errorf(`%+v %v; want no error, reply.Selection.DecidedBy = "balanced"`, reply, err)
	}
	_, err := r.engine.Invoke(t.Context(), through(operator(), "set", "", nil))
	fails(t, err, capability.CodeSelectionRequired, "selection_required")
	inv := through(operator(), "set", "", nil)
	inv.Balance = &capability.Balance{Excluded: []string{"wa"}}
	if reply, err := r.engine.Invoke(t.Context(), inv); err != nil || string(reply.Result) != `"wb"` {
		t.Errorf(`%s %v; want no error, string(reply.Result) = "\"wb\""`, reply.Result, err)
	}
	if reply, err := r.engine.Invoke(t.Context(), through(operator(), "set", "", capability.Selector{"node": "any"})); err != nil ||
		reply.Selection.DecidedBy != "balanced" {
		t.Errorf(`%+v %v; want no error, reply.Selection.DecidedBy = "balanced"`, reply, err)
	}
	inv.Balance.Excluded = append(inv.Balance.Excluded, "wb")
	_, err = r.engine.Invoke(t.Context(), inv)
	fails(t, err, capability.CodeUnavailable, "no_available_nodes")
}

// TestNodeTakesNoCallFromAnother: if a provider that is not a node offers the same
// function, arbitration chooses and not the load of nodes.
func TestNodeTakesNoCallFromAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{tune: turns()})
	r.node("hostile", capability.EffectRead, anySchema, nil, "look")
	f := &fake{key: "fn:endpoint:cloud"}
	if _, _, err := r.catalog.Replace(capability.Batch{Source: "cloud", Providers: []capability.Provider{f}, Modules: []capability.Module{{
		Extension: "remote.cloud", ID: "cloud", Origin: "endpoint", Endpoint: "cloud", Contributions: []capability.Contribution{{
			ID: "look", Kind: "capability.agent-tool", Action: "fn.look", Tool: "look", Effect: capability.EffectRead, Provider: f.key,
			InputSchema: json.RawMessage(anySchema),
			Member:      capability.Member{Module: "cloud", Kind: "action", Name: "look"},
		}},
	}}}); err != nil {
		t.Fatal(err)
	}
	reply, err := r.engine.Invoke(t.Context(), capability.Invocation{
		Surface: "http", Principal: agent(),
		Target: capability.Target{Action: "fn.look"},
	})
	if reply.Selection.DecidedBy == "balanced" || err != nil {
		t.Errorf(`%+v %v; want reply.Selection.DecidedBy other than "balanced", no error`, reply, err)
	}
}

// TestFallbackOfABalancedCall: to another node where the first did not start, and to
// none where it did.
func TestFallbackOfABalancedCall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code capability.Code
		goes bool
	}{{capability.CodeUnavailable, true}, {capability.CodeOverloaded, true}, {capability.CodeFailed, false}, {capability.CodeTimeout, false}} {
		r := newRig(t, options{tune: turns()})
		a, b := r.node("a", capability.EffectRead, anySchema, nil, "look"), r.node("b", capability.EffectRead, anySchema, nil, "look")
		a.do = func(context.Context, capability.Call) (capability.Result, error) {
			return capability.Result{}, capability.Errorf(c.code, "test", "no")
		}
		inv := through(agent(), "look", "", nil)
		inv.Balance = &capability.Balance{Preferred: []string{"a"}}
		reply, err := r.engine.Invoke(t.Context(), inv)
		if (err == nil) != c.goes || (b.calls.Load() == 1) != c.goes || reply.Selection.Fallback != c.goes {
			t.Errorf("%s: %v, %d calls of the other, %+v; want (err == nil) = %v, (b.calls.Load() == 1) = %v, "+
				"reply.Selection.Fallback = %v", c.code, err, b.calls.Load(), reply.Selection, c.goes, c.goes, c.goes)
		}
	}
}

// TestBalancedCallIsAskedAboutOnce: a yes is for one node, so the call goes there when
// it is made again, and nowhere else when that node is not there.
func TestBalancedCallIsAskedAboutOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{tune: turns()})
	devices := map[string]*device{}
	for _, id := range []string{"a", "b", "c"} {
		devices[id] = r.node(id, capability.EffectWrite, anySchema, nil, "set")
	}
	inv := through(agent(), "set", `{"x":1}`, capability.Selector{"node": "any"})
	_, err := r.engine.Invoke(t.Context(), inv)
	first := fails(t, err, capability.CodeApprovalRequired, "confirmation_required")
	_, err = r.engine.Invoke(t.Context(), inv)
	again := fails(t, err, capability.CodeApprovalRequired, "confirmation_required")
	if again.Details["approval"] != first.Details["approval"] {
		t.Errorf(`asked about %v and then about %v; want again.Details["approval"] = first.Details["approval"]`,
			first.Details, again.Details)
	}
	approval, _ := first.Details["approval"].(string)
	if _, _, err := r.policy.Decide(t.Context(), operator(), approval, policy.DecideOnce); err != nil {
		t.Fatal(err)
	}
	reply, err := r.engine.Invoke(t.Context(), inv)
	if err != nil {
		t.Fatal(err)
	}
	_, _, node := reply.Provider.Parts()
	_, err = r.engine.Invoke(t.Context(), inv) // it was for once
	second := fails(t, err, capability.CodeApprovalRequired, "confirmation_required")
	approval, _ = second.Details["approval"].(string)
	if _, _, err := r.policy.Decide(t.Context(), operator(), approval, policy.DecideOnce); err != nil {
		t.Fatal(err)
	}
	calls := int64(0)
	for _, d := range devices {
		calls += d.calls.Load()
		d.do = func(context.Context, capability.Call) (capability.Result, error) {
			return capability.Result{}, capability.Errorf(capability.CodeUnavailable, "test", "away")
		}
	}
	_, err = r.engine.Invoke(t.Context(), inv)
	if capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
	}
	after := int64(0)
	for _, d := range devices {
		after += d.calls.Load()
	}
	if after != calls+1 {
		t.Errorf("%d nodes were tried with the yes of one (first %s); want after = calls + 1", after-calls, node)
	}
}

// TestKeyOfADoorHoldsWhoeverOffersTheFunction: a second node comes between two calls
// with one idempotency key.
func TestKeyOfADoorHoldsWhoeverOffersTheFunction(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	a := r.node("a", capability.EffectWrite, anySchema, nil, "set")
	inv := through(operator(), "set", `{"x":1}`, nil)
	inv.IdempotencyKey = "k"
	if _, err := r.engine.Invoke(t.Context(), inv); err != nil {
		t.Fatal(err)
	}
	r.node("b", capability.EffectWrite, anySchema, nil, "set")
	reply, err := r.engine.Invoke(t.Context(), inv)
	if err != nil || !reply.Replayed || a.calls.Load() != 1 {
		t.Errorf("%+v %v; want no error, reply.Replayed = true, a.calls.Load() = 1", reply, err)
	}
	inv.Input = json.RawMessage(`{"function":"set","args":{"x":2}}`)
	_, err = r.engine.Invoke(t.Context(), inv)
	fails(t, err, capability.CodeConflict, "key_reused")
}

// TestSchemaIsThatOfArgumentsByName: others are checked where they are used.
func TestSchemaIsThatOfArgumentsByName(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	d := r.node("a", capability.EffectRead, `{"type":"object","properties":{"n":{"type":"number"}},"required":["n"]}`, nil, "look")
	for args, ok := range map[string]bool{`{"n":1}`: true, `{"n":"x"}`: false, `{}`: false, ``: false, `[1]`: true} {
		before := d.calls.Load()
		_, err := r.engine.Invoke(t.Context(), through(agent(), "look", args, nil))
		if (err == nil) != ok || (d.calls.Load() > before) != ok {
			t.Errorf("%s: %v; want (err == nil) = %v, (d.calls.Load() > before) = %v", args, err, ok, ok)
		}
	}
}

// TestBadDoor: a malformed call of a function is reported as such.
func TestBadDoor(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.node("a", capability.EffectRead, anySchema, nil, "look")
	for _, input := range []string{
		`{}`, `[]`, `{"function":""}`, `{"function":1}`, `{"function":"look","timeoutMs":-1}`,
		`{"function":"look","node":"a"}`,
	} {
		inv := through(agent(), "", "", nil)
		inv.Input = json.RawMessage(input)
		_, err := r.engine.Invoke(t.Context(), inv)
		fails(t, err, capability.CodeInvalidInput, "invalid_args")
	}
	inv := through(agent(), "look", "", capability.Selector{"node": "elsewhere"})
	_, err := r.engine.Invoke(t.Context(), inv)
	fails(t, err, capability.CodeUnknownCapability, "function_not_found")
}

// TestACallThatNamesOneOfManyNodes is judged for that node alone, with the answers it
// would have had.
func TestACallThatNamesOneOfManyNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	for i := range 40 {
		var users []string
		if i == 7 {
			users = []string{"ann"}
		}
		r.node(fmt.Sprintf("n%d", i), capability.EffectRead, anySchema, users, "look")
	}
	call := func(who capability.Principal, node string) (invoke.Reply, error) {
		return r.engine.Invoke(t.Context(), capability.Invocation{
			Principal: who, Target: capability.Target{Action: "fn.look", Select: capability.Selector{"node": node}},
		})
	}
	if reply, err := call(agent(), "n30"); err != nil || string(reply.Result) != `"n30"` || reply.Selection.Step != 1 {
		t.Errorf(`%+v %v; want no error, string(reply.Result) = "\"n30\"", reply.Selection.Step = 1`, reply, err)
	}
	if reply, err := call(operator(), "n7"); err != nil || string(reply.Result) != `"n7"` {
		t.Errorf(`%+v %v; want no error, string(reply.Result) = "\"n7\""`, reply, err)
	}
	_, kept := call(agent(), "n7") // another's, and one that is not there, are the same
	_, absent := call(agent(), "n99")
	if kept == nil || absent == nil || capability.CodeOf(kept) != capability.CodeOf(absent) ||
		capability.AsError(kept).Reason != capability.AsError(absent).Reason {
		t.Errorf("%v; %v; want kept not nil, absent not nil, capability.CodeOf(kept) = capability.CodeOf(absent), "+
			"capability.AsError(kept).Reason = capability.AsError(absent).Reason", kept, absent)
	}
}

// TestABroadcastHasABound: every node at once, and not more than one call may reach.
func TestABroadcastHasABound(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	ask := func() error {
		_, err := r.engine.Invoke(t.Context(), capability.Invocation{
			Principal: agent(), Target: capability.Target{Action: "fn.look", Select: capability.Selector{"node": "all"}},
		})
		return err
	}
	for i := range 50 {
		r.node(fmt.Sprintf("n%d", i), capability.EffectRead, anySchema, nil, "look")
	}
	if err := ask(); err != nil {
		t.Error(err)
	}
	r.node("n50", capability.EffectRead, anySchema, nil, "look")
	fails(t, ask(), capability.CodeTooLarge, "output_limit")
}
