package sessions_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/testkit/fakecli"
)

// TestWhatMustNotBeSeenIsMasked: in every text that leaves a session but what live
// terminals are shown; and what is shown can be used to answer.
func TestWhatMustNotBeSeenIsMasked(t *testing.T) {
	const hidden = "hush-hush"
	chosen := -1
	mask := func(s *sessions.Spec, _ *pipes) {
		s.Mask = func(text string) string { return strings.ReplaceAll(text, hidden, "•••") }
	}
	play(t, mask, func(ctx context.Context, s *fakecli.Screen) {
		_, _ = s.Prompt(ctx)
		s.Say("the key is " + hidden)
		d := fakecli.Permission(hidden)
		d.Options[len(d.Options)-1] = "No, never with " + hidden
		chosen = s.Ask(ctx, d)
		s.Done("It was " + hidden + ".")
		_, _ = s.Prompt(ctx)
	}, func(r *rig) {
		r.until(sessions.ReadyAgain)
		if _, err := r.session.Send(r.Context(), "go, with "+hidden, false); err != nil {
			r.Error(err)
		}
		e := r.until(sessions.BlockedNow)
		for e.To.Blocker == nil || len(e.To.Blocker.Options) < 2 {
			e = r.until(sessions.BlockedNow)
		}
		i := r.session.Info()
		shown := []any{e, i, r.session.Lines(100), r.session.Screen(), r.session.Explain()}
		for _, one := range shown {
			text, err := json.Marshal(one)
			if err != nil || strings.Contains(string(text), hidden) || !strings.Contains(string(text), "•••") {
				r.Errorf("%T shows what must not be seen, or nothing of it: %s %v", one, text, err)
			}
		}
		if !strings.Contains(string(r.session.Snapshot().Data), hidden) {
			r.Error("the live terminal does not show what it shows")
		}
		if err := r.session.Choose(r.Context(), i.Blocker.Fingerprint, i.Blocker.Options[len(i.Blocker.Options)-1]); err != nil {
			r.Error(err)
		}
		r.until(sessions.TaskComplete)
		for _, e := range r.events {
			if text, err := json.Marshal(e); err != nil || strings.Contains(string(text), hidden) {
				r.Errorf("an event shows what must not be seen: %s %v", text, err)
			}
		}
		if chosen < 1 {
			r.Errorf("option %d was chosen", chosen)
		}
	})
}
