// Package pause waits for a time that a context can end.
package pause

import (
	"context"
	"time"
)

// For waits for d, which may be negative, or for the end of ctx, whose error it then returns.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
