package queue_test

import (
	"context"
	"errors"
	"testing"

	"github.com/junctor-run/junctor/internal/core/queue"
)

func TestSharesOfOneOwnerLeavePlacesToOthers(t *testing.T) {
	t.Parallel()
	s := queue.NewShares(3, 2)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	take := func(ctx context.Context, owner string, want error) func() {
		t.Helper()
		release, err := s.Take(ctx, owner)
		if !errors.Is(err, want) || release == nil {
			t.Fatalf("Take(%s) = %v, release is nil: %v; want %v, and never nil", owner, err, release == nil, want)
		}
		return release
	}
	var held []func()
	for _, owner := range []string{"a", "a", "b"} {
		held = append(held, take(t.Context(), owner, nil))
	}
	take(ended, "a", context.Canceled)() // a has both of its places
	take(ended, "c", context.Canceled)() // all are taken
	held[2]()
	take(ended, "a", context.Canceled)()
	take(t.Context(), "c", nil)()
	held[0]()
	take(t.Context(), "a", nil)() // what an ended wait had is free again
	held[1]()
}
