package endpoint_test

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// killed returns the store as a kill -9 now would leave it, while the registry
// that writes it still runs.
func killed(t testing.TB, r *rig) *store.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "junctor.db")
	if _, err := r.db.SQL().ExecContext(t.Context(), `VACUUM INTO ?`, path); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestFiveEndpointsComeBackAfterAKill(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	s := newSigner(t)
	down, _ := scripted(t, manifest("down", oneAction+`,"providers":[{"name":"P"}]`))
	fewer, f := scripted(t, manifest("fewer", oneAction), manifest("left-out", oneAction))
	signed, _ := scripted(t, s.sign(t, "signed", oneAction, ""))
	changed, c := scripted(t, manifest("changed", oneAction+`,"providers":[{"name":"OLD"}]`))
	unchanged, _ := scripted(t, manifest("unchanged", oneAction))
	for id, req := range map[string]endpoint.Request{
		"down": {BaseURL: down.url()}, "fewer": {BaseURL: fewer.url(), AllowedModules: []string{"fewer"}},
		"signed": {BaseURL: signed.url(), TrustPolicy: s.policy()},
		"changed": {
			BaseURL: changed.url(), Token: secret.New("first"),
			TrustPolicy: &router.TrustPolicy{StrictNames: false, AllowSharedModelTypes: true},
		},
		"unchanged": {BaseURL: unchanged.url()},
	} {
		req.ID, req.Persist, req.By = id, true, admin()
		if _, _, err := r.Connect(t.Context(), req); err != nil {
			t.Fatalf("r.Connect(t.Context(), req): err = %v, want nil; id = %q", err, id)
		}
	}
	// The token is rotated in place.
	if _, _, err := r.Connect(t.Context(), endpoint.Request{
		ID: "changed", BaseURL: changed.url(), Token: secret.New("second"),
		Persist: true,
	}); err != nil {
		t.Fatal(err)
	}
	want := make(map[string]endpoint.Status)
	for _, st := range r.List() {
		want[st.ID] = st
	}

	db := killed(t, r)
	down.stop()
	c.offer(manifest("changed", oneAction+`,"providers":[{"name":"NEW"}]`))
	f.offer(manifest("fewer", oneAction), manifest("left-out", oneAction), manifest("late", oneAction))
	again := newRigOn(t, db, r.vault, nil)
	again.eventually("all were asked", func() bool {
		return !slices.ContainsFunc(again.List(), func(st endpoint.Status) bool { return st.State == capability.StateStarting })
	})
	if len(again.List()) != 5 {
		t.Fatalf("%+v; want len(again.List()) = 5", again.List())
	}
	for _, st := range again.List() {
		was := want[st.ID]
		if d := cmp.Diff([]any{was.BaseURL, was.HasToken, was.Persisted, was.AllowedModules, was.TrustPolicy, was.Modules, was.Families},
			[]any{st.BaseURL, st.HasToken, st.Persisted, st.AllowedModules, st.TrustPolicy, st.Modules, st.Families}); d != "" {
			t.Errorf(`%s: %s; want d = ""`, st.ID, d)
		}
		if up := st.State == capability.StateReady; up == (st.ID == "down") {
			t.Errorf(`%s is %s; want up other than (st.ID == "down")`, st.ID, st.State)
		}
	}
	for _, id := range []string{"fewer", "signed", "changed", "unchanged"} {
		again.must(id+":action:GO", `{}`)
	}
	for _, gone := range []string{"left-out:action:GO", "late:action:GO", "changed:provider:OLD"} {
		_, err := again.call(gone, `{}`)
		fails(t, err, capability.CodeUnknownCapability, "")
	}
	again.must("changed:provider:NEW", `{}`)
	if len(again.vault.m) != 1 || !slices.Contains(slices.Collect(maps.Values(again.vault.m)), "second") {
		t.Errorf(`%v; want len(again.vault.m) = 1, slices.Collect(maps.Values(again.vault.m)) with "second"`, again.vault.m)
	}
	// What is down is listed, as unavailable.
	entries := again.catalog.Snapshot().Member(capability.Member{Module: "down", Kind: "provider", Name: "P"})
	if len(entries) != 1 || entries[0].Contribution.Availability.State != capability.StateUnavailable {
		t.Fatalf("%+v; want len(entries) = 1, entries[0].Contribution.Availability.State = capability.StateUnavailable", entries)
	}
	_, err := again.call("down:action:GO", `{}`)
	fails(t, err, capability.CodeUnavailable, capability.AsError(err).Reason)
	down.start()
	again.must("down:action:GO", `{}`)

	// Killed once more: the changed manifest is the one that is known now.
	changed.stop()
	third := newRigOn(t, killed(t, again), r.vault, nil)
	third.eventually("it is found down", func() bool { return third.state("changed") == capability.StateUnavailable })
	if n := len(third.catalog.Snapshot().Member(capability.Member{Module: "changed", Kind: "provider", Name: "NEW"})); n != 1 {
		t.Errorf("%d entries of the new manifest; want n = 1", n)
	}
}

// A removed module takes exactly its own entries with it.
func TestARemovedModuleUnloadsExactlyItsEntries(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, a := scripted(t, manifest("stay", oneAction))
	other, _ := scripted(t, manifest("other", oneAction))
	r.connect("h", h)
	r.connect("o", other)
	alone := r.catalog.Snapshot().Etag
	a.offer(manifest("stay", oneAction), manifest("go", oneAction+`,"providers":[{"name":"P"}],"routes":[{"method":"GET","path":"/x"}]`))
	if _, err := r.Sync(t.Context(), admin(), "h"); err != nil {
		t.Fatal(err)
	}
	if r.catalog.Snapshot().Etag == alone {
		t.Fatalf("the new module is not there; want r.catalog.Snapshot().Etag other than %v", alone)
	}
	a.offer(manifest("stay", oneAction))
	reports, err := r.Sync(t.Context(), admin(), "h")
	if err != nil || !slices.Equal(reports[0].Sync.Unloaded, []string{"go"}) {
		t.Fatalf(`%+v %v; want no error, reports[0].Sync.Unloaded = []string{"go"}`, reports, err)
	}
	if r.catalog.Snapshot().Etag != alone {
		t.Errorf("something of it stayed, or something else went; want r.catalog.Snapshot().Etag = %v", alone)
	}
}

func TestConfiguredEndpointsAreThereFromTheStart(t *testing.T) {
	t.Parallel()
	up, _ := scripted(t, manifest("up", oneAction))
	away, _ := scripted(t, manifest("away", oneAction))
	away.stop()
	denied, _ := scripted(t, manifest("denied", oneAction))
	r := newRigOn(t, newRig(t, nil).db, &vault{m: make(map[string]string)}, func(c *endpoint.Config) {
		c.Configured = []endpoint.Configured{
			{ID: "primary", BaseURL: up.url(), AllowedModules: []string{"up"}},
			{ID: "remote-1", BaseURL: away.url()},
			{ID: "remote-2", BaseURL: denied.url(), TrustPolicy: []byte(`{"requireSignedProvenance":"yes"}`)},
			{ID: "bad/id", BaseURL: "nonsense"},
		}
	})
	r.eventually("all were asked", func() bool {
		return r.state("primary") == capability.StateReady && r.state("remote-1") == capability.StateUnavailable &&
			r.state("remote-2") == capability.StateUnconfigured
	})
	if st, _ := r.Show("primary"); !st.Primary || st.Persisted || len(r.List()) != 3 {
		t.Errorf("%+v; want st.Primary = true, st.Persisted = false, len(r.List()) = 3", r.List())
	}
	r.must("up:action:GO", `{}`)
	_, err := r.call("denied:action:GO", `{}`)
	fails(t, err, capability.CodeUnknownCapability, "")
	away.start()
	r.eventually("it came up", func() bool { return r.state("remote-1") == capability.StateReady })
	// What is connected and saved at run time goes before the configuration.
	if _, _, err := r.Connect(t.Context(), endpoint.Request{ID: "mine", BaseURL: up.url(), Persist: true}); err != nil {
		t.Fatal(err)
	}
	again := newRigOn(t, killed(t, r), r.vault, func(c *endpoint.Config) {
		c.Configured = []endpoint.Configured{{ID: "primary", BaseURL: up.url()}}
	})
	if list := again.List(); len(list) != 1 || list[0].ID != "mine" {
		t.Errorf(`%+v; want len(list) = 1, list[0].ID = "mine"`, list)
	}
}
