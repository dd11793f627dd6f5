package sessions

import (
	"context"
	"time"
)

// sendSoonTimeout is how long a sender waits for a program to accept a text. A program that is
// at work takes it when its turn is over, and that may be hours.
const sendSoonTimeout = 10 * time.Second

// SendSoon sends a text, and says queued where it is not taken soon: it is sent all the
// same, unless the session ends before.
func SendSoon(ctx context.Context, to Live, text string, atOnce bool) (Outcome, error) {
	type sent struct {
		outcome Outcome
		err     error
	}
	done := make(chan sent, 1)
	go func() {
		outcome, err := to.Send(context.WithoutCancel(ctx), text, atOnce)
		done <- sent{outcome, err}
	}()
	late := time.NewTimer(sendSoonTimeout)
	defer late.Stop()
	select {
	case s := <-done:
		return s.outcome, s.err
	case <-late.C:
	case <-ctx.Done():
	}
	return Queued, nil
}
