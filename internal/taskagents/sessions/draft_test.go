package sessions_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/testkit/fakecli"
)

// person types for a user, who takes control first and leaves at once.
func person(r *rig, keys string) {
	r.Helper()
	for _, do := range []func() error{
		func() error { return r.session.Control("me", true) },
		func() error { return r.session.Raw(r.Context(), "me", []byte(keys)) },
		func() error { return r.session.Control("me", false) },
	} {
		if err := do(); err != nil {
			r.Fatalf("control, keys, release: got %v, want no error", err)
		}
	}
}

// listener is a program that collects what it is sent.
func listener(got *[]string, placeholder string) script {
	return func(ctx context.Context, s *fakecli.Screen) {
		for s.Placeholder, s.Cleared = placeholder, "Nothing is asked"; ; {
			text, ok := s.Prompt(ctx)
			if !ok {
				return
			}
			*got = append(*got, text)
			s.Work(ctx, time.Second)
			s.Say("I see.")
		}
	}
}

func TestADraftIsNotJoinedWithAMessage(t *testing.T) {
	tests := []struct {
		name, placeholder, draft, then string // keys of the user
		want                           []string
	}{
		{"sent by its user", "", "half a thought", "\r", []string{"half a thought", "theirs"}},
		{"deleted by its user", "", "half a thought", "\x03", []string{"theirs"}},
		{"sent by its user with more", "", "half a thought", " more\r", []string{"half a thought more", "theirs"}},
		{"sent where the empty box shows a text", "Ask for anything", "half a thought", "\r", []string{"half a thought", "theirs"}},
		{"deleted where the empty box shows a text", "Ask for anything", "half a thought", "\x03", []string{"theirs"}},
		{"pasted with a line break at its end", "", "\x1b[200~half a thought\r\x1b[201~", "\r", []string{"half a thought", "theirs"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			play(t, nil, listener(&got, tt.placeholder), func(r *rig) {
				r.until(sessions.ReadyAgain)
				person(r, tt.draft)
				queued := make(chan error, 1)
				go func() { // before the screen shows the draft
					_, err := r.session.Send(r.Context(), "theirs", false)
					queued <- err
				}()
				time.Sleep(2 * time.Minute) // of the bubble
				_, err := r.session.Send(r.Context(), "at once", false)
				reason(r.T, err, capability.CodeConflict, sessions.ReasonDraft)
				if len(got) != 0 {
					r.Errorf("beside a draft the program got %q, want nothing", got)
				}
				person(r, tt.then)
				if err := <-queued; err != nil {
					r.Errorf("the message that waited: got %v, want it delivered", err)
				}
				if !slices.Equal(got, tt.want) {
					r.Errorf("the program got %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestKeysThatAreNoDraftHoldNoMessage(t *testing.T) {
	tests := []struct{ name, placeholder, keys string }{
		{"Ctrl-C in an empty box", "Ask for anything", "x\x03"},
		{"a text that is deleted again", "Ask for anything", "ab\x7f\x7f"},
		{"a text and Enter at once", "", "mine\r"},
		{"a report of the user's terminal", "", "\x1b[I"},
		{"an arrow", "", "\x1b[B"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			play(t, nil, listener(&got, tt.placeholder), func(r *rig) {
				r.until(sessions.ReadyAgain)
				person(r, tt.keys)
				if _, err := r.session.Send(r.Context(), "theirs", false); err != nil {
					r.Errorf("a message: got %v, want it delivered", err)
				}
				if len(got) == 0 || got[len(got)-1] != "theirs" {
					r.Errorf("the program got %q, want the message alone at the end", got)
				}
			})
		})
	}
	t.Run("the number of an option", func(t *testing.T) { // after which an empty box with a text appears
		var got []string
		play(t, nil, func(ctx context.Context, s *fakecli.Screen) {
			s.Ask(ctx, fakecli.Permission("a.txt"))
			listener(&got, "Ask for anything")(ctx, s)
		}, func(r *rig) {
			r.until(sessions.BlockedNow)
			person(r, "1")
			r.until(sessions.ReadyAgain)
			if _, err := r.session.Send(r.Context(), "theirs", false); err != nil || !slices.Equal(got, []string{"theirs"}) {
				r.Errorf("a message after a dialog: got %v and %q, want it delivered", err, got)
			}
		})
	})
}
