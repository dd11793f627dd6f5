package invoke_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

func TestAVerifierIsAskedBeforeDangerousCallsOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	var sent atomic.Int32
	for name, effect := range map[string]capability.Effect{
		"r": capability.EffectRead, "w": capability.EffectWrite, "x": capability.EffectExternal, "d": capability.EffectAdmin,
	} {
		r.offer(name, capability.Contribution{Effect: effect}, func(context.Context, capability.Call) (capability.Result, error) {
			sent.Add(1)
			return capability.Result{}, nil
		})
	}
	asked := ""
	refusal := capability.Errorf(capability.CodeDenied, "test", "the person has to confirm it").With("unconfirmed", "")
	ctx := policy.WithVerifier(t.Context(), func(by, what string) error {
		asked = by + " " + what
		return refusal
	})
	for _, tt := range []struct {
		name  string
		asked bool
	}{{"r", false}, {"w", false}, {"x", true}, {"d", true}} {
		asked = ""
		sent.Store(0)
		inv := on(admin(), tt.name, `{}`)
		inv.IdempotencyKey = "key of " + tt.name
		_, err := r.engine.Invoke(ctx, inv)
		if got := asked != ""; got != tt.asked {
			t.Errorf("%s: asked %q, want asked %v", tt.name, asked, tt.asked)
		}
		if reason := capability.AsError(err); tt.asked && (reason == nil || reason.Reason != "unconfirmed" || sent.Load() != 0) {
			t.Errorf("%s: error %v, %d calls sent; want reason unconfirmed, 0 calls", tt.name, err, sent.Load())
		}
		if early := r.engine.Verify(ctx, inv); (early != nil) != tt.asked {
			t.Errorf("%s: Verify returned %v, want an error: %v", tt.name, early, tt.asked)
		}
		if err := r.engine.Verify(t.Context(), inv); err != nil {
			t.Errorf("%s: without a verifier: got %v, want nil", tt.name, err)
		}
		// A refused call leaves its key free.
		if _, err := r.engine.Invoke(t.Context(), inv); capability.CodeOf(err) == capability.CodeConflict {
			t.Errorf("%s: a call with the same key: got %v, want no conflict", tt.name, err)
		}
	}
}
