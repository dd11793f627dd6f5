package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

func token(id, name string) policy.Token {
	return policy.Token{ID: id, Name: name, Role: capability.RoleAgent, Hash: "hash of " + id, Created: day(0)}
}

func tokensComeBack(t *testing.T, s Stores) {
	full := token("tok_2", "two")
	full.Labels, full.View, full.Expires, full.Created = []string{"home", `od"d`}, "coding", day(9), day(1)
	full.Most = capability.EffectWrite
	full.OnBehalfOf = &policy.Delegation{Token: "tok_0", By: capability.Principal{
		ID: "agent:oidc/x", Role: capability.RoleAgent,
		Labels: []string{"home"}, Scoped: true, Most: capability.EffectRead,
	}}
	ok(t, s.Policy.CreateToken(t.Context(), full))
	ok(t, s.Policy.CreateToken(t.Context(), token("tok_1", "one")))
	gone, err := s.Policy.RevokeToken(t.Context(), "two", day(2))
	ok(t, err)
	full.Revoked = day(2)
	same(t, gone, full)
	got, err := s.Policy.Tokens(t.Context())
	ok(t, err)
	same(t, got, []policy.Token{token("tok_1", "one"), full})
	for _, at := range []time.Time{day(3), day(5), day(4)} {
		ok(t, s.Policy.UseToken(t.Context(), "tok_1", at))
	}
	ok(t, s.Policy.UseToken(t.Context(), "tok_9", day(3)))
	used := token("tok_1", "one")
	used.Used = day(5)
	got, err = s.Policy.Tokens(t.Context())
	ok(t, err)
	same(t, got, []policy.Token{used, full})
}

func tokenNames(t *testing.T, s Stores) {
	ok(t, s.Policy.CreateToken(t.Context(), token("tok_1", "ann")))
	code(t, s.Policy.CreateToken(t.Context(), token("tok_2", "ann")), capability.CodeConflict)
	code(t, s.Policy.CreateToken(t.Context(), token("tok_1", "bob")), capability.CodeConflict)
	_, err := s.Policy.RevokeToken(t.Context(), "nobody", day(1))
	code(t, err, capability.CodeNotFound)
	_, err = s.Policy.RevokeToken(t.Context(), "tok_1", day(1))
	ok(t, err)
	_, err = s.Policy.RevokeToken(t.Context(), "tok_1", day(1))
	code(t, err, capability.CodeNotFound)
	short := token("tok_3", "ann")
	short.Expires = day(1)
	ok(t, s.Policy.CreateToken(t.Context(), short))
	next := token("tok_4", "ann")
	next.Created = day(2)
	ok(t, s.Policy.CreateToken(t.Context(), next))
	got, err := s.Policy.RevokeToken(t.Context(), "ann", day(3))
	ok(t, err)
	if got.ID != "tok_4" {
		t.Fatalf("revoked %s, not the live one", got.ID)
	}
}

func tokensAreProlonged(t *testing.T, s Stores) {
	short, endless := token("tok_1", "ann"), token("tok_2", "bob")
	short.Expires = day(2)
	ok(t, s.Policy.CreateToken(t.Context(), short))
	ok(t, s.Policy.CreateToken(t.Context(), endless))
	for _, c := range []struct {
		id          string
		until, want time.Time
	}{
		{"tok_1", day(5), day(5)},
		{"tok_1", day(3), day(5)}, // never earlier
		{"tok_2", day(5), time.Time{}},
	} {
		got, err := s.Policy.ProlongToken(t.Context(), c.id, c.until)
		ok(t, err)
		if !got.Expires.Equal(c.want) {
			t.Errorf("prolonging %s until %v: it ends at %v, want %v", c.id, c.until, got.Expires, c.want)
		}
	}
	_, err := s.Policy.RevokeToken(t.Context(), "tok_1", day(1))
	ok(t, err)
	_, err = s.Policy.ProlongToken(t.Context(), "tok_1", day(9))
	code(t, err, capability.CodeNotFound)
	_, err = s.Policy.ProlongToken(t.Context(), "bob", day(9)) // by id only
	code(t, err, capability.CodeNotFound)
}

func tokenRace(t *testing.T, s Stores) {
	n := winners(t, 12, func(i int) (bool, error) {
		err := s.Policy.CreateToken(t.Context(), token(fmt.Sprintf("tok_%d", i), "ann"))
		if capability.CodeOf(err) == capability.CodeConflict {
			return false, nil
		}
		return err == nil, err
	})
	if n != 1 {
		t.Fatalf("%d live tokens of one name", n)
	}
}

func approval(id string) policy.Approval {
	return policy.Approval{
		ID: id, Kind: "call",
		Binding: policy.Binding{Principal: "agent:a", Capability: "x/y#fs.write@z", ContentHash: "c", InputDigest: "d"},
		Module:  "x", Session: "s", Permissions: []string{"fs.write"}, Effect: capability.EffectWrite, Summary: "write a file",
		Channel: policy.ChannelOperator, State: policy.ApprovalPending, Asked: day(0), Expires: day(1),
	}
}

func approvalAskedOnce(t *testing.T, s Stores) {
	first := approval("cnf_1")
	got, created, err := s.Policy.AskApproval(t.Context(), first, 32)
	ok(t, err)
	same(t, got, first)
	if !created {
		t.Fatal("not created")
	}
	got, created, err = s.Policy.AskApproval(t.Context(), approval("cnf_2"), 32)
	ok(t, err)
	same(t, got, first)
	if created {
		t.Fatal("asked twice")
	}
	other := approval("cnf_3")
	other.InputDigest, other.Asked = "e", first.Asked.Add(time.Hour)
	_, created, err = s.Policy.AskApproval(t.Context(), other, 32)
	ok(t, err)
	late := approval("cnf_4")
	late.Asked, late.Expires = day(1), day(2)
	_, createdLate, err := s.Policy.AskApproval(t.Context(), late, 32)
	ok(t, err)
	if !created || !createdLate {
		t.Fatal("another binding, or an expired question, was taken for the same")
	}
	all, err := s.Policy.Approvals(t.Context(), "", "", 2)
	ok(t, err)
	same(t, all, []policy.Approval{late, other})
	back, err := s.Policy.Approval(t.Context(), "cnf_1")
	ok(t, err)
	same(t, back, first)
	_, err = s.Policy.Approval(t.Context(), "cnf_9")
	code(t, err, capability.CodeNotFound)

	n := winners(t, 12, func(i int) (bool, error) {
		a := approval(fmt.Sprintf("cnf_r%d", i))
		a.InputDigest = "raced"
		_, created, err := s.Policy.AskApproval(t.Context(), a, 32)
		return created, err
	})
	if n != 1 {
		t.Fatalf("%d questions about one thing", n)
	}
}

func approvalViews(t *testing.T, s Stores) {
	a := approval("cnf_1")
	a.Shown = policy.Shown{Argv: []policy.ShownValue{{Value: `"rm"`}}}
	a.Shown.Members = []policy.ShownValue{{Name: "a", Value: `"x`, Bytes: 9, SHA256: "ab"}}
	a.Barred, a.Input = "operator:o", []byte("{\"a\":\"\xff\"}")
	got, _, err := s.Policy.AskApproval(t.Context(), a, 32)
	ok(t, err)
	want := a
	want.Input = nil
	same(t, got, want)
	back, err := s.Policy.Approval(t.Context(), "cnf_1")
	ok(t, err)
	same(t, back, want)
	input, err := s.Policy.ApprovalInput(t.Context(), "cnf_1")
	ok(t, err)
	same(t, input, a.Input)
	_, err = s.Policy.DecideApproval(t.Context(), "cnf_1", policy.DecideOnce, "o", day(0), day(1))
	ok(t, err)
	input, err = s.Policy.ApprovalInput(t.Context(), "cnf_1")
	ok(t, err)
	same(t, len(input), 0)
	_, err = s.Policy.ApprovalInput(t.Context(), "cnf_9")
	code(t, err, capability.CodeNotFound)
}

func approvalsBounded(t *testing.T, s Stores) {
	ask := func(id, principal string) error {
		a := approval(id)
		a.Principal, a.InputDigest, a.Asked = principal, id, day(0).Add(time.Duration(id[len(id)-1])*time.Second)
		_, _, err := s.Policy.AskApproval(t.Context(), a, 3)
		return err
	}
	for _, id := range []string{"cnf_1", "cnf_2", "cnf_3"} {
		ok(t, ask(id, "agent:a"))
	}
	code(t, ask("cnf_4", "agent:a"), capability.CodeOverloaded)
	ok(t, ask("cnf_2", "agent:a")) // the same question again
	ok(t, ask("cnf_5", "agent:b"))
	var ids []string
	for after := ""; ; after = ids[len(ids)-1] {
		list, err := s.Policy.Approvals(t.Context(), policy.ApprovalPending, after, 2)
		ok(t, err)
		if len(list) == 0 {
			break
		}
		for _, a := range list {
			ids = append(ids, a.ID)
		}
	}
	same(t, ids, []string{"cnf_5", "cnf_3", "cnf_2", "cnf_1"})
	b := approval("cnf_1").Binding
	b.InputDigest = "cnf_1"
	denied := func(now time.Time) string {
		t.Helper()
		a, _, err := s.Policy.DeniedApproval(t.Context(), b, now)
		ok(t, err)
		return a.ID
	}
	same(t, denied(day(0)), "")
	_, err := s.Policy.DecideApproval(t.Context(), "cnf_1", policy.DecideDeny, "o", day(0), day(1))
	ok(t, err)
	same(t, denied(day(0)), "cnf_1")
	same(t, denied(day(1)), "")
	ok(t, ask("cnf_4", "agent:a"))
}

func approvalDecidedOnce(t *testing.T, s Stores) {
	_, _, err := s.Policy.AskApproval(t.Context(), approval("cnf_1"), 32)
	ok(t, err)
	at := day(0).Add(time.Minute)
	n := winners(t, 12, func(i int) (bool, error) {
		dec := policy.DecideOnce
		if i%2 == 0 {
			dec = policy.DecideDeny
		}
		_, err := s.Policy.DecideApproval(t.Context(), "cnf_1", dec, "operator:o", at, at.Add(time.Hour))
		if capability.CodeOf(err) == capability.CodeConflict {
			return false, nil
		}
		return err == nil, err
	})
	if n != 1 {
		t.Fatalf("decided %d times", n)
	}
	a, err := s.Policy.Approval(t.Context(), "cnf_1")
	ok(t, err)
	want := approval("cnf_1")
	want.DecidedBy, want.Decided = "operator:o", at
	want.State, want.Decision = policy.ApprovalDenied, policy.DecideDeny
	if a.Decision == policy.DecideOnce {
		want.State, want.Decision, want.UsableUntil = policy.ApprovalApproved, policy.DecideOnce, at.Add(time.Hour)
	}
	same(t, a, want)
	_, err = s.Policy.DecideApproval(t.Context(), "cnf_9", policy.DecideDeny, "o", at, at)
	code(t, err, capability.CodeNotFound)
	late := approval("cnf_2")
	late.InputDigest = "other"
	_, _, err = s.Policy.AskApproval(t.Context(), late, 32)
	ok(t, err)
	_, err = s.Policy.DecideApproval(t.Context(), "cnf_2", policy.DecideAlways, "o", late.Expires, day(3))
	code(t, err, capability.CodeConflict)
}

func approvalConsumedOnce(t *testing.T, s Stores) {
	a := approval("cnf_1")
	_, _, err := s.Policy.AskApproval(t.Context(), a, 32)
	ok(t, err)
	at := day(0).Add(time.Minute)
	none := func(why string, b policy.Binding, now time.Time) {
		t.Helper()
		if id, got, err := s.Policy.ConsumeApproval(t.Context(), b, now); err != nil || got {
			t.Fatalf("%s: consumed %s, %v", why, id, err)
		}
	}
	none("pending", a.Binding, at)
	_, err = s.Policy.DecideApproval(t.Context(), "cnf_1", policy.DecideOnce, "o", at, at.Add(15*time.Minute))
	ok(t, err)
	none("too late", a.Binding, at.Add(15*time.Minute))
	for _, change := range []func(*policy.Binding){
		func(b *policy.Binding) { b.Principal = "agent:b" },
		func(b *policy.Binding) { b.Capability = "x/y#fs.write@q" },
		func(b *policy.Binding) { b.ContentHash = "" },
		func(b *policy.Binding) { b.InputDigest = "f" },
	} {
		b := a.Binding
		change(&b)
		none("another binding", b, at)
	}
	n := winners(t, 12, func(int) (bool, error) {
		id, won, err := s.Policy.ConsumeApproval(t.Context(), a.Binding, at)
		if won && id != "cnf_1" {
			err = fmt.Errorf("consumed %q", id)
		}
		return won, err
	})
	if n != 1 {
		t.Fatalf("spent %d times", n)
	}
	always := approval("cnf_2")
	_, created, err := s.Policy.AskApproval(t.Context(), always, 32)
	ok(t, err)
	if !created {
		t.Fatal("a spent approval still answers")
	}
	_, err = s.Policy.DecideApproval(t.Context(), "cnf_2", policy.DecideAlways, "o", at, at.Add(time.Hour))
	ok(t, err)
	none("not a once", a.Binding, at)
}

func approvalReturned(t *testing.T, s Stores) {
	a := approval("cnf_1")
	_, _, err := s.Policy.AskApproval(t.Context(), a, 32)
	ok(t, err)
	at := day(0).Add(time.Minute)
	until := at.Add(15 * time.Minute)
	back := func(want bool, id string, now time.Time) {
		t.Helper()
		if got, err := s.Policy.ReturnApproval(t.Context(), id, now); err != nil || got != want {
			t.Fatalf("%s at %s: %v %v", id, now, got, err)
		}
	}
	consume := func() {
		t.Helper()
		if _, got, err := s.Policy.ConsumeApproval(t.Context(), a.Binding, at); err != nil || !got {
			t.Fatalf("%v %v", got, err)
		}
	}
	back(false, "cnf_1", at) // pending
	_, err = s.Policy.DecideApproval(t.Context(), "cnf_1", policy.DecideOnce, "o", at, until)
	ok(t, err)
	back(false, "cnf_1", at) // not spent
	consume()
	back(false, "cnf_9", at)
	back(false, "cnf_1", until) // too late
	back(true, "cnf_1", at)
	back(false, "cnf_1", at)
	consume()
}

func approvalsSuperseded(t *testing.T, s Stores) {
	for i, change := range []func(*policy.Approval){
		func(*policy.Approval) {},
		func(a *policy.Approval) { a.ContentHash = "new" },
		func(a *policy.Approval) { a.Module = "y" },
		func(a *policy.Approval) { a.State = policy.ApprovalDenied },
	} {
		a := approval(fmt.Sprintf("cnf_%d", i))
		a.InputDigest = a.ID
		change(&a)
		_, _, err := s.Policy.AskApproval(t.Context(), a, 32)
		ok(t, err)
	}
	states := func() (list []policy.ApprovalState) {
		t.Helper()
		for i := range 4 {
			a, err := s.Policy.Approval(t.Context(), fmt.Sprintf("cnf_%d", i))
			ok(t, err)
			list = append(list, a.State)
		}
		return list
	}
	n, err := s.Policy.SupersedeApprovals(t.Context(), "x", "new")
	ok(t, err)
	same(t, n, 1)
	same(t, states(), []policy.ApprovalState{"superseded", "pending", "pending", "denied"})
	_, err = s.Policy.DecideApproval(t.Context(), "cnf_0", policy.DecideOnce, "o", day(0), day(1))
	code(t, err, capability.CodeConflict)
	n, err = s.Policy.SupersedeApprovals(t.Context(), "x", "")
	ok(t, err)
	same(t, n, 1)
	same(t, states(), []policy.ApprovalState{"superseded", "superseded", "pending", "denied"})
}

func approvalsEnd(t *testing.T, s Stores) {
	ask := func(id, kind, module string, maxOpen int) error {
		a := approval(id)
		a.Kind, a.Module, a.ContentHash, a.Expires = kind, module, id, time.Time{}
		_, _, err := s.Policy.AskApproval(t.Context(), a, maxOpen)
		return err
	}
	ok(t, ask("apr_1", policy.KindTerminal, "m", 2))
	ok(t, ask("apr_2", policy.KindTerminal, "m", 2))
	code(t, ask("apr_3", policy.KindTerminal, "m", 2), capability.CodeOverloaded)
	ok(t, ask("apr_4", policy.KindQuestion, "n", 1)) // another kind is counted by itself
	expired, err := s.Policy.ExpireApprovals(t.Context(), day(1000))
	ok(t, err)
	same(t, len(expired), 0) // without a time they wait without a limit
	for _, c := range []struct {
		module, id string
		want       int
	}{{"x", "apr_1", 0}, {"m", "apr_1", 1}, {"m", "apr_1", 0}, {"m", "", 1}} {
		n, err := s.Policy.EndApprovals(t.Context(), c.module, c.id, day(1))
		ok(t, err)
		same(t, n, c.want)
	}
	_, err = s.Policy.DecideApproval(t.Context(), "apr_1", policy.DecideOnce, "o", day(2), day(3))
	code(t, err, capability.CodeConflict)
	a, err := s.Policy.Approval(t.Context(), "apr_1")
	ok(t, err)
	same(t, a.State, policy.ApprovalEnded)
	same(t, a.Decided, day(1))
	_, err = s.Policy.DecideApproval(t.Context(), "apr_4", policy.DecideOnce, "o", day(1000), day(1000))
	ok(t, err)
}

func approvalsExpire(t *testing.T, s Stores) {
	for i, expires := range []time.Time{day(1), day(2), day(3)} {
		a := approval(fmt.Sprintf("cnf_%d", i))
		a.InputDigest, a.Expires = a.ID, expires
		_, _, err := s.Policy.AskApproval(t.Context(), a, 32)
		ok(t, err)
	}
	ids, err := s.Policy.ExpireApprovals(t.Context(), day(2))
	ok(t, err)
	slices.Sort(ids)
	same(t, ids, []string{"cnf_0", "cnf_1"})
	pending, err := s.Policy.Approvals(t.Context(), policy.ApprovalPending, "", 10)
	ok(t, err)
	if len(pending) != 1 || pending[0].ID != "cnf_2" {
		t.Fatalf("%+v", pending)
	}
	_, err = s.Policy.DecideApproval(t.Context(), "cnf_0", policy.DecideOnce, "o", day(0), day(1))
	code(t, err, capability.CodeConflict)
}

func grant(id string) policy.Grant {
	return policy.Grant{
		ID: id, Principal: "agent:a", Role: "*", Module: "x", Action: "fs.write", Scope: "global",
		Channel: policy.ChannelOperator, GrantedBy: "operator:o", Created: day(0), State: "active",
	}
}

func grantsComeBack(t *testing.T, s Stores) {
	full := grant("grt_2")
	full.Permissions, full.ScopeID, full.ContentHash, full.Approval = []string{"p", "q"}, "s-1", "h", "cnf_1"
	full.Capability, full.Expires, full.MaxUses, full.Effect, full.Created = "x/y#a@b", day(5), 3, capability.EffectWrite, day(1)
	ok(t, s.Policy.CreateGrant(t.Context(), grant("grt_1")))
	ok(t, s.Policy.CreateGrant(t.Context(), full))
	code(t, s.Policy.CreateGrant(t.Context(), full), capability.CodeConflict)
	got, err := s.Policy.Grants(t.Context())
	ok(t, err)
	same(t, got, []policy.Grant{full, grant("grt_1")})
	gone, err := s.Policy.RevokeGrant(t.Context(), "grt_2", day(2))
	ok(t, err)
	full.State = "revoked"
	same(t, gone, full)
	_, err = s.Policy.RevokeGrant(t.Context(), "grt_2", day(2))
	code(t, err, capability.CodeConflict)
	_, err = s.Policy.RevokeGrant(t.Context(), "grt_9", day(2))
	code(t, err, capability.CodeNotFound)
}

func grantUses(t *testing.T, s Stores) {
	g := grant("grt_1")
	g.MaxUses, g.Expires = 5, day(2)
	ok(t, s.Policy.CreateGrant(t.Context(), g))
	if got, err := s.Policy.UseGrant(t.Context(), "grt_1", day(2)); err != nil || got {
		t.Fatalf("used an expired grant: %v %v", got, err)
	}
	n := winners(t, 20, func(int) (bool, error) { return s.Policy.UseGrant(t.Context(), "grt_1", day(1)) })
	same(t, n, 5)
	all, err := s.Policy.Grants(t.Context())
	ok(t, err)
	same(t, all[0].Uses, 5)
	ok(t, s.Policy.AddUses(t.Context(), "grt_1", 3))
	ok(t, s.Policy.AddUses(t.Context(), "grt_9", 3))
	all, err = s.Policy.Grants(t.Context())
	ok(t, err)
	same(t, all[0].Uses, 8)

	ok(t, s.Policy.CreateGrant(t.Context(), grant("grt_2")))
	n = winners(t, 8, func(int) (bool, error) { return s.Policy.UseGrant(t.Context(), "grt_2", day(9)) })
	same(t, n, 8)
	_, err = s.Policy.RevokeGrant(t.Context(), "grt_2", day(2))
	ok(t, err)
	for _, id := range []string{"grt_2", "grt_9"} {
		if got, err := s.Policy.UseGrant(t.Context(), id, day(1)); err != nil || got {
			t.Fatalf("used %s: %v %v", id, got, err)
		}
	}
}
