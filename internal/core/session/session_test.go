package session_test

import (
	"testing"

	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/testkit/sessiontest"
)

func TestMemoryIsAStore(t *testing.T) {
	sessiontest.Run(t, func(*testing.T) session.Store { return sessiontest.NewMemory() })
}

func TestCut(t *testing.T) {
	t.Parallel()
	if got, cut := session.Cut("abc", 3); got != "abc" || cut {
		t.Errorf(`session.Cut("abc", 3) = %v, cut = %v, want got == "abc" && !cut`, got, cut)
	}
	if got, cut := session.Cut("abcdef", 3); len(got) < 3 || !cut {
		t.Errorf(`session.Cut("abcdef", 3) = %v, cut = %v, want len(got) >= 3 && cut`, got, cut)
	}
}
