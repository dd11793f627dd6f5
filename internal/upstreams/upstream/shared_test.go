package upstream_test

import (
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/upstreamsql"
	"github.com/junctor-run/junctor/secret"
)

// pair is two registries on one shared store, which reach the same upstream.
func pair(t *testing.T) (a, b *rig) {
	t.Helper()
	url := pgtest.Start(t).Database(t)
	f := newFar()
	open := func() *rig {
		db, err := store.OpenPostgres(t.Context(), store.Postgres{URL: url, Password: secret.New(pgtest.Password)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		if err := upstreamsql.Tables().Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		return newRigOn(t, db, f, nil)
	}
	return open(), open()
}

func (r *rig) refresh() {
	r.Helper()
	if err := r.Refresh(r.Context()); err != nil {
		r.Fatal(err)
	}
}

func TestWhatAnotherServerDoesIsTakenOver(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.far.offer(ingest.Tool, def("t", ""), def("u", ""))
	a.add("far", func(rec *record.Record) { rec.Trust = record.Untrusted })
	b.refresh()
	b.eventually("it is connected", func() bool { s, err := b.Show("far"); return err == nil && s.State == capability.StateReady })
	b.listed()
	if _, err := a.Approve(t.Context(), admin(), "far", upstream.Selection{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	b.refresh()
	b.listed("tool t")

	a.far.offer(ingest.Tool, def("t", `"title":"New"`), def("u", ""))
	for _, r := range []*rig{a, b} {
		r.eventually("both hold it", func() bool { s, _ := r.Show("far"); return s.Counts.Held == 1 })
	}
	if _, err := b.Approve(t.Context(), admin(), "far", upstream.Selection{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	a.refresh()
	if _, err := a.tool("t", `{}`); err != nil {
		t.Error(err)
	}

	if err := b.Remove(t.Context(), admin(), "far"); err != nil {
		t.Fatal(err)
	}
	a.refresh()
	if len(a.List()) != 0 {
		t.Error("it is there still; want len(a.List()) = 0")
	}
	a.add("far", nil) // once more, and otherwise
	b.refresh()
	b.listed("tool t", "tool u")
}

func TestARecordThatCannotBeReadHidesNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", nil)
	r.add("broken", nil)
	r.halt()
	if _, err := r.db.SQL().ExecContext(t.Context(), `UPDATE upstreams SET doc = '{"name":"broken","trust":7}' WHERE name = 'broken'`); err != nil {
		t.Fatal(err)
	}
	if _, err := r.db.SQL().ExecContext(t.Context(), `UPDATE upstream_pins SET definition = 'x' WHERE upstream = 'far'`); err != nil {
		t.Fatal(err)
	}
	again := newRigOn(t, r.db, r.far, nil)
	again.listed("tool t") // once it has been seen again
	s, err := again.Show("broken")
	if err != nil || s.State != capability.StateUnavailable || !s.Disabled || len(s.Definitions) != 0 {
		t.Errorf("%v: %+v; want no error, s.State = capability.StateUnavailable, s.Disabled = true, len(s.Definitions) = 0", err, s)
	}
	if err := again.Remove(t.Context(), admin(), "broken"); err != nil {
		t.Error(err)
	}
}
