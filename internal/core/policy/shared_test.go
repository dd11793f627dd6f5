package policy_test

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/secret"
)

// stores are two handles on one database, of each kind that there is.
func stores(t *testing.T) map[string][2]*store.DB {
	t.Helper()
	file, url := filepath.Join(t.TempDir(), "junctor.db"), pgtest.Start(t).Database(t)
	var sqlite, postgres [2]*store.DB
	for i := range 2 {
		var err error
		if sqlite[i], err = store.Open(t.Context(), file); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sqlite[i].Close() })
		if postgres[i], err = store.OpenPostgres(t.Context(), store.Postgres{URL: url, Password: secret.New(pgtest.Password)}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = postgres[i].Close() })
	}
	return map[string][2]*store.DB{"SQLite": sqlite, "Postgres": postgres}
}

func TestTwoPoliciesOnOneStore(t *testing.T) {
	for name, dbs := range stores(t) {
		t.Run(name, func(t *testing.T) {
			var p [2]*policy.Policy
			for i, db := range dbs {
				var err error
				p[i], err = policy.New(t.Context(), policy.Config{
					Documents: []policy.Document{{Name: "d.cedar", Text: []byte(policy.DefaultRules())}},
					Store:     db,
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			refresh := func() {
				t.Helper()
				if err := p[1].Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			_, token, err := p[0].CreateToken(t.Context(), who(capability.RoleAdmin), policy.TokenRequest{Role: capability.RoleAgent, Name: "ann"})
			if err != nil {
				t.Fatal(err)
			}
			refresh()
			if _, err := p[1].Authenticate(token.Reveal()); err != nil {
				t.Error(err)
			}
			if _, err := p[0].RevokeToken(t.Context(), who(capability.RoleAdmin), "ann"); err != nil {
				t.Fatal(err)
			}
			refresh()
			if _, err := p[1].Authenticate(token.Reveal()); capability.CodeOf(err) != capability.CodeUnauthenticated {
				t.Errorf("a revoked token: %v; want capability.CodeOf(err) = capability.CodeUnauthenticated", err)
			}

			// Eight callers on each for one grant of three uses, then for one approval.
			e := entry(t, capability.Contribution{Effect: capability.EffectWrite})
			asked := policy.Asked{Principal: who(capability.RoleAgent), Entry: e, InputDigest: "d", Channel: policy.ChannelOperator}
			race := func() int {
				var won atomic.Int64
				var wg sync.WaitGroup
				start := make(chan struct{})
				for i := range 16 {
					wg.Go(func() {
						<-start
						c, err := p[i%2].Consent(t.Context(), asked)
						if err != nil && capability.CodeOf(err) != capability.CodeApprovalRequired {
							t.Errorf("%v; want not (err != nil && capability.CodeOf(err) != capability.CodeApprovalRequired)", err)
						}
						if c != (policy.Consent{}) {
							won.Add(1)
						}
					})
				}
				close(start)
				wg.Wait()
				return int(won.Load())
			}
			if _, err := p[0].CreateGrant(t.Context(), who(capability.RoleAdmin),
				policy.Grant{Principal: "agent:x", Action: "*", MaxUses: 3}); err != nil {
				t.Fatal(err)
			}
			refresh()
			if n := race(); n != 3 {
				t.Errorf("a grant for 3 uses was used %d times; want n = 3", n)
			}
			open, err := p[1].Approvals(t.Context(), policy.ApprovalPending, "", 10)
			if err != nil || len(open) != 1 {
				t.Fatalf("16 callers asked %d questions (%v); want no error, len(open) = 1", len(open), err)
			}
			if _, _, err := p[1].Decide(t.Context(), capability.Principal{ID: "operator:o", Role: capability.RoleOperator}, open[0].ID,
				policy.DecideOnce); err != nil {
				t.Fatal(err)
			}
			if n := race(); n != 1 {
				t.Errorf("an approval for once was used %d times; want n = 1", n)
			}
			// A store that does not answer leaves what was known.
			_, token, err = p[0].CreateToken(t.Context(), who(capability.RoleAdmin),
				policy.TokenRequest{Role: capability.RoleAgent, Name: "bob", Expires: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			refresh()
			_ = dbs[1].Close()
			if err := p[1].Refresh(t.Context()); err == nil {
				t.Error("a closed store was read; want an error")
			}
			if _, err := p[1].Authenticate(token.Reveal()); err != nil {
				t.Error(err)
			}
		})
	}
}
