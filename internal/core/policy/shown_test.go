package policy_test

import (
	"testing"

	"github.com/junctor-run/junctor/internal/core/policy"
)

func TestAValueOfAnotherServerIsShownWhateverItsSumIs(t *testing.T) {
	t.Parallel()
	for sum, want := range map[string]string{
		"":                     "path: abc",
		"a1":                   "path: abc… (9 bytes, sha256 a1)",
		"0123456789abcdef0123": "path: abc… (9 bytes, sha256 0123456789abcdef)",
	} {
		got := policy.ShownValue{Name: "path", Value: "abc", Bytes: 9, SHA256: sum}.String()
		if got != want {
			t.Errorf("sum %q: got %q, want %q", sum, got, want)
		}
	}
}
