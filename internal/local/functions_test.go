package local_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/local"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

// engine compiles for real and denies what the test says.
type engine struct {
	compiler *compile.Compiler
	denied   string
}

func (e *engine) Agent(inv capability.Invocation) (*compile.Agent, func(*catalog.Entry) bool, error) {
	return e.compiler.Compile(inv.Context), func(entry *catalog.Entry) bool { return string(entry.Action) != e.denied }, nil
}

// rig publishes the functions and calls them by their member.
type rig struct {
	*testing.T
	catalog   *catalog.Catalog
	engine    *engine
	providers map[capability.ProviderKey]capability.Provider
}

func newRig(t *testing.T, more ...local.Function) *rig {
	t.Helper()
	c := catalogtest.New(t)
	r := &rig{T: t, catalog: c, engine: &engine{compiler: compile.New(c)}, providers: make(map[capability.ProviderKey]capability.Provider)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // one batch
	err := local.NewFunctionSource(slices.Concat(local.CatalogFunctions(r.engine, "1.2"), more)...).Run(ctx, func(b capability.Batch) error {
		for _, p := range b.Providers {
			r.providers[p.Key()] = p
		}
		_, _, err := c.Replace(b)
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v; want err is context.Canceled", err)
	}
	return r
}

func (r *rig) call(name, input string) (string, error) {
	r.Helper()
	member := capability.Member{Module: local.CoreExtension, Kind: "function", Name: name}
	entries := r.catalog.Snapshot().Member(member)
	if len(entries) != 1 {
		r.Fatalf("%s: %d entries", name, len(entries))
	}
	result, err := entries[0].Provider.Invoke(r.Context(), capability.Call{
		Member: member, Input: json.RawMessage(input), Session: "s", Principal: capability.Principal{ID: "agent:x", Role: capability.RoleAgent},
		Context: &capability.Context{Workspace: "w", Agent: "x"}, Progress: func(capability.Chunk) {},
	})
	return string(result.Value), err
}

func TestWhatCoreOffers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	snap := r.catalog.Snapshot()
	if rejected := snap.Rejected(); len(rejected) != 0 {
		t.Errorf("len(rejected) = %v, want 0; rejected = %v", len(rejected), rejected)
	}
	if choice := snap.Slot(catalog.SlotContextEngine, "", ""); choice.Winner != "core/context-engine" {
		t.Errorf(`%+v; want choice.Winner = "core/context-engine"`, choice)
	}
	status, err := r.call("session.status", `{}`)
	if err != nil || !strings.Contains(status, `"workspace":"w"`) || !strings.Contains(status, `"principal":"agent:x"`) ||
		!strings.Contains(status, `"version":"1.2"`) {
		t.Errorf(`%s %v; want no error, status with "\"workspace\":\"w\"", status with "\"principal\":\"agent:x\"", status with `+
			`"\"version\":\"1.2\""`, status, err)
	}
	for in, want := range map[string]string{`{"messages":[{"a":1},"b"]}`: `{"messages":[{"a":1},"b"]}`, `{}`: `{"messages":[]}`} {
		if out, err := r.call("context-engine", in); err != nil || out != want {
			t.Errorf("%s: %s %v; want no error, out = %v", in, out, err, want)
		}
	}
	if _, err := r.call("context-engine", `{"messages":7}`); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
	for key, p := range r.providers {
		if p.Key() != key {
			t.Errorf("%s is %s; want p.Key() = %v", key, p.Key(), key)
		}
		if _, err := p.Invoke(t.Context(), capability.Call{Member: capability.Member{
			Module: "core", Kind: "function",
			Name: "no",
		}}); capability.CodeOf(err) != capability.CodeUnknownCapability {
			t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnknownCapability", err)
		}
	}
	for _, door := range []string{"catalog.call", "catalog.callRead"} { // the engine takes the inner call in its place
		if _, err := r.call(door, `{"name":"fs.list"}`); capability.CodeOf(err) != capability.CodeInternal {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeInternal", door, err)
		}
	}
}

func TestNothingThatIsDeniedIsFoundOrDescribed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	found, err := r.call("catalog.search", `{"query":"session status"}`)
	if err != nil || !strings.Contains(found, `"session.status"`) {
		t.Fatalf(`%s %v; want no error, found with "\"session.status\""`, found, err)
	}
	if described, err := r.call("catalog.describe", `{"name":"session.status"}`); err != nil || !strings.Contains(described, `"schema"`) {
		t.Errorf(`%s %v; want no error, described with "\"schema\""`, described, err)
	}
	if one, err := r.call("catalog.search", `{"query":"catalog","limit":1}`); err != nil || strings.Count(one, `"name"`) != 1 {
		t.Errorf("%s %v; want no error, strings.Count(one, `\"name\"`) = 1", one, err)
	}
	r.engine.denied = "session.status"
	if found, err := r.call("catalog.search", `{"query":"session status"}`); err != nil || strings.Contains(found, `"session.status"`) {
		t.Errorf(`%s %v; want no error, found without "\"session.status\""`, found, err)
	}
	_, denied := r.call("catalog.describe", `{"name":"session.status"}`)
	_, absent := r.call("catalog.describe", `{"name":"session.nothing"}`)
	if capability.CodeOf(denied) != capability.CodeUnknownCapability ||
		strings.ReplaceAll(denied.Error(), "status", "nothing") != absent.Error() {
		t.Errorf("%v and %v tell them apart; want capability.CodeOf(denied) = capability.CodeUnknownCapability, "+
			`strings.ReplaceAll(denied.Error(), "status", "nothing") = absent.Error()`, denied, absent)
	}
	for _, name := range []string{"catalog.search", "catalog.describe"} {
		if _, err := r.call(name, `7`); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", name, err)
		}
	}
}

func TestFunctionsOfAHostBecomeOneContribution(t *testing.T) {
	t.Parallel()
	key := capability.NewProviderKey("memory", "builtin", "default")
	function := func(action capability.Action) host.Function {
		return host.Function{
			ID: string(action), Action: action, Effect: capability.EffectRead,
			Handle: func(_ context.Context, c capability.Call) (capability.Result, error) {
				return capability.Result{Value: json.RawMessage(`"` + string(action) + `"`)}, nil
			},
		}
	}
	off := function("memory.get")
	off.Unavailable = "no database"
	r := newRig(t, local.FunctionsOf(capability.Contribution{
		ID: "memory", Kind: "capability.memory", Provider: key, Arbitration: &capability.Arbitration{Slot: "memory", SelectorID: "builtin"},
	}, function("memory.search"), function("memory.store"), off)...)
	snap := r.catalog.Snapshot()
	if choice := snap.Slot("memory", "", ""); choice.Winner != "core/memory" || choice.Err != nil {
		t.Errorf(`%+v; want choice.Winner = "core/memory", choice.Err = nil`, choice)
	}
	for _, action := range []capability.Action{"memory.search", "memory.store"} {
		if out, err := r.call("memory."+string(action), `{}`); err != nil || out != `"`+string(action)+`"` {
			t.Errorf("%s %v; want no error, out = `\"` + string(action) + `\"`", out, err)
		}
	}
	if e := snap.Action("memory.get")[0]; e.Eligible() || e.Contribution.Availability.Reason != "no database" {
		t.Errorf(`%+v; want not e.Eligible(), e.Contribution.Availability.Reason = "no database"`, e.Contribution.Availability)
	}
}
