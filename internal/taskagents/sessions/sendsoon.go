package sessions

import (
	"context"
	"time"
)

// SendSoon sends a text. If the program does not accept it within sendSoonTimeout or ctx ends, it
// returns Queued, and the text is still sent later unless the session ends.
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
