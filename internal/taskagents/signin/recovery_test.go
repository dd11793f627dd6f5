package signin

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// program is a session whose sign-in screen goes away after some Enters, and which then
// may take its task by itself.
type program struct {
	mu     sync.Mutex
	info   sessions.Info
	enters int // that it wants
	did    []string
	start  time.Time
}

func (p *program) note(what string) {
	p.did = append(p.did, time.Since(p.start).String()+" "+what)
}

func (p *program) Info(string) (sessions.Info, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.info.Status == detect.Stopped {
		return p.info, errors.New("gone")
	}
	return p.info, nil
}

func (p *program) Task(string) string { return "the task" }

func (p *program) Keys(_ context.Context, _ string, keys []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(strings.Join(keys, " "))
	if p.enters--; p.enters <= 0 {
		p.info.Status = detect.Ready
	}
	return nil
}

func (p *program) Send(_ context.Context, _, text string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(text)
	return nil
}

func (p *program) done() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.did, ", ")
}

func (p *program) set(s detect.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.info.Status = s
}

type recovery struct {
	*Recovery
	p       *program
	started atomic.Int32
	in      chan error
	desk    *Desk
}

func newRecovery(enters int) *recovery {
	r := &recovery{p: &program{
		info: sessions.Info{Status: detect.Authenticating, AdapterType: programs.Codex}, enters: enters,
		start: time.Now(),
	}, in: make(chan error)}
	r.desk = New(func(Event) {}, quiet())
	r.Recovery = NewRecovery(r.desk, r.p, func(name programs.Name) (Flow, bool) {
		return showing(&r.started, r.in), name == programs.Codex
	}, quiet())
	return r
}

func (r *recovery) say(types ...sessions.Type) {
	for _, typ := range types {
		r.event(context.Background(), sessions.Event{Session: "pty-1-a", Type: typ, At: time.Now()})
	}
	synctest.Wait()
}

func (r *recovery) close() {
	r.desk.Close()
	r.group.Wait()
}

func TestASessionGoesOnAfterALogin(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		enters int
		after  func(*recovery) // once a user is logged in
		want   string
	}{
		"two Enters, and its task again": {2, func(*recovery) {}, "10s enter, 10.25s enter, 18.5s the task"},
		"it needs one Enter":             {1, func(*recovery) {}, "10s enter, 18.25s the task"},
		"it takes its task by itself": {
			2, func(r *recovery) { time.Sleep(3 * time.Second); r.say(sessions.BusyNow) },
			"10s enter, 10.25s enter",
		},
		"it ends":             {9, func(r *recovery) { r.p.set(detect.Stopped) }, "10s enter"},
		"it never gets ready": {9, func(*recovery) {}, "10s enter, 10.25s enter"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRecovery(tt.enters)
				defer r.close()
				r.say(sessions.Started, sessions.LoginRequired)
				time.Sleep(10 * time.Second)
				r.in <- nil
				synctest.Wait()
				tt.after(r)
				time.Sleep(2 * time.Minute)
				if got := r.p.done(); got != tt.want {
					t.Errorf("%s; want got = %v", got, tt.want)
				}
			})
		})
	}
}

func TestALoginIsOfferedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecovery(2)
		defer r.close()
		r.say(sessions.Started, sessions.LoginRequired, sessions.LoginRequired)
		time.Sleep(time.Minute)
		r.say(sessions.LoginRequired)
		if n := r.started.Load(); n != 1 {
			t.Errorf("%d logins; want n = 1", n)
		}
		r.in <- errors.New("no") // no user is logged in: nothing is pressed
		time.Sleep(2 * time.Second)
		r.say(sessions.LoginRequired)
		if n := r.started.Load(); n != 2 || r.p.done() != "" {
			t.Errorf(`%d logins, %s; want n = 2, r.p.done() = ""`, n, r.p.done())
		}
		// The same news within five seconds is not new.
		r.in <- errors.New("no")
		synctest.Wait()
		time.Sleep(2 * time.Second)
		r.say(sessions.LoginRequired)
		if n := r.started.Load(); n != 2 {
			t.Errorf("%d logins; want n = 2", n)
		}
		// A session that bounces is left alone after a while.
		for range 10 {
			time.Sleep(6 * time.Second)
			r.say(sessions.LoginRequired)
			select {
			case r.in <- errors.New("no"):
			default:
			}
			synctest.Wait()
		}
		if n := r.started.Load(); n != maxTries {
			t.Errorf("%d logins; want n = %v", n, maxTries)
		}
	})
}

// TestNudgesAreRare: Enter is pressed at most every eight seconds.
func TestNudgesAreRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecovery(100)
		defer r.close()
		r.say(sessions.LoginRequired) // a session that was there before: its task is not repeated
		r.in <- nil
		synctest.Wait()
		time.Sleep(6 * time.Second)
		r.say(sessions.LoginRequired)
		r.in <- nil
		synctest.Wait()
		time.Sleep(time.Minute)
		if got := r.p.done(); got != "0s enter, 250ms enter" {
			t.Errorf(`r.p.done() = %q, want "0s enter, 250ms enter"`, got)
		}
	})
}

func TestAProgramWithoutALogin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRecovery(1)
		defer r.close()
		r.p.info.AdapterType = programs.Aider
		r.say(sessions.Started, sessions.LoginRequired)
		time.Sleep(time.Minute)
		if r.started.Load() != 0 || r.p.done() != "" {
			t.Errorf(`r.started.Load() = %v, want 0; r.p.done() = %q, want ""`, r.started.Load(), r.p.done())
		}
	})
}
