package policy

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
)

// Verifier decides whether a dangerous act of a principal goes on: a call with effect external or
// above, and an approval of one or for always. It is asked once the principal may do it, and before
// anything is stored or sent. what is for people. An error ends the act.
type Verifier func(principal, what string) error

type verifierKey struct{}

// WithVerifier returns a context whose dangerous acts ask v, also those that a provider begins on the
// way.
func WithVerifier(ctx context.Context, v Verifier) context.Context {
	return context.WithValue(ctx, verifierKey{}, v)
}

// VerifierOf returns the verifier of a context, or nil.
func VerifierOf(ctx context.Context) Verifier {
	v, _ := ctx.Value(verifierKey{}).(Verifier)
	return v
}

// verify asks the verifier of ctx, if it has one, about an approval.
func verify(ctx context.Context, by capability.Principal, a Approval, d Decision) error {
	ask := VerifierOf(ctx)
	if ask == nil || d == DecideDeny || d != DecideAlways && !a.Effect.AtLeast(capability.EffectExternal) {
		return nil
	}
	if a.Waits() {
		return ask(by.ID, "answer "+text.Visible(a.Summary))
	}
	return ask(by.ID, "approve "+text.Visible(string(a.Capability))+" of "+text.Visible(a.Principal)+" ("+string(d)+")")
}
