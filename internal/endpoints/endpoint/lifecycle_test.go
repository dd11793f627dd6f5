package endpoint_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

func TestModulesAreStartedAndStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	config := `"config":{"a":"x","n":12.50,"yes":true,"none":null,"remoteCapabilityModuleId":"forged","remoteCapabilityVersion":"forged"}`
	one, two := withHooks("one", config, "init", "dispose"), withHooks("two", "", "init", "dispose")
	h, a, hk := living(t, one, two, manifest("plain", oneAction))
	hk.meanwhile(func(call string) {
		if call == "init one" && r.catalog.Snapshot().Len() != 0 {
			t.Error(`it is listed before it is started; want not (call == "init one" && r.catalog.Snapshot().Len() != 0)`)
		}
	})
	r.connect("e", h)
	hk.want(t, "init one", "init two")
	if d := cmp.Diff(map[string]string{
		"a": "x", "n": "12.5", "yes": "true",
		"remoteCapabilityModuleId": "one", "remoteCapabilityEndpointId": "e", "remoteCapabilityVersion": "1",
	}, hk.config["one"]); d != "" {
		t.Errorf(`d = %q, want ""`, d)
	}
	// What has not changed is left alone.
	if _, err := r.Sync(t.Context(), admin(), "e"); err != nil {
		t.Fatal(err)
	}
	r.connect("e", h)
	hk.want(t)
	// A changed one is stopped and started; one that goes is stopped after it is gone.
	hk.meanwhile(func(call string) {
		n := len(r.catalog.Snapshot().Member(capability.Member{Module: "one", Kind: "action", Name: "GO"}))
		if call == "dispose one" && n != 0 {
			t.Error(`it is stopped while it is listed; want not (call == "dispose one" && n != 0)`)
		}
	})
	a.offer(withHooks("two", `"priority":2`, "init", "dispose"))
	reports, err := r.Sync(t.Context(), admin(), "e")
	if err != nil || !slices.Equal(reports[0].Sync.Reloaded, []string{"two"}) ||
		!slices.Equal(reports[0].Sync.Unloaded, []string{"one", "plain"}) {
		t.Fatalf(`%+v %v; want no error, reports[0].Sync.Reloaded = []string{"two"}, reports[0].Sync.Unloaded = []string{"one", "plain"}`,
			reports, err)
	}
	hk.want(t, "dispose two", "init two", "dispose one")
	// All of them, the last first.
	a.offer(one, two)
	r.connect("e", h)
	hk.took()
	hk.set("dispose two", "error")
	if err := r.Disconnect(t.Context(), admin(), "e"); err != nil {
		t.Fatal(err)
	}
	hk.want(t, "dispose two", "dispose one")
	if r.catalog.Snapshot().Len() != 0 {
		t.Error("something is left; want r.catalog.Snapshot().Len() = 0")
	}
	lines, err := r.log.Query(t.Context(), audit.Query{Event: audit.CapabilityFailed, Limit: 10})
	if err != nil || len(lines) != 1 {
		t.Errorf("the failure is not on record: %d %v; want no error, len(lines) = 1", len(lines), err)
	}
}

func TestAReloadedModuleIsDrainingMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, a, hk := living(t, withHooks("m", "", "init", "dispose"), manifest("other", oneAction))
	r.connect("e", h)
	state := func(module string) capability.State {
		return r.catalog.Snapshot().Member(capability.Member{Module: module, Kind: "action", Name: "GO"})[0].Contribution.Availability.State
	}
	seen := 0
	hk.meanwhile(func(string) {
		if seen++; state("m") != capability.StateDraining || state("other") != capability.StateReady {
			t.Errorf(`%s, %s; want state("m") = capability.StateDraining, state("other") = capability.StateReady`,
				state("m"), state("other"))
		}
	})
	a.offer(withHooks("m", `"priority":1`, "init", "dispose"), manifest("other", oneAction))
	if _, err := r.Sync(t.Context(), admin(), "e"); err != nil || seen != 2 {
		t.Fatalf(`r.Sync(t.Context(), admin(), "e"): err = %v, want nil; seen = %v, want 2`, err, seen)
	}
	if state("m") != capability.StateReady {
		t.Errorf(`state("m") = %q, want capability.StateReady`, state("m"))
	}
}

func TestChangedConfigurationIsApplied(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	with := func(v string, more string) string {
		return withHooks("m", `"config":{"v":"`+v+`"}`+more, "init", "dispose", "applyConfig")
	}
	h, a, hk := living(t, with("1", ""))
	r.connect("e", h)
	hk.want(t, "init m")
	sync := func() endpoint.SyncReport {
		t.Helper()
		reports, err := r.Sync(t.Context(), admin(), "e")
		if err != nil || reports[0].Error != nil {
			t.Fatalf("%+v %v; want no error, reports[0].Error = nil", reports, err)
		}
		return reports[0]
	}
	a.offer(with("2", ""))
	if s := sync(); !slices.Equal(s.Sync.Reloaded, []string{"m"}) {
		t.Errorf(`%+v; want s.Sync.Reloaded = []string{"m"}`, s.Sync)
	}
	hk.want(t, "applyConfig m")
	if hk.config["m"]["v"] != "2" {
		t.Errorf(`hk.config["m"]["v"] = %q, want "2"`, hk.config["m"]["v"])
	}
	// One that does not take it stays as it was, and is tried again.
	digest := catalogtest.Modules(r.catalog)[0].Digest
	hk.set("applyConfig m", "not ok")
	a.offer(with("3", ""))
	if s := sync(); len(s.Sync.Failed) != 1 || s.Sync.Failed[0].Hook != "applyConfig" || len(s.Sync.Reloaded)+len(s.Sync.Unloaded) != 0 {
		t.Errorf(`%+v; want len(s.Sync.Failed) = 1, s.Sync.Failed[0].Hook = "applyConfig", len(s.Sync.Reloaded) + len(s.Sync.Unloaded) = 0`,
			s.Sync)
	}
	if catalogtest.Modules(r.catalog)[0].Digest != digest {
		t.Errorf("the new manifest is listed; want catalogtest.Modules(r.catalog)[0].Digest = %v", digest)
	}
	r.must("m:action:GO", `{}`)
	hk.set("applyConfig m", "")
	r.eventually("it is applied", func() bool { return catalogtest.Modules(r.catalog)[0].Digest != digest })
	hk.took()
	// Under another id of ours it is the same module with another reserved key.
	r.connect("f", h)
	hk.want(t, "applyConfig m")
	if hk.config["m"]["remoteCapabilityEndpointId"] != "f" {
		t.Errorf(`hk.config["m"]["remoteCapabilityEndpointId"] = %q, want "f"`, hk.config["m"]["remoteCapabilityEndpointId"])
	}
	a.offer(with("4", `,"priority":1`))
	if _, err := r.Sync(t.Context(), admin(), "f"); err != nil {
		t.Fatal(err)
	}
	hk.want(t, "dispose m", "init m")
}

// What remains in force after a reload whose init fails: nothing of that module,
// everything of the others; and it is tried again.
func TestAModuleThatDoesNotStartIsLeftOutOfASync(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"error", "not ok"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			h, a, hk := living(t, withHooks("m", "", "init", "dispose"), manifest("other", oneAction))
			r.connect("e", h)
			hk.took()
			hk.set("init m", how)
			hk.set("init late", how)
			a.offer(withHooks("late", "", "init"), withHooks("m", `"priority":1`, "init", "dispose"), manifest("other", oneAction),
				manifest("new", oneAction))
			reports, err := r.Sync(t.Context(), admin(), "e")
			if err != nil || reports[0].Sync == nil {
				t.Fatalf("%+v %v; want no error, reports[0].Sync not nil", reports, err)
			}
			s := reports[0].Sync
			if len(s.Failed) != 2 || s.Failed[0].ModuleID != "late" || s.Failed[1].ModuleID != "m" || !slices.Equal(s.Unloaded, []string{"m"}) ||
				!slices.Equal(s.Registered, []string{"new"}) || len(s.Reloaded) != 0 {
				t.Errorf(`%+v; want len(s.Failed) = 2, s.Failed[0].ModuleID = "late", s.Failed[1].ModuleID = "m", s.Unloaded = `+
					`[]string{"m"}, s.Registered = []string{"new"}, len(s.Reloaded) = 0`, s)
			}
			if d := cmp.Diff([]string{"dispose m", "init late", "init m", "dispose m"}, hk.took()[:4]); d != "" {
				t.Errorf(`d = %q, want ""`, d)
			}
			for _, gone := range []string{"m:action:GO", "late:action:GO"} {
				_, err = r.call(gone, `{}`)
				fails(t, err, capability.CodeUnknownCapability, "")
			}
			r.must("other:action:GO", `{}`)
			r.must("new:action:GO", `{}`)
			if st, _ := r.Show("e"); st.State != capability.StateDegraded || !strings.Contains(st.Reason, "late") || len(st.History) == 0 ||
				len(st.History[len(st.History)-1].Failed) != 2 {
				t.Errorf(`%+v; want st.State = capability.StateDegraded, st.Reason with "late", len(st.History) other than 0, `+
					"len(st.History[len(st.History)-1].Failed) = 2", st)
			}
			hk.set("init m", "")
			hk.set("init late", "")
			for _, target := range []string{"m:action:GO", "late:action:GO"} {
				r.eventually("it is started", func() bool { _, err := r.call(target, `{}`); return err == nil })
			}
		})
	}
}

// A connect fails as a whole: what was started is stopped, the last first, and
// what was stopped is started again.
func TestAConnectUndoesWhatItStarted(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	v := func(id, n string) string { return withHooks(id, `"priority":`+n, "init", "dispose") }
	h, a, hk := living(t, v("a", "1"), v("b", "1"), v("c", "1"))
	hk.set("init c", "error")
	_, _, err := r.Connect(t.Context(), endpoint.Request{ID: "e", BaseURL: h.url(), Persist: true})
	if e := fails(t, err, capability.CodeFailed, "lifecycle_failed"); e.Details["moduleId"] != "c" {
		t.Errorf(`e.Details["moduleId"] = %v, want "c"`, e.Details["moduleId"])
	}
	hk.want(t, "init a", "init b", "init c", "dispose c", "dispose b", "dispose a")
	if len(r.List()) != 0 || r.catalog.Snapshot().ModuleCount() != 0 {
		t.Error("something is left; want len(r.List()) = 0, r.catalog.Snapshot().ModuleCount() = 0")
	}
	hk.set("init c", "")
	r.connect("e", h)
	hk.took()
	before := r.catalog.Snapshot().Etag
	a.offer(v("a", "2"), v("b", "2"), v("c", "1"))
	once := sync.OnceFunc(func() { hk.set("init b", "") })
	hk.set("init b", "error")
	hk.meanwhile(func(call string) {
		if call == "dispose b" && hk.count("init b") > 0 {
			once() // the old one starts again
		}
	})
	_, _, err = r.Connect(t.Context(), endpoint.Request{ID: "e", BaseURL: h.url()})
	fails(t, err, capability.CodeFailed, "lifecycle_failed")
	hk.want(t, "dispose b", "dispose a", "init a", "init b", "dispose b", "init b", "dispose a", "init a")
	if r.catalog.Snapshot().Etag != before || len(r.List()) != 1 {
		t.Errorf("the catalog is not what it was; want r.catalog.Snapshot().Etag = %v, len(r.List()) = 1", before)
	}
	r.must("b:action:GO", `{}`)
	hk.meanwhile(nil)
	// Where the old one does not start again either, it is out until it does.
	hk.set("init b", "error")
	_, _, err = r.Connect(t.Context(), endpoint.Request{ID: "e", BaseURL: h.url()})
	fails(t, err, capability.CodeFailed, "lifecycle_failed")
	r.must("a:action:GO", `{}`)
	_, err = r.call("b:action:GO", `{}`)
	fails(t, err, capability.CodeUnknownCapability, "")
	hk.set("init b", "")
	r.eventually("it is back", func() bool { _, err := r.call("b:action:GO", `{}`); return err == nil })
}

func (h *hooks) count(call string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.calls {
		if c == call {
			n++
		}
	}
	return n
}

func TestModulesAreStartedAgainAfterARestartOfEitherSide(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, _, hk := living(t, withHooks("m", "", "init", "dispose"))
	if _, _, err := r.Connect(t.Context(), endpoint.Request{ID: "e", BaseURL: h.url(), Persist: true}); err != nil {
		t.Fatal(err)
	}
	hk.want(t, "init m")
	h.stop()
	_, _ = r.call("m:action:GO", `{}`)
	r.eventually("it is down", func() bool { return r.state("e") == capability.StateUnavailable })
	h.start()
	r.must("m:action:GO", `{}`)
	r.eventually("it is started again", func() bool { return hk.count("init m") > 0 && r.state("e") == capability.StateReady })
	hk.want(t, "init m")
	r.halt() // a stop of ours unloads nothing
	hk.want(t)
	again := newRigOn(t, r.db, r.vault, nil)
	again.eventually("it is back", func() bool { return again.state("e") == capability.StateReady })
	hk.want(t, "init m")
	// One that is down is not asked to stop.
	h.stop()
	_, _ = again.call("m:action:GO", `{}`)
	again.eventually("it is down", func() bool { return again.state("e") == capability.StateUnavailable })
	if err := again.Disconnect(t.Context(), admin(), "e"); err != nil {
		t.Fatal(err)
	}
}

func TestAServerThatIsReplacedStopsItsModules(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first, _, was := living(t, withHooks("m", "", "init", "dispose"))
	second, _, is := living(t, withHooks("m", "", "init", "dispose"))
	r.connect("e", first)
	was.took()
	r.connect("e", second)
	is.want(t, "init m")
	was.want(t, "dispose m")
}

func TestAHookThatHangsHoldsUpOnlyItsOwnEndpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, _, hk := living(t, withHooks("m", "", "init"))
	asked := make(chan struct{})
	hk.set("init m", "silent")
	hk.meanwhile(func(string) { close(asked) })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, _, err := r.Connect(ctx, endpoint.Request{ID: "e", BaseURL: h.url()})
		ended <- err
	}()
	<-asked
	other, _ := scripted(t, manifest("other", oneAction))
	r.connect("o", other)
	r.must("other:action:GO", `{}`)
	cancel()
	if err := <-ended; err == nil {
		t.Error("it was connected; want an error")
	}
	hk.meanwhile(nil)
	_, _, err := r.Connect(t.Context(), endpoint.Request{ID: "e", BaseURL: h.url(), Timeout: 3 * time.Second})
	fails(t, err, capability.CodeFailed, "lifecycle_failed")
	if len(r.List()) != 1 {
		t.Errorf("List() = %+v, want one endpoint", r.List())
	}
}

func TestHookOutcomesAreShown(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, _, _ := living(t, withHooks("m", "", "init"))
	r.connect("e", h)
	st, err := r.Show("e")
	if err != nil || len(st.Lifecycle) != 1 || !st.Lifecycle[0].OK || st.Lifecycle[0].Hook != "init" {
		t.Errorf(`%+v %v; want no error, len(st.Lifecycle) = 1, st.Lifecycle[0].OK = true, st.Lifecycle[0].Hook = "init"`, st, err)
	}
	doc, err := json.Marshal(st)
	if err != nil || !strings.Contains(string(doc), `"lifecycle":[{"moduleId":"m","hook":"init","ok":true`) {
		t.Errorf(`%s %v; want no error, string(doc) with "\"lifecycle\":[{\"moduleId\":\"m\",\"hook\":\"init\",\"ok\":true"`, doc, err)
	}
}
