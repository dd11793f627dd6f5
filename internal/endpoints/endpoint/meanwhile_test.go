package endpoint_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
)

// While modules are started the world goes on: what is decided afterwards is
// decided by what is there then, and what was started in vain is stopped.

const takesX = `"routes":[{"method":"GET","path":"/x"}]`

// on runs f in the first call of that name.
func (h *hooks) on(call string, f func()) {
	once := sync.OnceFunc(f)
	h.meanwhile(func(c string) {
		if c == call {
			once()
		}
	})
}

func TestANameThatIsTakenWhileAModuleStarts(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	robber, _ := scripted(t, manifest("robber", takesX))
	h, a, hk := living(t, withHooks("m", takesX, "init", "dispose"))
	hk.on("init m", func() { r.connect("robber", robber) })
	_, _, err := r.Connect(t.Context(), endpoint.Request{ID: "e", BaseURL: h.url(), Persist: true})
	fails(t, err, capability.CodeConflict, "registration_conflict")
	hk.want(t, "init m", "dispose m")
	if len(r.List()) != 1 {
		t.Errorf("%+v; want len(r.List()) = 1", r.List())
	}
	if err := r.Disconnect(t.Context(), admin(), "robber"); err != nil {
		t.Fatal(err)
	}
	// In a sync the same: the new module does not come in, nor does its old form
	// come back, which was stopped; the others stay.
	a.offer(withHooks("m", "", "init", "dispose"), manifest("other", oneAction))
	r.connect("e", h)
	hk.took()
	a.offer(withHooks("m", takesX, "init", "dispose"), manifest("other", oneAction))
	hk.on("init m", func() { r.connect("robber", robber) })
	reports, err := r.Sync(t.Context(), admin(), "e")
	if err != nil || reports[0].Error == nil || reports[0].Error.Code != capability.CodeConflict {
		t.Fatalf("%+v %v; want no error, reports[0].Error not nil, reports[0].Error.Code = capability.CodeConflict", reports, err)
	}
	hk.want(t, "dispose m", "init m", "dispose m")
	_, err = r.call("m:action:GO", `{}`)
	fails(t, err, capability.CodeUnknownCapability, "")
	r.must("other:action:GO", `{}`)
	if err := r.Disconnect(t.Context(), admin(), "robber"); err != nil {
		t.Fatal(err)
	}
	r.eventually("it comes in", func() bool { _, err := r.call("m:action:GO", `{}`); return err == nil })
}

func TestAnIDThatIsTakenWhileAModuleStarts(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	other, _ := scripted(t, manifest("other", oneAction))
	h, _, hk := living(t, withHooks("m", "", "init", "dispose"))
	hk.on("init m", func() { r.connect("e", other) })
	_, _, err := r.Connect(t.Context(), endpoint.Request{ID: "e", BaseURL: h.url()})
	if e := fails(t, err, capability.CodeConflict, "registration_conflict"); !strings.Contains(e.Message, "meanwhile") {
		t.Errorf(`e.Message = %q, want it to contain "meanwhile"`, e.Message)
	}
	hk.want(t, "init m", "dispose m")
	r.must("other:action:GO", `{}`)
}

func TestAnEndpointThatIsDisconnectedWhileItsModulesStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, a, hk := living(t, withHooks("m", "", "init", "dispose"))
	r.connect("e", h)
	hk.took()
	a.offer(withHooks("m", `"priority":1`, "init", "dispose"))
	gone := make(chan error, 1)
	withdrawn := make(chan struct{})
	hk.on("init m", func() {
		go func() { gone <- r.Disconnect(t.Context(), admin(), "e") }() // it waits for the hooks with its own
		go func() {
			defer close(withdrawn)
			r.eventually("it is withdrawn", func() bool { return len(r.List()) == 0 })
		}()
		<-withdrawn
	})
	reports, err := r.Sync(t.Context(), admin(), "e")
	if err != nil || reports[0].Error == nil || reports[0].Error.Code != capability.CodeNotFound {
		t.Errorf("%+v %v; want no error, reports[0].Error not nil, reports[0].Error.Code = capability.CodeNotFound", reports, err)
	}
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
	if hk.started()["m"] || r.catalog.Snapshot().Len() != 0 {
		t.Error("something is left")
	}
}

// A stop of ours while modules start leaves none of them started in vain.
func TestAStopWhileModulesStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, _, hk := living(t, withHooks("m", "", "init", "dispose"))
	hk.on("init m", r.halt)
	_, _, err := r.Connect(t.Context(), endpoint.Request{ID: "e", BaseURL: h.url(), Persist: true})
	fails(t, err, capability.CodeUnavailable, "service_unavailable")
	hk.want(t, "init m", "dispose m")
	saved, err := endpoint.NewSQLStore(r.db.SQL()).Endpoints(t.Context())
	if err != nil || len(saved) != 0 || r.vault.len() != 0 {
		t.Errorf("%+v %v; want no error, len(saved) = 0, r.vault.len() = 0", saved, err)
	}
}
