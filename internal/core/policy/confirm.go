package policy

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
)

// Verifier decides whether a dangerous act of a principal goes on: a call with effect external or
// above or one that runs a program, an approval of such a call or for always, an answer that lets a
// coding agent act, a page that may connect. It is asked once the principal may do it, and before
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

// Confirm asks the verifier of ctx, if it has one.
func Confirm(ctx context.Context, principal, what string) error {
	if ask := VerifierOf(ctx); ask != nil {
		return ask(principal, what)
	}
	return nil
}

// verify asks the verifier of ctx, if it has one, about an approval.
func verify(ctx context.Context, by capability.Principal, a Approval, d Decision) error {
	if d == DecideDeny || d != DecideAlways && !a.Effect.AtLeast(capability.EffectExternal) {
		return nil
	}
	if a.Waits() {
		return Confirm(ctx, by.ID, "answer "+text.Visible(a.Summary))
	}
	return Confirm(ctx, by.ID, "approve "+text.Visible(string(a.Capability))+" of "+text.Visible(a.Principal)+" ("+string(d)+")")
}
