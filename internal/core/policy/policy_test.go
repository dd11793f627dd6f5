package policy_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/secret"
)

type rig struct {
	*policy.Policy
	db  *store.DB
	log *audit.Log
	at  *atomic.Int64
}

func open(t *testing.T, rules ...string) *rig {
	t.Helper()
	return openIn(t, "", rules...)
}

func openIn(t *testing.T, mode policy.Deployment, rules ...string) *rig {
	t.Helper()
	r := &rig{at: new(atomic.Int64)}
	r.at.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	dir := t.TempDir()
	var err error
	if r.db, err = store.Open(t.Context(), filepath.Join(dir, "junctor.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() })
	segments, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if r.log, err = audit.Open(t.Context(), audit.Config{Segments: segments}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.log.Close() })
	if len(rules) == 0 {
		rules = []string{policy.DefaultRules()}
	}
	var docs []policy.Document
	for i, text := range rules {
		docs = append(docs, policy.Document{Name: fmt.Sprintf("%d.cedar", i), Text: []byte(text)})
	}
	r.Policy, err = policy.New(t.Context(), policy.Config{Documents: docs, Store: r.db, Log: r.log, Now: r.now, Deployment: mode})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) now() time.Time { return time.Unix(0, r.at.Load()).UTC() }

func who(role capability.Role) capability.Principal {
	return capability.Principal{ID: string(role) + ":x", Role: role}
}

func entry(t *testing.T, c capability.Contribution) *catalog.Entry {
	t.Helper()
	c.ID, c.Kind, c.Provider = "tool", "capability.agent-tool", "ext:endpoint:cloud"
	change, _, err := catalogtest.New(t).Replace(capability.Batch{Source: "s", Modules: []capability.Module{{
		Extension: "remote.tools", ID: "tools", Origin: "endpoint", Contributions: []capability.Contribution{c},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(change.After.Entries())[0]
}

func TestDefaultRulesByRoleAndEffect(t *testing.T) {
	t.Parallel()
	r := open(t)
	const yes, ask, no = "permit", "operator", "deny"
	want := map[capability.Role][4]string{ // read, write, external, admin
		capability.RoleAdmin:    {yes, yes, yes, yes},
		capability.RoleOperator: {yes, yes, yes, yes},
		capability.RoleAgent:    {yes, ask, ask, no},
		capability.RoleTask:     {yes, ask, ask, no},
		capability.RoleNode:     {no, no, no, no},
		"":                      {no, no, no, no},
		"root":                  {no, no, no, no},
	}
	for role, row := range want {
		for i, effect := range []capability.Effect{
			capability.EffectRead, capability.EffectWrite, capability.EffectExternal,
			capability.EffectAdmin,
		} {
			v := r.Authorize(who(role), entry(t, capability.Contribution{Effect: effect}))
			got := no
			if v.Permitted {
				got = yes
				if v.Consent != "" {
					got = string(v.Consent)
				}
			}
			if got != row[i] || v.Fault != "" {
				t.Errorf("%s %s: %s, want %s (%+v)", role, effect, got, row[i], v)
			}
		}
	}
	if v := r.Authorize(who(capability.RoleAgent), entry(t, capability.Contribution{Effect: "odd"})); v.Consent != policy.ChannelOperator {
		t.Errorf("an effect nobody knows is not external: %+v; want v.Consent = policy.ChannelOperator", v)
	}
}

func TestSeveralRulesThatMatch(t *testing.T) {
	t.Parallel()
	const plain, client, operator, device = `@id("plain") permit (principal, action, resource);`,
		`@id("client") @consent("client") permit (principal, action, resource);`,
		`@id("operator") @consent("operator") permit (principal, action, resource);`,
		`@id("device") @consent("device") permit (principal, action, resource);`
	tests := []struct {
		name  string
		rules []string
		want  policy.Verdict
	}{
		{"nothing permits", []string{`permit (principal == Principal::"nobody", action, resource);`}, policy.Verdict{}},
		{
			"plain beats consent",
			[]string{operator, plain, client},
			policy.Verdict{Permitted: true, Policies: []string{"client", "operator", "plain"}},
		},
		{"operator beats client", []string{client, operator}, policy.Verdict{
			Permitted: true, Consent: "operator",
			Policies: []string{"client", "operator"},
		}},
		{"operator beats device", []string{device, operator}, policy.Verdict{
			Permitted: true, Consent: "operator",
			Policies: []string{"device", "operator"},
		}},
		{"device beats client", []string{client, device}, policy.Verdict{
			Permitted: true, Consent: "device",
			Policies: []string{"client", "device"},
		}},
		{"forbid beats all", []string{plain, `@id("stop") forbid (principal, action, resource);`}, policy.Verdict{Policies: []string{"stop"}}},
		{
			"a forbid that errs denies",
			[]string{plain, `@id("errs") forbid (principal, action, resource) when { resource.effect == "write" && principal.role > 1 };`},
			policy.Verdict{Policies: []string{"errs"}, Fault: "x"},
		},
		{
			"so does a permit that errs beside one that does not",
			[]string{plain, `@id("errs") permit (principal, action, resource) when { resource.effect < 3 };`},
			policy.Verdict{Policies: []string{"errs"}, Fault: "x"},
		},
		{
			"attributes and parents can be asked for",
			[]string{`@id("all") permit (principal in Role::"agent", action in Action::"write", resource in Module::"remote.tools") when {
				resource in Provider::"ext:endpoint:cloud" && resource.effect == "write" && resource.module == "remote.tools" &&
				resource.origin == "endpoint" &&
				resource.permissions.contains("network") && resource.tags.contains("beta") && principal.labels.contains("tenant:a") &&
				principal.role == "agent" &&
				action == Action::"ext.remote.tools.tool" && resource.action == "ext.remote.tools.tool" && resource.provider ==
				"ext:endpoint:cloud" };`},
			policy.Verdict{Permitted: true, Policies: []string{"all"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := open(t, tt.rules...)
			p := who(capability.RoleAgent)
			p.Labels = []string{"tenant:a"}
			e := entry(t, capability.Contribution{Effect: capability.EffectWrite, Permissions: []string{"network"}, Tags: []string{"beta"}})
			for range 2 { // computed and remembered
				got := r.Authorize(p, e)
				if got.Fault != "" {
					got.Fault = "x"
				}
				if d := cmp.Diff(tt.want, got); d != "" {
					t.Errorf("result differs from want (-want +got):\n%s", d)
				}
			}
			if p.Labels = nil; strings.Contains(tt.name, "attributes") && r.Authorize(p, e).Permitted {
				t.Error("the verdict of a principal with labels was given to one without; want not (strings.Contains(tt.name, " +
					`"attributes") && r.Authorize(p, e).Permitted)`)
			}
		})
	}
}

func TestARuleThatCannotBeReadNamesItsFile(t *testing.T) {
	t.Parallel()
	r := open(t)
	good := policy.Document{Name: "good.cedar", Text: []byte(`@id("one") permit (principal, action, resource);`)}
	for name, text := range map[string]string{
		"syntax":       "permit (principal, action resource);",
		"consent":      `@consent("nobody") permit (principal, action, resource);`,
		"on a forbid":  `@consent("operator") forbid (principal, action, resource);`,
		"id used once": `@id("one") forbid (principal, action, resource);`,
	} {
		err := r.SetRules([]policy.Document{good, {Name: "house.cedar", Text: []byte(text)}})
		if capability.CodeOf(err) != capability.CodeInvalidInput || !strings.Contains(err.Error(), "house.cedar") {
			t.Errorf(`%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput, err.Error() with "house.cedar"`, name, err)
		}
	}
	if !r.Authorize(who(capability.RoleAdmin), entry(t, capability.Contribution{Effect: capability.EffectAdmin})).Permitted {
		t.Error("rules that cannot be read replaced those that could")
	}
	e := entry(t, capability.Contribution{Effect: capability.EffectAdmin})
	_ = r.Authorize(who(capability.RoleAdmin), e)
	if err := r.SetRules(nil); err != nil || r.Authorize(who(capability.RoleAdmin), e).Permitted {
		t.Errorf("%v: a verdict outlived its rules; want no error, r.Authorize(who(capability.RoleAdmin), e).Permitted = false", err)
	}
}

func TestTokensFromCradleToGrave(t *testing.T) {
	t.Parallel()
	r := open(t)
	admin := who(capability.RoleAdmin)
	tok, value, err := r.CreateToken(t.Context(), admin, policy.TokenRequest{
		Role: capability.RoleAgent, Name: "claude",
		Labels: []string{"tenant:a"}, View: "search", Expires: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Authenticate(value.Reveal())
	want := capability.Principal{ID: "agent:claude", Role: capability.RoleAgent, Labels: []string{"tenant:a"}, View: "search"}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf(`%v %s; want no error, d = ""`, err, d)
	}
	_, _, err = r.CreateToken(t.Context(), admin, policy.TokenRequest{Role: capability.RoleAdmin, Name: "claude"})
	if capability.CodeOf(err) != capability.CodeConflict {
		t.Errorf("a live name was taken: %v; want capability.CodeOf(err) = capability.CodeConflict", err)
	}
	for name, req := range map[string]policy.TokenRequest{
		"role": {Role: "root"}, "past": {Role: capability.RoleAgent, Expires: -1}, "name": {Role: capability.RoleAgent, Name: "../x"},
	} {
		if _, _, err := r.CreateToken(t.Context(), admin, req); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", name, err)
		}
	}

	refused := func(token string) string {
		_, err := r.Authenticate(token)
		if capability.CodeOf(err) != capability.CodeUnauthenticated {
			t.Fatalf("%q: %v; want capability.CodeOf(err) = capability.CodeUnauthenticated", token, err)
		}
		return err.Error()
	}
	unknown := refused(secret.NewToken('a'))
	mistyped := refused(value.Reveal() + "x")
	if none := refused(""); none == unknown || mistyped == unknown || none == mistyped {
		t.Errorf("no token, a mistyped one and an unknown one have one answer; got none = %v, mistyped = %v, none = %v; want "+
			"none other than %v, mistyped other than %v, none other than %v", none, mistyped, none, unknown, unknown, mistyped)
	}
	r.at.Add(int64(time.Hour))
	if got := refused(value.Reveal()); got != unknown {
		t.Errorf("an expired one: %s; want got = %v", got, unknown)
	}
	second, value, err := r.CreateToken(t.Context(), admin, policy.TokenRequest{Role: capability.RoleAgent, Name: "claude"})
	if err != nil {
		t.Fatalf("an expired name is not free: %v", err)
	}
	if _, err := r.RevokeToken(t.Context(), admin, "claude"); err != nil {
		t.Fatal(err)
	}
	if got := refused(value.Reveal()); got != unknown {
		t.Errorf("a revoked one: %s; want got = %v", got, unknown)
	}
	if _, err := r.RevokeToken(t.Context(), admin, second.ID); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("revoked twice: %v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
	all, err := r.Tokens(t.Context())
	if err != nil || len(all) != 2 || all[0].ID != tok.ID || all[0].Hash == value.Reveal() {
		t.Errorf("%+v %v; want no error, len(all) = 2, all[0].ID = %v, all[0].Hash other than value.Reveal()", all, err, tok.ID)
	}
	events, err := r.log.Query(t.Context(), audit.Query{})
	if err != nil || len(events) != 3 {
		t.Errorf("%d records, %v; want no error, len(events) = 3", len(events), err)
	}
	for _, e := range events {
		if strings.Contains(string(e), "jct_") {
			t.Errorf(`a token was logged: %s; want string(e) without "jct_"`, e)
		}
	}
}

func TestTokensAndGrantsComeBackAfterARestart(t *testing.T) {
	t.Parallel()
	r := open(t)
	admin := who(capability.RoleAdmin)
	_, kept, err := r.CreateToken(t.Context(), admin, policy.TokenRequest{Role: capability.RoleAgent})
	if err != nil {
		t.Fatal(err)
	}
	gone, revoked, err := r.CreateToken(t.Context(), admin, policy.TokenRequest{Role: capability.RoleAgent})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.RevokeToken(t.Context(), admin, gone.ID); err != nil {
		t.Fatal(err)
	}
	g, err := r.CreateGrant(t.Context(), admin, policy.Grant{Role: "agent", Action: "ext.remote.tools.tool"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := policy.New(t.Context(), policy.Config{Store: r.db, Now: r.now})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Authenticate(kept.Reveal()); err != nil {
		t.Error(err)
	}
	if _, err := again.Authenticate(revoked.Reveal()); err == nil {
		t.Error("a restart revived a revoked token; want an error")
	}
	c, err := again.Consent(t.Context(), policy.Asked{
		Principal: who(capability.RoleAgent),
		Entry:     entry(t, capability.Contribution{Effect: capability.EffectWrite}),
	})
	if err != nil || c.Grant != g.ID {
		t.Errorf("%+v %v; want no error, c.Grant = %v", c, err, g.ID)
	}
}

// TestTheLastUseOfATokenIsKnownAndKept holds the time of the last request with a token, also for a token that is
// used while others change, and after a restart.
func TestTheLastUseOfATokenIsKnownAndKept(t *testing.T) {
	t.Parallel()
	r := open(t)
	made, value, err := r.CreateToken(t.Context(), who(capability.RoleAdmin), policy.TokenRequest{Role: capability.RoleAgent})
	if err != nil {
		t.Fatalf("creating a token: %v", err)
	}
	used := func(p *policy.Policy) time.Time {
		t.Helper()
		all, err := p.Tokens(t.Context())
		if err != nil || len(all) == 0 || all[0].ID != made.ID {
			t.Fatalf("Tokens() = %+v, %v, want the token first", all, err)
		}
		return all[0].Used
	}
	if at := used(r.Policy); !at.IsZero() {
		t.Errorf("a new token was used at %v, want never", at)
	}
	for range 2 {
		r.at.Add(int64(time.Hour))
		if _, err := r.Authenticate(value.Reveal()); err != nil {
			t.Fatalf("authenticating: %v", err)
		}
		if _, _, err := r.CreateToken(t.Context(), who(capability.RoleAdmin), policy.TokenRequest{Role: capability.RoleAgent}); err != nil {
			t.Fatalf("creating another token: %v", err)
		}
		if at := used(r.Policy); !at.Equal(r.now()) {
			t.Errorf("the token was used at %v, want %v", at, r.now())
		}
	}
	if err := r.SaveUses(t.Context()); err != nil {
		t.Fatalf("SaveUses: %v", err)
	}
	again, err := policy.New(t.Context(), policy.Config{Store: r.db, Now: r.now})
	if err != nil {
		t.Fatalf("opening again: %v", err)
	}
	if at := used(again); !at.Equal(r.now()) {
		t.Errorf("after a restart the token was used at %v, want %v", at, r.now())
	}
	r.at.Add(int64(time.Hour))
	if _, err := r.Verify(value.Reveal()); err != nil || used(r.Policy).Equal(r.now()) {
		t.Errorf("Verify: %v, the token was used at %v, want no error and no use", err, used(r.Policy))
	}
	if _, err := r.Authenticate(value.Reveal()); err != nil {
		t.Fatalf("authenticating: %v", err)
	}
	if _, err := r.RevokeToken(t.Context(), who(capability.RoleAdmin), made.ID); err != nil {
		t.Fatalf("revoking: %v", err)
	}
	if at := used(r.Policy); !at.Equal(r.now()) {
		t.Errorf("a revoked token was used at %v, want its last use at %v", at, r.now())
	}
}

// unread fails every read after the first of each kind.
type unread struct {
	policy.Store
	reads atomic.Int64
}

func (u *unread) Tokens(ctx context.Context) ([]policy.Token, error) {
	if u.reads.Add(1) > 1 {
		return nil, errors.New("disk")
	}
	return u.Store.Tokens(ctx)
}

func TestARevokedTokenIsRefusedAlsoWhenTheStoreCannotBeRead(t *testing.T) {
	t.Parallel()
	r := open(t)
	p, err := policy.New(t.Context(), policy.Config{Store: &unread{Store: r.db}, Now: r.now})
	if err != nil {
		t.Fatal(err)
	}
	tok, value, err := p.CreateToken(t.Context(), who(capability.RoleAdmin), policy.TokenRequest{Role: capability.RoleAgent})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.RevokeToken(t.Context(), who(capability.RoleAdmin), tok.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Authenticate(value.Reveal()); err == nil {
		t.Error("it still lets in; want an error")
	}
}

func TestRequireNamesTheRoleAndRecordsTheDenial(t *testing.T) {
	t.Parallel()
	r := open(t)
	if err := r.Require(t.Context(), who(capability.RoleOperator), "audit.query", capability.RoleAdmin, capability.RoleOperator); err != nil {
		t.Error(err)
	}
	err := r.Require(t.Context(), who(capability.RoleAgent), "audit.query", capability.RoleAdmin, capability.RoleOperator)
	if capability.CodeOf(err) != capability.CodeDenied || !strings.Contains(err.Error(), "admin or operator") {
		t.Errorf(`%v; want capability.CodeOf(err) = capability.CodeDenied, err.Error() with "admin or operator"`, err)
	}
	lines, err := r.log.Query(t.Context(), audit.Query{Event: audit.PermissionDenied})
	if err != nil || len(lines) != 1 || !strings.Contains(string(lines[0]), "audit.query") {
		t.Errorf(`%s %v; want no error, len(lines) = 1, string(lines[0]) with "audit.query"`, lines, err)
	}
}
