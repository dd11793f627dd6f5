package endpoint_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

func TestModelsOfATypeAreStackedByPriority(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	model := func(id string, members string) *host {
		h, a, _ := living(t, manifest(id, `"models":[`+members+`]`))
		a.invoke = func(_ context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"result":{"by":"` + id + `","method":"` + method + `","params":` + string(params) + `}}`), nil
		}
		return h
	}
	low := model("low", `{"modelType":"TEXT","priority":1},{"modelType":"ONLY"}`)
	r.connect("low", low)
	if out := r.must("model.invoke", `{"modelType":"TEXT","params":{"prompt":"hi"}}`); !strings.Contains(out, `"by":"low"`) ||
		!strings.Contains(out, `"params":{"prompt":"hi"}`) {
		t.Errorf("r.must = %q, want it to contain \"\\\"by\\\":\\\"low\\\"\" and it to contain \"\\\"params\\\":{\\\"prompt\\\":\\\"hi\\\"}\"",
			out)
	}
	// A second one is refused unless one of the two policies allows it.
	high := model("high", `{"modelType":"TEXT","priority":9}`)
	_, _, err := r.Connect(t.Context(), endpoint.Request{ID: "high", BaseURL: high.url()})
	if e := fails(t, err, capability.CodeConflict, "registration_conflict"); e.Details["kind"] != "model type" {
		t.Errorf(`e.Details["kind"] = %v, want "model type"`, e.Details["kind"])
	}
	share := endpoint.Request{ID: "high", BaseURL: high.url(), TrustPolicy: &router.TrustPolicy{AllowSharedModelTypes: true}}
	if _, _, err := r.Connect(t.Context(), share); err != nil {
		t.Fatal(err)
	}
	by := func(selector capability.Selector, input string) (string, error) {
		reply, err := r.engine.Invoke(t.Context(), capability.Invocation{
			Surface: "test", Principal: admin(), Audience: capability.AudienceInternal, Input: json.RawMessage(input),
			Target: capability.Target{Action: "model.invoke", Select: selector},
		})
		var out struct{ Result struct{ By string } }
		_ = json.Unmarshal(reply.Result, &out)
		return out.Result.By, err
	}
	for _, tt := range []struct {
		selector    capability.Selector
		input, want string
	}{
		{nil, `{"modelType":"TEXT"}`, "high"},
		{nil, `{"modelType":"ONLY"}`, "low"},
		{capability.Selector{"endpoint": "low"}, `{"modelType":"TEXT"}`, "low"},
		{capability.Selector{"endpoint": "high"}, `{"modelType":"TEXT"}`, "high"},
	} {
		if got, err := by(tt.selector, tt.input); err != nil || got != tt.want {
			t.Errorf("%v %s: %s %v; want no error, got = %v", tt.selector, tt.input, got, err, tt.want)
		}
	}
	if out := r.must("low:model:TEXT", `{"prompt":"x"}`); !strings.Contains(out, `"by":"low"`) {
		t.Errorf("r.must = %q, want it to contain \"\\\"by\\\":\\\"low\\\"\"", out)
	}
	_, err = by(nil, `{"modelType":"NONE"}`)
	if e := fails(t, err, capability.CodeUnavailable, "no_provider"); !cmp.Equal(e.Details["modelTypes"], []string{"ONLY", "TEXT"}) {
		t.Errorf(`cmp.Equal(e.Details["modelTypes"], []string{"ONLY", "TEXT"}) = false, want true; e.Details = %v`, e.Details)
	}
	_, err = by(capability.Selector{"endpoint": "high"}, `{"modelType":"ONLY"}`)
	fails(t, err, capability.CodeUnavailable, "no_provider")
	_, err = by(nil, `{}`)
	fails(t, err, capability.CodeInvalidInput, capability.AsError(err).Reason)
	// The one that is down is passed over; back, it is first again.
	high.stop()
	_, _ = r.call("high:model:TEXT", `{}`)
	r.eventually("it is down", func() bool { return r.state("high") == capability.StateUnavailable })
	r.eventually("it is passed over", func() bool { got, err := by(nil, `{"modelType":"TEXT"}`); return err == nil && got == "low" })
	high.start()
	r.eventually("it is first again", func() bool { got, err := by(nil, `{"modelType":"TEXT"}`); return err == nil && got == "high" })
	for _, id := range []string{"low", "high"} {
		if err := r.Disconnect(t.Context(), admin(), id); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.catalog.Snapshot().Len(); n != 0 {
		t.Errorf("%d entries are left; want n = 0", n)
	}
}

func TestOnlyDeclaredPhasesAreCalled(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, a := scripted(t, manifest("m", `"evaluators":[{"name":"bare","description":"d","prompt":"p","schema":{}},`+
		`{"name":"full","description":"d","prompt":"p","schema":{},"hasPrepare":true,"hasProcessor":true,"priority":4}],`+
		`"responseHandlerFieldEvaluators":[{"name":"bare","description":"d","schema":{}},{"name":"full","description":"d","schema":{},"hasParse":true,"hasHandle":true}],`+
		`"responseHandlerEvaluators":[{"name":"r"}]`))
	var calls atomic.Int64
	answer := map[string]string{
		"plugin.evaluator.shouldRun": `{"shouldRun":true}`, "plugin.evaluator.prepare": `{"prepared":{"a":1}}`,
		"plugin.evaluator.prompt":  `{"prompt":"p"}`,
		"plugin.evaluator.process": `{"result":{}}`, "plugin.responseHandlerFieldEvaluator.shouldRun": `{"shouldRun":true}`,
		"plugin.responseHandlerFieldEvaluator.parse":  `{"softFail":true,"value":"left over"}`,
		"plugin.responseHandlerFieldEvaluator.handle": `{"effect":{"patch":{"x":1},"preempt":{"mode":"ignore","reason":""},"debug":["d"]}}`,
		"plugin.responseHandlerEvaluator.shouldRun":   `{"shouldRun":false}`, "plugin.responseHandlerEvaluator.evaluate": `{"patch":{"y":2}}`,
	}
	a.invoke = func(_ context.Context, method string, _ json.RawMessage) (json.RawMessage, error) {
		calls.Add(1)
		return json.RawMessage(answer[method]), nil
	}
	r.connect("e", h)
	for _, tt := range []struct{ target, flag string }{
		{"m:evaluator:bare.prepare", "hasPrepare"},
		{"m:evaluator:bare.process", "hasProcessor"},
		{"m:responseHandlerFieldEvaluator:bare.parse", "hasParse"},
		{"m:responseHandlerFieldEvaluator:bare.handle", "hasHandle"},
	} {
		_, err := r.call(tt.target, `{}`)
		if e := fails(t, err, capability.CodeInvalidInput, "phase_not_declared"); !strings.Contains(e.Message, tt.flag) {
			t.Errorf("e.Message = %q, want it to contain %q", e.Message, tt.flag)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls reached the wire; want n = 0", n)
	}
	for _, tt := range []struct{ target, want string }{
		{"m:evaluator:bare.shouldRun", `{"shouldRun":true}`},
		{"m:evaluator:bare.prompt", `{"prompt":"p"}`},
		{"m:evaluator:full.prepare", `{"prepared":{"a":1}}`},
		{"m:evaluator:full.process", `{"result":{}}`},
		{"m:responseHandlerFieldEvaluator:full.parse", `{"softFail":true,"value":null}`},
		{"m:responseHandlerFieldEvaluator:full.handle", `{"effect":{"patch":{"x":1},"preempt":{"mode":"ignore","reason":""},"debug":["d"]}}`},
		{"m:responseHandlerEvaluator:r.shouldRun", `{"shouldRun":false}`},
		{"m:responseHandlerEvaluator:r.evaluate", `{"patch":{"y":2}}`},
	} {
		if out := r.must(tt.target, `{}`); out != tt.want {
			t.Errorf("%s: %s; want out = %v", tt.target, out, tt.want)
		}
	}
	e := r.catalog.Snapshot().Member(capability.Member{Module: "m", Kind: "evaluator", Name: "full.prepare"})
	if len(e) != 1 || e[0].Contribution.Rank != 4 {
		t.Errorf("%+v; want len(e) = 1, e[0].Contribution.Rank = 4", e)
	}
}

func TestAViewWithAFrameOnlyHasItsAsset(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, _ := scripted(t, manifest("m", `"views":[{"id":"v","label":"v","framePath":"/frame/index.html"}]`),
		manifest("url", `"views":[{"id":"w","label":"w","frameUrl":"https://example.org/x"}]`))
	r.connect("e", h)
	for module, want := range map[string]int{"m": 1, "url": 0} {
		if n := len(r.catalog.Snapshot().Member(capability.Member{Module: module, Kind: "view", Name: "asset"})); n != want {
			t.Errorf("%d asset entries of %s; want n = %v", n, module, want)
		}
	}
}

// What only front ends and hosts read of a manifest is there as it came.
func TestEverythingAManifestSaysIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	members := `"priority":3,"contexts":["chat"],"config":{"a":1},"schema":{"table":{}},"componentTypes":[{"name":"c","schema":{"type":"object"}}],"metadata":{"k":"v"}`
	h, _ := scripted(t, manifest("m", members))
	r.connect("e", h)
	var got, want map[string]any
	if err := json.Unmarshal(catalogtest.Modules(r.catalog)[0].Manifest, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(manifest("m", members)), &want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
}

func TestWhatIsMissingStaysWhenAskedTo(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, a, hk := living(t, withHooks("gone", "", "init", "dispose"), manifest("stay", oneAction))
	connect := func(keep bool, allowed ...string) endpoint.Synced {
		t.Helper()
		_, synced, err := r.Connect(t.Context(), endpoint.Request{
			ID: "e", BaseURL: h.url(), KeepMissing: keep, AllowedModules: allowed,
			Persist: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		return synced
	}
	connect(true)
	a.offer(manifest("stay", oneAction))
	reports, err := r.Sync(t.Context(), admin(), "e")
	if err != nil || len(reports[0].Sync.Unloaded) != 0 {
		t.Fatalf("%+v %v; want no error, len(reports[0].Sync.Unloaded) = 0", reports, err)
	}
	if s := connect(true); len(s.Unloaded) != 0 {
		t.Errorf("%+v; want len(s.Unloaded) = 0", s)
	}
	r.must("gone:action:GO", `{}`)
	hk.want(t, "init gone")
	r.halt()
	again := newRigOn(t, r.db, r.vault, nil)
	again.eventually("it is back", func() bool { return again.state("e") == capability.StateReady })
	if st, _ := again.Show("e"); !st.KeepMissing || len(st.Modules) != 2 {
		t.Errorf("%+v; want st.KeepMissing = true, len(st.Modules) = 2", st)
	}
	hk.took()
	r = again
	if s := connect(true, "stay"); !cmp.Equal(s.Unloaded, []string{"gone"}) { // a restriction goes first
		t.Errorf(`%+v; want cmp.Equal(s.Unloaded, []string{"gone"})`, s)
	}
	hk.want(t, "dispose gone")
	a.offer(manifest("stay", oneAction), manifest("extra", oneAction))
	connect(true)
	a.offer(manifest("stay", oneAction))
	if s := connect(false); !cmp.Equal(s.Unloaded, []string{"extra"}) {
		t.Errorf(`%+v; want cmp.Equal(s.Unloaded, []string{"extra"})`, s)
	}
}

// Only a configured primary takes low-level calls without an endpoint; every call
// of a module goes to the endpoint that offers it.
func TestLowLevelCallsGoToThePrimaryOrWhereTheyAreSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *endpoint.Config) { c.Primary = "main" })
	for id, module := range map[string]string{"main": "device-tools", "other": "field-notes"} {
		_, _, err := r.Connect(t.Context(), endpoint.Request{
			ID: id, BaseURL: device(t).url(), Token: secret.New(token),
			AllowedModules: []string{module}, By: admin(),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ask := func(target capability.Target) string {
		t.Helper()
		reply, err := r.engine.Invoke(t.Context(), capability.Invocation{
			Surface: "test", Principal: admin(), Audience: capability.AudienceInternal, Target: target, Input: json.RawMessage(`{}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(reply.Provider)
	}
	if got := ask(capability.Target{Action: "fs.list"}); got != "fs:endpoint:main" {
		t.Errorf(`ask(capability.Target{Action: "fs.list"}) = %q, want "fs:endpoint:main"`, got)
	}
	if got := ask(capability.Target{Action: "fs.list", Select: capability.Selector{"endpoint": "other"}}); got != "fs:endpoint:other" {
		t.Errorf(`ask = %q, want "fs:endpoint:other"`, got)
	}
	notes := capability.Target{Member: capability.Member{Module: "field-notes", Kind: "provider", Name: "NOTES_RECENT"}}
	if got := ask(notes); got != "ext:endpoint:other" {
		t.Errorf(`ask(notes) = %q, want "ext:endpoint:other"`, got)
	}
	notes.Select = capability.Selector{"endpoint": "main"} // it does not have it
	_, err := r.engine.Invoke(t.Context(), capability.Invocation{
		Surface: "test", Principal: admin(), Audience: capability.AudienceInternal,
		Target: notes,
	})
	fails(t, err, capability.CodeNotFound, "unknown_provider")
	for _, e := range r.catalog.Snapshot().Action("fs.list") {
		want := 0 // below this machine's own, which have 50
		if e.Module.Endpoint == "main" {
			want = 100
		}
		if e.Contribution.Rank != want {
			t.Errorf("%s has rank %d; want e.Contribution.Rank = %v", e.ID, e.Contribution.Rank, want)
		}
	}
}
