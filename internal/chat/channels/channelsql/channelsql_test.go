package channelsql_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/internal/chat/channels/channelsql"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/secret"
)

var (
	ref = channels.Ref{Kind: "telegram", Account: "work"}
	now = time.Date(2026, 3, 1, 10, 0, 0, 123, time.UTC)
)

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: got %v, want no error", what, err)
	}
}

func contract(t *testing.T, db *store.DB) {
	t.Helper()
	ctx := t.Context()
	s, err := channelsql.Open(ctx, db)
	must(t, "open", err)
	a := channels.Account{Ref: ref, Gateway: "g", Secret: "bot", Greet: true, Added: now}
	must(t, "create", s.CreateAccount(ctx, a))
	if err := s.CreateAccount(ctx, a); capability.CodeOf(err) != capability.CodeConflict {
		t.Errorf("the account again: got %v, want conflict", err)
	}

	// Updates are stored once, with the cursor, until they are handled.
	u := func(id string) channels.Update {
		return channels.Update{ID: id, Kind: channels.Wrote, Conversation: "c", User: "u", Text: "text " + id}
	}
	fresh, err := s.Receive(ctx, ref, "3", []channels.Update{u("1"), u("2"), u("1")}, now)
	must(t, "receive", err)
	if len(fresh) != 2 || fresh[0].Update.ID != "1" || fresh[1].Seq <= fresh[0].Seq {
		t.Fatalf("received: got %+v, want 1 and 2", fresh)
	}
	again, err := s.Receive(ctx, ref, "4", []channels.Update{u("2"), u("3")}, now)
	if err != nil || len(again) != 1 || again[0].Update.ID != "3" {
		t.Errorf("received again: got %+v, %v; want 3 only", again, err)
	}
	must(t, "handled", s.Handled(ctx, fresh[0].Seq))
	must(t, "begun", s.Begun(ctx, fresh[1].Seq))
	left, err := s.Unhandled(ctx, ref, 0, 10)
	if err != nil || len(left) != 2 || left[0].Update.Text != "text 2" || !left[0].Begun || !left[0].Again || left[1].Begun {
		t.Errorf("unhandled: got %+v, %v; want 2, begun, and 3", left, err)
	}
	a.Cursor = "4"
	list, err := s.Accounts(ctx)
	if d := cmp.Diff([]channels.Account{a}, list); d != "" || err != nil {
		t.Errorf("accounts (%v) differ (-want +got):\n%s", err, d)
	}

	// A key has one send; the text of one that has ended is gone, unless it shows an approval.
	send := func(key, about string) channels.Send {
		t.Helper()
		v := channels.Send{Ref: ref, About: about, State: channels.SendPending, Created: now}
		v.Op = channels.Op{Verb: channels.VerbSend, Key: key, Conversation: "c", Text: "hi"}
		got, created, err := s.CreateSend(ctx, v)
		if err != nil || !created {
			t.Fatalf("create %s: got %v, %v; want it created", key, created, err)
		}
		return got
	}
	plain, prompt := send("k1", ""), send("k2", "apr_1")
	twice := channels.Send{Ref: ref, Op: channels.Op{Key: "k1"}, Created: now}
	if got, created, err := s.CreateSend(ctx, twice); err != nil || created || got.ID != plain.ID {
		t.Errorf("the key again: got %+v, %v, %v; want the first send", got, created, err)
	}
	if open, err := s.Unsent(ctx, ref, 0, 10); err != nil || len(open) != 2 || open[0].Op.Text != "hi" {
		t.Errorf("unsent: got %+v, %v; want both", open, err)
	}
	plain.State, plain.Error = channels.SendUnknown, channels.DeliveryUnknown(nil)
	prompt.State, prompt.ServiceID = channels.SendDone, "77"
	must(t, "save", s.SaveSend(ctx, plain, now))
	must(t, "save", s.SaveSend(ctx, prompt, now))
	got, _, err := s.CreateSend(ctx, twice)
	if err != nil || got.Op.Text != "" || got.Error == nil || got.Error.Reason != channels.ReasonDeliveryUnknown {
		t.Errorf("the ended send: got %+v, %v; want no text and delivery_unknown", got, err)
	}
	if as, err := s.ShownAs(ctx, ref, "c", "77"); err != nil || as.About != "apr_1" || as.Op.Text != "hi" {
		t.Errorf("shown as 77: got %+v, %v; want the approval", as, err)
	}
	must(t, "settled", s.Settled(ctx, "apr_1"))
	if shown, err := s.Shown(ctx, "apr_1"); err != nil || len(shown) != 1 || shown[0].Op.Text != "" || shown[0].Op.Key != "k2" {
		t.Errorf("shown: got %+v, %v; want the send without its text", shown, err)
	}
	if _, err := s.ShownAs(ctx, ref, "c", ""); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("shown as nothing: got %v, want not_found", err)
	}

	p := channels.Person{Ref: ref, User: "u", Principal: "agent:x", Role: capability.RoleAgent, Paired: now}
	must(t, "person", s.SavePerson(ctx, p))
	p.Owned = true
	must(t, "person", s.SavePerson(ctx, p))
	if got, err := s.Person(ctx, ref, "u"); err != nil || got != p {
		t.Errorf("person: got %+v, %v; want %+v", got, err, p)
	}
	must(t, "code", s.CreateCode(ctx, channels.Code{Ref: ref, Hash: "h", Role: capability.RoleAgent, Expires: now.Add(time.Minute)}, now))
	if _, err := s.UseCode(ctx, ref, "other", now); capability.AsError(err).Reason != "pairing_code_wrong" {
		t.Errorf("a wrong code: got %v, want pairing_code_wrong", err)
	}
	if c, err := s.UseCode(ctx, ref, "h", now); err != nil || c.Role != capability.RoleAgent {
		t.Errorf("the code: got %+v, %v; want it", c, err)
	}

	must(t, "sweep", s.Sweep(ctx, now.Add(time.Hour)))
	if left, err := s.Unhandled(ctx, ref, 0, 10); err != nil || len(left) != 2 {
		t.Errorf("after the sweep: got %d open updates, %v; want 2", len(left), err)
	}
	if shown, err := s.Shown(ctx, "apr_1"); err != nil || len(shown) != 0 {
		t.Errorf("after the sweep: got %d sends, %v; want none", len(shown), err)
	}
	must(t, "delete", s.DeleteAccount(ctx, ref))
	if people, err := s.People(ctx, channels.Ref{}); err != nil || len(people) != 0 {
		t.Errorf("after the removal: got %+v, %v; want none", people, err)
	}
	if err := s.DeleteAccount(ctx, ref); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("the removal again: got %v, want not_found", err)
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	must(t, "open", err)
	t.Cleanup(func() { _ = db.Close() })
	contract(t, db)
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	db, err := store.OpenPostgres(t.Context(), store.Postgres{URL: server.Database(t), Password: secret.New(pgtest.Password)})
	must(t, "open", err)
	t.Cleanup(func() { _ = db.Close() })
	contract(t, db)
}
