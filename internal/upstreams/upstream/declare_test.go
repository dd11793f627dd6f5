package upstream_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/managed"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
)

func markOf(gateway string) managed.Mark {
	return managed.Mark{File: "config.d/a.yaml", Gateway: gateway}
}

func (r *rig) declare(spec string) error {
	return r.Declare(r.Context(), admin(), markOf("one"), "far", []byte(spec))
}

func TestADeclaredUpstreamIsChangedByItsFileOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	const quarantined = `{"command":["server"],"confinement":"none","trust":"untrusted"}`
	if err := r.declare(quarantined); err != nil {
		t.Fatalf("declaring: %v", err)
	}
	s, err := r.Show("far")
	if err != nil || s.Managed == nil || *s.Managed != markOf("one") || s.Counts.Quarantined != 1 || s.State != capability.StateReady {
		t.Errorf("Show = %+v, %v; want it ready, with its mark and a definition in quarantine", s, err)
	}
	if got := r.events(audit.UpstreamAdded); got != 1 {
		t.Errorf("%d records of adding, want 1", got)
	}

	ctx := t.Context()
	_, set := r.Set(ctx, admin(), "far", upstream.Settings{Disabled: new(bool)})
	_, confine := r.Confine(ctx, admin(), "far", upstream.Walled{})
	marked := recordOf("other")
	marked.Managed = &managed.Mark{File: "x"}
	_, add := r.Add(ctx, admin(), marked)
	for what, err := range map[string]error{"remove": r.Remove(ctx, admin(), "far"), "set": set, "confine": confine} {
		const want = "the upstream far is managed by config.d/a.yaml; change it there"
		if e := fails(t, err, capability.CodeConflict, managed.Reason); e.Message != want {
			t.Errorf("%s: %q, want %q", what, e.Message, want)
		}
	}
	fails(t, add, capability.CodeInvalidInput, "invalid_upstream")
	if _, err := r.Approve(ctx, admin(), "far", upstream.Selection{}); err != nil {
		t.Errorf("approving: %v, want no error", err)
	}
	if _, err := r.Restart(ctx, admin(), "far"); err != nil {
		t.Errorf("restarting: %v, want no error", err)
	}

	// Twice changes nothing; a change keeps what was approved, and holds what is new.
	if err := r.declare(quarantined); err != nil || r.events(audit.UpstreamAdded) != 1 {
		t.Errorf("declaring twice: %v and %d records, want no error and 1", err, r.events(audit.UpstreamAdded))
	}
	const other = `{"command":["server","--new"],"confinement":"none","trust":"untrusted","hints_trusted":true}`
	d, err := r.Compare(markOf("two"), "far", []byte(other))
	if err != nil || !d.Exists || !slices.Equal(d.Members, []string{"command", "hints_trusted"}) {
		t.Errorf("Compare = %+v, %v; want the members command and hints_trusted", d, err)
	}
	r.far.offer(ingest.Tool, def("t", ""), def("u", ""))
	if err := r.declare(other); err != nil {
		t.Fatalf("declaring a change: %v", err)
	}
	r.listed("tool t")
	if s, _ := r.Show("far"); s.Counts.Quarantined != 1 || !s.HintsTrusted {
		t.Errorf("after the change: %+v, want one definition in quarantine and trusted hints", s)
	}

	// Another gateway does not remove it; its own does.
	if err := r.Withdraw(ctx, admin(), "two", "far"); err != nil || len(r.Declared("two")) != 0 {
		t.Errorf("another gateway: %v, declares %v; want neither", err, r.Declared("two"))
	}
	if got := r.Declared("one"); len(got) != 1 || got["far"] != "config.d/a.yaml" {
		t.Errorf("Declared = %v, want far with its file", got)
	}
	for range 2 {
		if err := r.Withdraw(ctx, admin(), "one", "far"); err != nil || len(r.List()) != 0 {
			t.Errorf("withdrawing: %v and %d upstreams, want none", err, len(r.List()))
		}
	}
}

func TestAFileTakesNoUpstreamOfAUser(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.add("far", nil)
	fails(t, r.declare(`{"command":["else"],"confinement":"none"}`), capability.CodeConflict, managed.Reason)
	if err := r.Withdraw(t.Context(), admin(), "", "far"); err != nil {
		t.Errorf("withdrawing: %v, want no error", err)
	}
	if s, err := r.Show("far"); err != nil || s.Managed != nil || s.Command[0] != "server" {
		t.Errorf("Show = %+v, %v; want it as it was", s.Record, err)
	}
}

// The record is stored before the connection, so that the same declaration continues after a kill.
func TestADeclaredUpstreamThatIsAwayIsTriedAgain(t *testing.T) {
	t.Parallel()
	db, f := database(t), newFar()
	f.offer(ingest.Tool, def("t", ""))
	f.refuse = errors.New("away")
	r := newRigOn(t, db, f, nil)
	const spec = `{"command":["server"],"confinement":"none"}`
	fails(t, r.declare(spec), capability.CodeUnavailable, "upstream_unavailable")
	r.halt()

	again := newRigOn(t, db, f, nil)
	d, err := again.Compare(markOf("one"), "far", []byte(spec))
	if err != nil || !d.Exists || len(d.Members) != 0 {
		t.Errorf("Compare after a restart = %+v, %v; want no difference", d, err)
	}
	f.set(func() { f.refuse = nil })
	again.listed("tool t")
}

func TestWrongDeclarationsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for name, spec := range map[string]string{
		"unknown member": `{"command":["x"],"comand":1}`, "wrong type": `{"command":7}`, "nothing": `{}`,
		"both": `{"command":["x"],"url":"https://far.example"}`, "a name": `{"name":"x","command":["x"]}`,
		"a mark": `{"managed":{"file":"x"},"command":["x"]}`, "a variable": `{"command":["x"],"env":{"LD_PRELOAD":"x"}}`,
	} {
		err := r.declare(spec)
		if e := capability.AsError(err); err == nil || e.Code != capability.CodeInvalidInput || e.Reason != "invalid_upstream" {
			t.Errorf("%s: got %v, want invalid_upstream", name, err)
		}
	}
	if got := len(r.List()); got != 0 {
		t.Errorf("%d upstreams, want none", got)
	}
}

// The defaults of the stored record do not differ from a declaration without them.
func TestEveryKindCanBeDeclaredTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for name, spec := range map[string]string{
		"program": `{"disabled":true,"command":["server"],"env":{"A":"b"},"env_secrets":{"B":"key"},"read_only":["/usr"]}`,
		"url":     `{"disabled":true,"url":"https://far.example/mcp","bearer_secret":"key","headers":{"X":"y"},"isolation":"principal"}`,
		"oauth":   `{"disabled":true,"url":"https://far.example/mcp","oauth":{"client_secret":"key","client_id":"c"}}`,
		"openapi": `{"disabled":true,"kind":"openapi","document":"https://far.example/api.json","url":"https://far.example","api_secret":"key"}`,
		"a2a":     `{"disabled":true,"kind":"a2a","url":"https://far.example","keys":[{"kty":"EC"}]}`,
		"image":   `{"disabled":true,"command":["docker","run","x"],"timeout_ms":1000,"changed_pin":"warn","sampling":"forward","roots":["/a"]}`,
	} {
		err := r.Declare(t.Context(), admin(), markOf("one"), name, []byte(spec))
		if err != nil {
			t.Errorf("declaring %s: %v, want no error", name, err)
			continue
		}
		if d, err := r.Compare(markOf("one"), name, []byte(spec)); err != nil || !d.Exists || len(d.Members) > 0 {
			t.Errorf("%s once more: %+v, %v; want no difference", name, d, err)
		}
	}
	db, f := r.db, r.far
	r.halt()
	again := newRigOn(t, db, f, nil)
	if got := again.Declared("one"); len(got) != 6 {
		t.Errorf("after a restart %v are declared, want six", got)
	}
	if d, err := again.Compare(markOf("one"), "image", []byte(`{"disabled":true,"command":["docker","run","y"]}`)); err != nil ||
		!slices.Equal(d.Members, []string{"changed_pin", "command", "roots", "sampling", "timeout_ms"}) {
		t.Errorf("another image: %+v, %v; want the members that differ", d, err)
	}
}
