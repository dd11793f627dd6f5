package policy_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

func TestNewApprovalIsLoggedWithoutItsInput(t *testing.T) {
	t.Parallel()
	r := open(t)
	var logged bytes.Buffer
	p, err := policy.New(t.Context(), policy.Config{
		Documents: []policy.Document{{Name: "0.cedar", Text: []byte(policy.DefaultRules())}}, Store: r.db, Now: r.now,
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	a := policy.Asked{
		Principal: who(capability.RoleAgent), Entry: entry(t, capability.Contribution{Effect: capability.EffectWrite}), InputDigest: "d",
		Channel: policy.ChannelOperator, Summary: "writes very-secret", Input: []byte(`{"text":"very-secret"}`),
	}
	for range 2 { // the second call finds the approval pending
		if _, err := p.Consent(t.Context(), a); capability.CodeOf(err) != capability.CodeApprovalRequired {
			t.Fatalf("Consent = %v, want approval_required", err)
		}
	}
	got := logged.String()
	if n := strings.Count(got, "junctor approvals approve apr_"); n != 1 || strings.Contains(got, "very-secret") {
		t.Errorf("logged %d commands, want 1 and no input:\n%s", n, got)
	}
}

func TestDecidedReturnsTheDecisionOrTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	r := open(t)
	a := policy.Asked{
		Principal: who(capability.RoleAgent), Entry: entry(t, capability.Contribution{Effect: capability.EffectWrite}), InputDigest: "d",
		Channel: policy.ChannelOperator,
	}
	_, err := r.Consent(t.Context(), a)
	id, _ := capability.AsError(err).Details["approval"].(string)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Decided(ended, id); !errors.Is(err, context.Canceled) {
		t.Errorf("Decided(ended context) = %v, want %v", err, context.Canceled)
	}
	done := make(chan policy.Approval, 1)
	go func() {
		got, err := r.Decided(t.Context(), id)
		if err != nil {
			t.Errorf("Decided = %v, want no error", err)
		}
		done <- got
	}()
	if _, _, err := r.Decide(t.Context(), who(capability.RoleAdmin), id, policy.DecideDeny); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.State != policy.ApprovalDenied {
		t.Errorf("Decided = %q, want %q", got.State, policy.ApprovalDenied)
	}
	if _, err := r.Decided(t.Context(), "apr_none"); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("Decided(unknown id) = %v, want not_found", err)
	}
}

// An answer to a program is recorded like a decision, so neither is accepted without a log.
func TestAnswersNeedALogThatWorks(t *testing.T) {
	t.Parallel()
	r := open(t)
	a := policy.Approval{ID: "apr_1", Kind: policy.KindQuestion, Binding: policy.Binding{Principal: "operator:ann"}, Module: "task-agents"}
	if err := r.OpenBlocker(t.Context(), a); err != nil {
		t.Fatalf("open a blocker: got %v, want no error", err)
	}
	if err := r.log.Close(); err != nil {
		t.Fatalf("close the log: got %v, want no error", err)
	}
	want := capability.CodeOf(r.log.Ready(true))
	for _, reply := range []policy.Reply{{Text: "yes"}, {Decision: policy.DecideDeny}} {
		_, _, err := r.Reply(t.Context(), who(capability.RoleAdmin), "apr_1", reply)
		if got := capability.CodeOf(err); err == nil || got != want {
			t.Errorf("Reply(%+v) with a closed log = %v, want code %s", reply, err, want)
		}
	}
}
