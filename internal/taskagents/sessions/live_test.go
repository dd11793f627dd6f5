package sessions_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// bare is a session without a terminal, as another package would run it.
type bare struct {
	sessions.Live
	id   string
	done chan struct{}
	once sync.Once
}

func (b *bare) ID() string            { return b.id }
func (b *bare) Done() <-chan struct{} { return b.done }
func (b *bare) Stop(bool)             { b.once.Do(func() { close(b.done) }) }

func TestSessionsThatOthersRun(t *testing.T) {
	m := sessions.New(sessions.Config{MaxLive: 1})
	heard := m.Subscribe()
	began := func(b *bare) func(func(sessions.Event)) (sessions.Live, error) {
		return func(tell func(sessions.Event)) (sessions.Live, error) {
			tell(sessions.Event{Session: b.id, Type: sessions.Started})
			return b, nil
		}
	}
	one := &bare{id: "pty-1-a", done: make(chan struct{})}
	if _, err := m.Run(one.id, func(tell func(sessions.Event)) (sessions.Live, error) {
		tell(sessions.Event{Session: one.id, Type: sessions.Started})
		return nil, errors.New("no")
	}); err == nil {
		t.Error("what did not start runs; want an error")
	}
	if _, err := m.Get(one.id); capability.AsError(err).Reason != "session_not_found" {
		t.Errorf(`what did not start is found: %v; want capability.AsError(err).Reason = "session_not_found"`, err)
	}
	if s, err := m.Run(one.id, began(one)); err != nil || s != sessions.Live(one) {
		t.Fatalf("session = %v, err = %v; want the live one", s, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if e, ok, err := heard.Next(ctx); !ok || e.Session != one.id || err != nil {
		t.Errorf("%+v %v; want ok = true, e.Session = %v, no error", e, err, one.id)
	}
	if s, err := m.Get(one.id); s != sessions.Live(one) || err != nil {
		t.Errorf("who hears of it does not find it %v; want s = sessions.Live(one), no error", err)
	}
	if _, err := sessions.InTerminal(one); capability.AsError(err).Reason != "no_terminal" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "no_terminal"`, err)
	}
	two := &bare{id: "pty-2-a", done: make(chan struct{})}
	if _, err := m.Run(two.id, began(two)); capability.AsError(err).Reason != "too_many_sessions" {
		t.Errorf(`beyond the limit: %v; want capability.AsError(err).Reason = "too_many_sessions"`, err)
	}
	one.Stop(false)
	if _, err := m.Run(one.id, began(one)); capability.AsError(err).Reason != "session_exists" {
		t.Errorf(`a second one of its name: %v; want capability.AsError(err).Reason = "session_exists"`, err)
	}
	if _, err := m.Run(two.id, began(two)); err != nil || len(m.List()) != 2 {
		t.Errorf("after the end of the first: %v; want no error, len(m.List()) = 2", err)
	}
	m.Close(t.Context())
	select {
	case <-two.done:
	default:
		t.Error("closing leaves it running")
	}
	if _, err := m.Run("pty-3-a", began(two)); capability.AsError(err).Reason != "shutting_down" {
		t.Errorf(`after the end: %v; want capability.AsError(err).Reason = "shutting_down"`, err)
	}
}
