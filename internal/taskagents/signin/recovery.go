package signin

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// Timeouts and intervals of the recovery of sessions that wait for a login.
const (
	dedupeInterval = 5 * time.Second
	nudgeDelay     = 250 * time.Millisecond
	nudgeInterval  = 8 * time.Second
	askInterval    = 500 * time.Millisecond
	readyTimeout   = 30 * time.Second
	// quietTimeout is how long a session may wait for input after a login, before its task is
	// taken to be lost: the session itself delivers it sooner.
	quietTimeout = 8 * time.Second
	maxTries     = 5 // logins of a session
)

// Sessions is what is needed of sessions; an error reports that the session has ended.
type Sessions interface {
	Info(id string) (sessions.Info, error)
	// Task is what the session was started for; "" is nothing.
	Task(id string) string
	Keys(ctx context.Context, id string, keys []string) error
	Send(ctx context.Context, id, text string) error
}

// Recovery logs people in for sessions that wait for it, and has these go on.
type Recovery struct {
	desk     *Desk
	sessions Sessions
	flow     func(programs.Name) (Flow, bool)
	logger   *slog.Logger

	mu    sync.Mutex
	known map[string]*waiting
	group sync.WaitGroup
}

// waiting is a session that has asked for a login.
type waiting struct {
	heard  time.Time // the last time that it counted
	nudged time.Time
	under  bool // a login is under way, or what follows it
	tries  int
	worked bool // it has begun a turn since the session began
}

// NewRecovery returns a Recovery; flow returns the login of a program, and false if it has none.
func NewRecovery(desk *Desk, s Sessions, flow func(programs.Name) (Flow, bool), logger *slog.Logger) *Recovery {
	return &Recovery{desk: desk, sessions: s, flow: flow, logger: logger, known: make(map[string]*waiting)}
}

// HandleEvents handles every event of sessions until ctx ends; then everything it started has ended, too.
func (r *Recovery) HandleEvents(ctx context.Context, subscribe func() *sessions.Subscription) {
	defer r.group.Wait()
	for ctx.Err() == nil {
		sub := subscribe()
		for {
			e, ok, err := sub.Next(ctx)
			if ok {
				r.event(ctx, e)
				continue
			}
			sub.Close()
			if err == nil {
				return
			}
			r.logger.Error("what happened to sessions was not heard, so a login may not be offered", "err", err)
			break
		}
	}
}

func (r *Recovery) event(ctx context.Context, e sessions.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.known[e.Session]
	switch e.Type {
	case sessions.Started:
		r.known[e.Session] = &waiting{}
	case sessions.BusyNow, sessions.TaskComplete:
		if w != nil {
			w.worked = true
		}
	case sessions.Ended, sessions.Failed:
		delete(r.known, e.Session)
	case sessions.LoginRequired:
		if w == nil {
			w = &waiting{worked: true} // it was there before us: its task is not ours to repeat
			r.known[e.Session] = w
		}
		if w.under || w.tries >= maxTries || !w.heard.IsZero() && e.At.Sub(w.heard) < dedupeInterval {
			return
		}
		w.heard, w.under = e.At, true
		w.tries++
		r.group.Go(func() { r.recover(ctx, e.Session, w) })
	}
}

// recover asks a user to log in, and lets the session go on.
func (r *Recovery) recover(ctx context.Context, id string, w *waiting) {
	defer func() {
		r.mu.Lock()
		w.under = false
		r.mu.Unlock()
	}()
	i, err := r.sessions.Info(id)
	if err != nil {
		return
	}
	flow, ok := r.flow(i.AdapterType)
	if !ok {
		return // its own screen is where people log in
	}
	done := make(chan error, 1)
	if _, err := r.desk.Begin(ctx, string(i.AdapterType), flow, func(err error) { done <- err }); err != nil {
		return // the desk said why
	}
	select {
	case err = <-done:
	case <-ctx.Done():
		return
	}
	if err == nil {
		r.goOn(ctx, id, w)
	}
}

// goOn presses Enter twice, as a person would to leave a sign-in screen, and repeats a task
// that was lost.
func (r *Recovery) goOn(ctx context.Context, id string, w *waiting) {
	r.mu.Lock()
	nudge := w.nudged.IsZero() || time.Since(w.nudged) >= nudgeInterval
	if nudge {
		w.nudged = time.Now()
	}
	r.mu.Unlock()
	for n := 0; nudge && n < 2; n++ {
		// A session that works or waits already is left alone: Enter would be an answer.
		if i, err := r.sessions.Info(id); err != nil || i.Status != detect.Authenticating {
			break
		}
		if err := r.sessions.Keys(ctx, id, []string{"enter"}); err != nil {
			r.logger.Warn("a session was not woken after a login", "session", id, "err", err)
			break
		}
		if !pause(ctx, nudgeDelay) {
			return
		}
	}
	task := r.sessions.Task(id)
	if task == "" {
		return
	}
	var ready time.Time
	for end := time.Now().Add(readyTimeout + quietTimeout); time.Now().Before(end); {
		i, err := r.sessions.Info(id)
		r.mu.Lock()
		worked := w.worked
		r.mu.Unlock()
		switch {
		case err != nil || worked || i.Completed > 0:
			return
		case i.Status != detect.Ready:
			ready = time.Time{}
		case ready.IsZero():
			ready = time.Now()
		case time.Since(ready) >= quietTimeout:
			if err := r.sessions.Send(ctx, id, task); err != nil {
				r.logger.Warn("a session did not take its task after a login", "session", id, "err", err)
			}
			return
		}
		if !pause(ctx, askInterval) {
			return
		}
	}
}

// pause reports false where ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
