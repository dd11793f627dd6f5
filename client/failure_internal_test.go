package client

import (
	"testing"

	"github.com/junctor-run/junctor/capability"
)

// The connect API's errors are a message with the rest beside it, all others an
// object.
func TestBothFormsOfAFailureAreRead(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]capability.Error{
		`{"error":{"code":"denied","reason":"r","message":"m","hint":"h"}}`: {Code: capability.CodeDenied, Reason: "r", Message: "m", Hint: "h"},
		`{"error":"m","code":"denied","reason":"r","hint":"h"}`:             {Code: capability.CodeDenied, Reason: "r", Message: "m", Hint: "h"},
		`{"error":"m"}`:  {Code: capability.CodeFailed, Message: "the server answered 400: m"},
		`{"error":null}`: {Code: capability.CodeFailed},
		`{"error":7}`:    {Code: capability.CodeFailed},
		`{}`:             {Code: capability.CodeFailed},
		`<html>`:         {Code: capability.CodeFailed},
	} {
		got := capability.AsError(failure(400, []byte(body)))
		if got.Code != want.Code || got.Reason != want.Reason || got.Hint != want.Hint || (want.Message != "" && got.Message != want.Message) {
			t.Errorf(`%s: %#v; want got.Code = %v, got.Reason = %v, got.Hint = %v, not (want.Message != "" && got.Message != want.Message)`,
				body, got, want.Code, want.Reason, want.Hint)
		}
	}
}
