package sessions_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/taskagents/programs/cast"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/testkit/fakecli"
)

type buffer struct {
	bytes.Buffer
	closed bool
}

func (b *buffer) Close() error {
	b.closed = true
	return nil
}

// TestARecordingIsReplayed: what is recorded of a session goes through the states that
// the session went through, and holds nothing that must not be seen.
func TestARecordingIsReplayed(t *testing.T) {
	file := &buffer{}
	var words []string
	record := func(s *sessions.Spec, _ *pipes) {
		s.Mask = func(text string) string { return strings.ReplaceAll(text, "hush", "•••") }
		s.Recording = cast.NewWriter(file, time.Now(), sessions.Cols, sessions.Rows, "claude 2.1.197", "", cast.MaxFile)
		s.Task = "hello"
	}
	play(t, record, func(ctx context.Context, s *fakecli.Screen) {
		for {
			text, ok := s.Prompt(ctx)
			if !ok {
				return
			}
			s.Work(ctx, 5*time.Second)
			if strings.Contains(text, "ask") {
				s.Ask(ctx, fakecli.Permission("hush.txt"))
			}
			s.Done("Done, hush.")
		}
	}, func(r *rig) {
		r.until(sessions.TaskComplete)
		if _, err := r.session.Send(r.Context(), "ask hush", false); err != nil {
			r.Error(err)
		}
		e := r.until(sessions.BlockedNow)
		<-time.After(time.Second) // a person reads it; a recording has no moment between two of one time
		if err := r.session.Choose(r.Context(), "", e.To.Blocker.Options[0]); err != nil {
			r.Error(err)
		}
		r.until(sessions.TaskComplete)
		if err := r.session.Resize("me", 100, 30); err != nil {
			r.Error(err)
		}
		if err := r.session.Raw(r.Context(), "me", []byte("pass-word 1\x1b[A")); err != nil {
			r.Error(err)
		}
		r.until(sessions.Resized)
		words = r.words()
	})
	if !file.closed {
		t.Error("it is not closed")
	}
	text := file.String()
	if strings.Contains(text, "hush") || !strings.Contains(text, "•••.txt") {
		t.Errorf(`the recording has the secret, or nothing in its place: %s; want text without "hush", text with "•••.txt"`, text)
	}
	// The program may echo keys before it ends; that is output and not masked.
	if !strings.Contains(text, `"i","********* *`) {
		t.Errorf(`the recording lacks the masked keys: %s; want text with "\"i\",\"********* *"`, text)
	}
	rec, err := cast.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	subject, err := detect.GuessProgram(rec, "one.cast")
	if err != nil || subject.Version != "2.1.197" {
		t.Fatalf(`err = %v, want nil; subject.Version = %q, want "2.1.197"`, err, subject.Version)
	}
	var replayed, marked []string
	if err := detect.Replay(rec, claude(t), subject.Version, func(s detect.ReplayStep) error {
		replayed = append(replayed, s.To)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, e := range rec.Events {
		if e.Kind == cast.Mark && e.Data == "end" {
			break
		}
		if e.Kind == cast.Mark {
			marked = append(marked, e.Data)
		}
	}
	if d := cmp.Diff(words, slices.Compact(replayed)); d != "" {
		t.Errorf(`replayed it differs: %s; want d = ""`, d)
	}
	if d := cmp.Diff(words, slices.Compact(marked)); d != "" {
		t.Errorf(`its marks differ: %s; want d = ""`, d)
	}
}
