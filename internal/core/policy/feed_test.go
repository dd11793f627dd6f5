package policy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

func TestChangesOfApprovalsGrantsTokensAndRulesArePublished(t *testing.T) {
	t.Parallel()
	r := open(t)
	var got []string
	p, err := policy.New(t.Context(), policy.Config{
		Documents: []policy.Document{{Name: "0.cedar", Text: []byte(policy.DefaultRules())}}, Store: r.db, Now: r.now,
		Publish: func(event string, data any) {
			raw, err := json.Marshal(data)
			if err != nil || strings.Contains(string(raw), "very-secret") {
				t.Errorf("Publish(%s) = %s, %v; want no value of the call", event, raw, err)
			}
			got = append(got, event)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	a := policy.Asked{
		Principal: who(capability.RoleAgent), Entry: entry(t, capability.Contribution{Effect: capability.EffectWrite}), InputDigest: "d",
		Channel: policy.ChannelOperator, Summary: "writes very-secret", Input: []byte(`{"text":"very-secret"}`),
	}
	admin := who(capability.RoleAdmin)
	ask := func() string {
		t.Helper()
		_, err := p.Consent(t.Context(), a)
		id, _ := capability.AsError(err).Details["approval"].(string)
		if id == "" {
			t.Fatalf("Consent = %v, want an approval", err)
		}
		return id
	}
	_, g, err := p.Decide(t.Context(), admin, ask(), policy.DecideAlways)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.RevokeGrant(t.Context(), admin, g.ID); err != nil {
		t.Fatal(err)
	}
	tok, _, err := p.CreateToken(t.Context(), admin, policy.TokenRequest{Role: capability.RoleAgent, Name: "fed"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.RevokeToken(t.Context(), admin, tok.ID); err != nil {
		t.Fatal(err)
	}
	p.RecordRules(t.Context(), admin)
	ask()
	if err := p.Supersede(t.Context(), a.Entry.Module.Extension, "other content"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"approval.asked", "approval.decided", "grant.created", "grant.revoked", "token.created", "token.revoked", "policy.changed",
		"approval.asked", "approval.expired",
	}
	if !slices.Equal(got, want) {
		t.Errorf("published %q, want %q", got, want)
	}
}

func TestOverdueApprovalIsPublishedWithoutAReader(t *testing.T) {
	t.Parallel()
	r := open(t)
	now := time.Now()
	events := make(chan string, 8)
	p, err := policy.New(t.Context(), policy.Config{
		Documents: []policy.Document{{Name: "0.cedar", Text: []byte(policy.DefaultRules())}}, Store: r.db, Now: func() time.Time { return now },
		Publish: func(event string, _ any) { events <- event },
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Consent(t.Context(), policy.Asked{
		Principal: who(capability.RoleAgent), Entry: entry(t, capability.Contribution{Effect: capability.EffectWrite}), InputDigest: "d",
		Channel: policy.ChannelOperator,
	})
	if capability.CodeOf(err) != capability.CodeApprovalRequired {
		t.Fatalf("Consent = %v, want approval_required", err)
	}
	<-events
	now = now.Add(25 * time.Hour)
	go p.Run(t.Context())
	select {
	case got := <-events:
		if got != policy.EventApprovalExpired {
			t.Errorf("published %q, want %q", got, policy.EventApprovalExpired)
		}
	case <-time.After(time.Minute):
		t.Errorf("published nothing, want %q", policy.EventApprovalExpired)
	}
}
