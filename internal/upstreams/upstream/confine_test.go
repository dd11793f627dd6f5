package upstream_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/upstreamsql"
)

// paperWalls decide like a sandbox, and start nothing, because the clients of a rig start nothing.
type paperWalls struct{ gone atomic.Bool }

func (w *paperWalls) Facts() sandbox.Facts { return sandbox.Facts{Tier: sandbox.T3} }

func (w *paperWalls) Place(c sandbox.Confinement) (sandbox.Placement, error) {
	if w.gone.Load() {
		return sandbox.Placement{}, capability.Errorf(capability.CodeUnavailable, "sandbox.place", "there is none").
			With("sandbox_unavailable", "")
	}
	return sandbox.Placement{Tier: sandbox.T3, Network: c.Network}, nil
}

func (w *paperWalls) Permits(sandbox.Confinement) error { return nil }

func (w *paperWalls) Start(sandbox.Spec, sandbox.Confinement, sandbox.Streams) (*sandbox.Process, error) {
	return nil, errors.New("nothing is started in this test")
}

func (w *paperWalls) Shows(c sandbox.Confinement, path string) bool {
	return slices.Contains(slices.Concat(c.ReadOnly, c.ReadWrite), path)
}

// stored is a rig over a store that already holds upstreams.
func stored(t *testing.T, walls upstream.Walls, saved ...upstream.Saved) *rig {
	t.Helper()
	db := database(t)
	for _, s := range saved {
		if err := upstreamsql.New(db).Save(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	return newRigOn(t, db, newFar(), func(c *upstream.Config) { c.Walls = walls })
}

func TestUpstreamStoredBeforeConfinementIsListedAsUnconfined(t *testing.T) {
	t.Parallel()
	r := stored(t, new(paperWalls), upstream.Saved{Record: record.Record{Name: "far", Command: []string{"server"}}},
		upstream.Saved{Record: record.Record{Name: "box", Command: []string{"docker", "run", "image"}}})
	r.far.offer(ingest.Tool, def("t", ""))
	r.eventually("it is connected as before", func() bool { s, err := r.Show("far"); return err == nil && s.State == capability.StateReady })
	s, err := r.Show("far")
	if err != nil || s.Confinement != record.Unconfined || !s.Undecided {
		t.Errorf("the stored upstream = %q, undecided %v, %v, want none and undecided", s.Confinement, s.Undecided, err)
	}
	if s, err := r.Show("box"); err != nil || s.Confinement != record.Container || s.Undecided {
		t.Errorf("the stored container = %q, undecided %v, %v, want a container", s.Confinement, s.Undecided, err)
	}
}

func TestConfiningAnUpstreamKeepsItsApprovals(t *testing.T) {
	t.Parallel()
	r := stored(t, new(paperWalls))
	r.far.offer(ingest.Tool, def("t", ""), def("u", ""))
	r.add("far", func(rec *record.Record) { rec.Trust = record.Untrusted })
	if _, err := r.Approve(t.Context(), admin(), "far", upstream.Selection{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	r.listed("tool t")
	s, err := r.Confine(t.Context(), admin(), "far", upstream.Walled{ReadOnly: []string{"/srv/docs"}, Network: []string{record.NetworkNone}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Confinement != record.Sandboxed || !slices.Equal(s.ReadOnly, []string{"/srv/docs"}) || s.Counts.Quarantined != 1 {
		t.Errorf("Confine = %s reading %v, %d in quarantine, want sandbox, /srv/docs and 1", s.Confinement, s.ReadOnly, s.Counts.Quarantined)
	}
	r.listed("tool t")
	if _, err := r.tool("t", `{}`); err != nil {
		t.Errorf("a call after Confine: %v", err)
	}
	saved, err := upstreamsql.New(r.db).Upstreams(t.Context())
	if err != nil || len(saved) != 1 || saved[0].Record.Confinement != record.Sandboxed || len(saved[0].Pins) != 2 {
		t.Errorf("the store holds %+v, %v, want one confined upstream with two pins", saved, err)
	}
}

func TestFailedConfineChangesNothing(t *testing.T) {
	t.Parallel()
	walls := new(paperWalls)
	r := stored(t, walls)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", nil)
	walls.gone.Store(true)
	_, err := r.Confine(t.Context(), admin(), "far", upstream.Walled{})
	fails(t, err, capability.CodeUnavailable, "sandbox_unavailable")
	_, err = r.Confine(t.Context(), admin(), "far", upstream.Walled{Network: []string{"all", "none"}})
	fails(t, err, capability.CodeInvalidInput, "invalid_upstream")
	if s, err := r.Show("far"); err != nil || s.Confinement != record.Unconfined || s.State != capability.StateReady {
		t.Errorf("Show after a failed Confine = %s, %s, %v, want it as before", s.Confinement, s.State, err)
	}
}

func TestConfinedUpstreamNeverStartsUnconfined(t *testing.T) {
	t.Parallel()
	walls := new(paperWalls)
	walls.gone.Store(true)
	r := stored(t, walls, upstream.Saved{Record: record.Record{Name: "far", Command: []string{"server"}, Confinement: record.Sandboxed}})
	r.eventually("it was tried", func() bool {
		s, err := r.Show("far")
		return err == nil && s.Reason != "it has not been reached yet since this server started"
	})
	if made, _, _ := r.far.counts(); made != 0 {
		t.Errorf("%d connections were made without a sandbox, want none", made)
	}
	rec := recordOf("new")
	rec.Confinement = ""
	_, err := r.Add(t.Context(), admin(), rec)
	fails(t, err, capability.CodeUnavailable, "sandbox_unavailable")
}
