package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/nodes/admission"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/internal/testkit/storetest"
	"github.com/junctor-run/junctor/secret"
)

func openPostgres(t testing.TB, url string) *DB {
	t.Helper()
	db, err := OpenPostgres(t.Context(), Postgres{URL: url, Password: secret.New(pgtest.Password)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestPostgresIsAStore(t *testing.T) {
	server := pgtest.Start(t)
	storetest.Run(t, func(t *testing.T) storetest.Stores {
		db := openPostgres(t, server.Database(t))
		return storetest.Stores{Policy: db, Outcomes: db, Index: db.Audit("a"), Nodes: admission.NewSQLStore(db), Held: db}
	})
	// The same with calls through two gateways' connections in turn.
	storetest.Run(t, func(t *testing.T) storetest.Stores {
		url := server.Database(t)
		a, b := openPostgres(t, url), openPostgres(t, url)
		both := &turns{a: a, b: b}
		return storetest.Stores{Policy: both, Outcomes: both, Nodes: both}
	})
}

func BenchmarkPostgres(b *testing.B) {
	db := openPostgres(b, pgtest.Start(b).Database(b))
	if err := db.CreateGrant(b.Context(), policy.Grant{ID: "g", State: "active", MaxUses: 1 << 40}); err != nil {
		b.Fatal(err)
	}
	b.Run("use a grant", func(b *testing.B) {
		for b.Loop() {
			if ok, err := db.UseGrant(b.Context(), "g", time.Now()); !ok || err != nil {
				b.Fatalf("ok = %v, err = %v, want ok && err == nil", ok, err)
			}
		}
	})
	b.Run("claim and finish a key", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			o := invoke.Outcome{Principal: "p", Key: fmt.Sprint(i), State: invoke.StateCreated, At: time.Now()}
			_, claimed, err := db.BeginOutcome(b.Context(), o, time.Hour, 10_000)
			o.State = invoke.StateCompleted
			if err := errors.Join(err, db.FinishOutcome(b.Context(), o)); !claimed || err != nil {
				b.Fatalf("claimed = %v, err = %v, want claimed && err == nil", claimed, err)
			}
		}
	})
}

func TestTheIndexOfEachGatewayIsItsOwn(t *testing.T) {
	server := pgtest.Start(t)
	url := server.Database(t)
	db := openPostgres(t, url)
	a, b := db.Audit("a"), db.Audit("b")
	add := func(x *AuditIndex, seq uint64, run string) {
		t.Helper()
		err := x.Add(t.Context(), []audit.Entry{{Seq: seq, Event: audit.CapabilityExecuted, Run: run, Time: time.Unix(1, 0)}},
			audit.Position{Seq: seq})
		if err != nil {
			t.Fatal(err)
		}
	}
	add(a, 1, "r")
	add(b, 1, "r")
	add(b, 2, "a zero \x00 byte and no \xff UTF-8")
	if err := a.AddCheckpoint(t.Context(), audit.Checkpoint{Seq: 1, Hash: "a"}); err != nil {
		t.Fatal(err)
	}
	found, err := b.Find(t.Context(), audit.Query{Limit: 10})
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v %v; want no error, len(found) = 2", found, err)
	}
	if found, err = b.Find(t.Context(), audit.Query{Run: "a zero \x00 byte and no \xff UTF-8", Limit: 10}); err != nil || len(found) != 1 {
		t.Errorf("%+v %v; want no error, len(found) = 1", found, err)
	}
	if points, err := b.Checkpoints(t.Context(), 0, 10); err != nil || len(points) != 0 {
		t.Errorf("%+v %v; want no error, len(points) = 0", points, err)
	}
	if got := server.Query(t, url, `SELECT gateway, seq FROM audit_index WHERE run = 'r' ORDER BY 1`); got != "a|1\nb|1" {
		t.Errorf(`a run on two gateways is found as %q; want got = "a|1\nb|1"`, got)
	}
	if err := b.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at, err := a.Position(t.Context()); err != nil || at.Seq != 1 {
		t.Errorf("%+v %v; want no error, at.Seq = 1", at, err)
	}
}

func TestGatewaysThatStartAtOnceMigrateOnce(t *testing.T) {
	url := pgtest.Start(t).Database(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			db, err := OpenPostgres(t.Context(), Postgres{URL: url, Password: secret.New(pgtest.Password)})
			if err != nil {
				t.Error(err)
				return
			}
			_, err = db.Tokens(t.Context())
			if err := errors.Join(err, db.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestATransactionThatMeetsAnotherIsRepeatedAndNotForever(t *testing.T) {
	db := openPostgres(t, pgtest.Start(t).Database(t))
	for _, id := range []string{"a", "b"} {
		if err := db.CreateGrant(t.Context(), policy.Grant{ID: id, State: "active"}); err != nil {
			t.Fatal(err)
		}
	}
	// Each takes one row and then wants the other's: the server ends one of them.
	var met, wg sync.WaitGroup
	met.Add(2)
	runs := make([]int, 2)
	for i, ids := range [][]string{{"a", "b"}, {"b", "a"}} {
		wg.Go(func() {
			err := db.InTx(t.Context(), fmt.Sprint("key ", i), func(tx *sql.Tx) error {
				runs[i]++
				for n, id := range ids {
					if _, err := tx.ExecContext(t.Context(), `UPDATE grants SET uses = uses + 1 WHERE id = ?`, id); err != nil {
						return err
					}
					if n == 0 && runs[i] == 1 {
						met.Done()
						met.Wait()
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	// The one that was ended may meet the other once more before that is done.
	if runs[0] != 1 && runs[1] != 1 || runs[0]+runs[1] < 3 {
		t.Errorf("%d and %d runs; one is ended and repeated, the other never; want not (runs[0] != 1 && runs[1] != 1), runs[0] "+
			"+ runs[1] at least 3", runs[0], runs[1])
	}
	all, err := db.Grants(t.Context())
	if err != nil || all[0].Uses != 2 || all[1].Uses != 2 {
		t.Errorf("%+v %v; want no error, all[0].Uses = 2, all[1].Uses = 2", all, err)
	}
	n := 0
	err = db.InTx(t.Context(), "key", func(tx *sql.Tx) error {
		n++
		_, err := tx.ExecContext(t.Context(), `DO $$ BEGIN RAISE EXCEPTION 'met' USING ERRCODE = '40001'; END $$`)
		return err
	})
	if e := capability.AsError(err); n != maxAttempts || e.Code != capability.CodeUnavailable || e.Reason != ReasonBusy {
		t.Errorf("%d runs, %v; want n = %v, e.Code = capability.CodeUnavailable, e.Reason = %v", n, err, maxAttempts, ReasonBusy)
	}
}

func TestWhatPostgresCannotKeepIsRefusedInWords(t *testing.T) {
	db := openPostgres(t, pgtest.Start(t).Database(t))
	for _, name := range []string{"a\x00b", "a\xffb"} {
		err := db.CreateToken(t.Context(), policy.Token{ID: "tok_1", Name: "n", View: name})
		if e := capability.AsError(err); e.Code != capability.CodeInvalidInput || e.Reason != ReasonUnkeepable {
			t.Errorf("%q: %v; want e.Code = capability.CodeInvalidInput, e.Reason = %v", name, err, ReasonUnkeepable)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.Tokens(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who left: %v; want err is context.Canceled", err)
	}
}

func TestWhoeverIsNotLetInHearsWhyAndNotTheSecret(t *testing.T) {
	server := pgtest.Start(t)
	url := server.Database(t)
	for name, tt := range map[string]struct{ url, password, says string }{
		"another password": {url, "not-the-password", "does not let this gateway in"},
		"no password":      {url, "", "does not let this gateway in"},
		"no database":      {url + "0", pgtest.Password, "has no such database"},
		"nobody there":     {strings.Replace(url, server.Port, "1", 1), pgtest.Password, "does not answer"},
	} {
		p := Postgres{URL: tt.url}
		if tt.password != "" {
			p.Password = secret.New(tt.password)
		}
		db, err := OpenPostgres(t.Context(), p)
		if err == nil {
			db.Close()
			t.Errorf("%s: opened", name)
			continue
		}
		e := capability.AsError(err)
		if e.Code != capability.CodeUnavailable || e.Reason != ReasonUnavailable || !strings.Contains(e.Message, tt.says) {
			t.Errorf("%s: %v; want e.Code = capability.CodeUnavailable, e.Reason = %v, e.Message with %v",
				name, err, ReasonUnavailable, tt.says)
		}
		if text := fmt.Sprintf("%v %+v %v", err, err, e.Err); tt.password != "" && strings.Contains(text, tt.password) {
			t.Errorf(`%s: the password is in %s; want not (tt.password != "" && strings.Contains(text, tt.password))`, name, text)
		}
	}
}

func TestWatchTellsOfEveryChangeAndComesBackAfterAnOutage(t *testing.T) {
	server := pgtest.Start(t)
	url := server.Database(t)
	a, b := openPostgres(t, url), openPostgres(t, url)
	heard, states := make(chan string, 100), make(chan Health, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	fail := make(chan error, 1)
	wg.Go(func() {
		err := b.Watch(ctx, func(_ context.Context, table string) error {
			var err error
			select {
			case err = <-fail:
			default:
			}
			heard <- table
			return err
		}, func(h Health) { states <- h })
		if err != nil {
			t.Error(err)
		}
	})
	next := func(want string) {
		t.Helper()
		select {
		case got := <-heard:
			if got != want {
				t.Fatalf("heard of %q, not of %q; want got = %v", got, want, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("heard nothing of %q", want)
		}
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	next("")
	ok(a.CreateToken(t.Context(), policy.Token{ID: "tok_1", Name: "n"}))
	next("tokens")
	_, err := a.RevokeToken(t.Context(), "n", time.Now())
	ok(err)
	next("tokens")
	ok(a.CreateGrant(t.Context(), policy.Grant{ID: "grt_1", State: "active", MaxUses: 3}))
	next("grants")
	_, err = a.UseGrant(t.Context(), "grt_1", time.Now()) // no news
	ok(err)
	_, err = a.RevokeGrant(t.Context(), "grt_1", time.Now())
	ok(err)
	next("grants")
	fail <- errors.New("it could not be read") // then all is read again
	ok(a.CreateGrant(t.Context(), policy.Grant{ID: "grt_2", State: "active"}))
	next("grants")
	next("")
	for _, down := range []bool{true, false} {
		if h := <-states; h.Down != down || h.Since.IsZero() {
			t.Fatalf("%+v; want h.Down = %v, not h.Since.IsZero()", h, down)
		}
	}

	server.Stop(t)
	if h := <-states; !h.Down || h.Cause == "" || !b.Health().Down {
		t.Fatalf(`%+v; want h.Down = true, h.Cause other than "", b.Health().Down = true`, h)
	}
	if _, err := b.Tokens(t.Context()); capability.AsError(err).Reason != ReasonUnavailable {
		t.Errorf("asked while it was away: %v; want capability.AsError(err).Reason = %v", err, ReasonUnavailable)
	}
	server.Run(t)
	next("")
	if h := <-states; h.Down {
		t.Fatalf("%+v; want h.Down = false", h)
	}
	ok(a.CreateGrant(t.Context(), policy.Grant{ID: "grt_3", State: "active"}))
	next("grants")
	cancel()
	wg.Wait()
	select {
	case got := <-heard:
		t.Errorf("heard of %q too often", got)
	default:
	}
}

func TestADatabaseOnAServerIsAskedAndALaterOneRefused(t *testing.T) {
	server := pgtest.Start(t)
	url := server.Database(t)
	at := Postgres{URL: url, Password: secret.New(pgtest.Password)}
	if err := Reach(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	if n := server.Query(t, url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"); strings.TrimSpace(n) != "0" {
		t.Errorf(`asking made %s tables; want strings.TrimSpace(n) = "0"`, n)
	}
	wrong := at
	wrong.Password = secret.New("wrong")
	if e := capability.AsError(Reach(t.Context(), wrong)); e == nil || e.Reason != ReasonUnavailable || e.Hint == "" {
		t.Errorf(`with a wrong password: %+v; want e not nil, e.Reason = %v, e.Hint other than ""`, e, ReasonUnavailable)
	}
	db := openPostgres(t, url)
	if _, err := db.SQL().ExecContext(t.Context(), "INSERT INTO schema_core (version_id, is_applied) VALUES (99, true)"); err != nil {
		t.Fatal(err)
	}
	_, err := OpenPostgres(t.Context(), at)
	if e := capability.AsError(err); e == nil || e.Reason != ReasonNewer || e.Hint == "" {
		t.Errorf(`a later database is opened: %v; want e not nil, e.Reason = %v, e.Hint other than ""`, err, ReasonNewer)
	}
	if place := PlaceOf(url); place == "" || strings.Contains(place, pgtest.Password) || PlaceOf("nonsense") == "" {
		t.Errorf(`the place is %q; want place other than "", place without pgtest.Password, PlaceOf("nonsense") other than ""`, place)
	}
}
