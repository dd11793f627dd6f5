package signin

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// Sessions gives access to sessions. An error means that the session has ended.
type Sessions interface {
	Info(id string) (sessions.Info, error)
	// Task returns the first task of the session, or "".
	Task(id string) string
	Keys(ctx context.Context, id string, keys []string) error
	Send(ctx context.Context, id, text string) error
}

// Recovery starts logins for sessions that wait for one, and continues the sessions afterwards.
type Recovery struct {
	desk     *Desk
	sessions Sessions
	flow     func(programs.Name) (Flow, bool)
	logger   *slog.Logger

	mu    sync.Mutex
	known map[string]*waiting
	group sync.WaitGroup
}

// waiting is the login state of a session.
type waiting struct {
	heard  time.Time // of the last request that was handled
	nudged time.Time
	under  bool // a login or its follow-up is in progress
	tries  int
	worked bool // the session has started a turn
}

// NewRecovery returns a Recovery; flow returns the login of a program, and false if it has none.
func NewRecovery(desk *Desk, s Sessions, flow func(programs.Name) (Flow, bool), logger *slog.Logger) *Recovery {
	return &Recovery{desk: desk, sessions: s, flow: flow, logger: logger, known: make(map[string]*waiting)}
}

// HandleEvents handles the events of all sessions until ctx or the subscription ends. It subscribes
// again after an error. When it returns, the goroutines that it started have ended.
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
			r.logger.Error("events of sessions were lost, so a login may not be offered", "err", err)
			break
		}
	}
}

// event updates the state of a session, and starts a login if the session requires one, unless a
// login is in progress, was just handled, or was tried maxTries times.
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
			w = &waiting{worked: true} // an older session: its task must not be repeated
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

// recover runs a login for the session's program and then continues the session.
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
		return // users log in on the program's own screen
	}
	done := make(chan error, 1)
	if _, err := r.desk.Begin(ctx, string(i.AdapterType), flow, func(err error) { done <- err }); err != nil {
		return // the desk reported the failure
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

// goOn presses Enter twice to leave the sign-in screen. If the session then waits without having
// worked for quietTimeout, it sends the task again.
func (r *Recovery) goOn(ctx context.Context, id string, w *waiting) {
	r.mu.Lock()
	nudge := w.nudged.IsZero() || time.Since(w.nudged) >= nudgeInterval
	if nudge {
		w.nudged = time.Now()
	}
	r.mu.Unlock()
	for n := 0; nudge && n < 2; n++ {
		// In a session that left the screen already, Enter could answer a dialog.
		if i, err := r.sessions.Info(id); err != nil || i.Status != detect.Authenticating {
			break
		}
		if err := r.sessions.Keys(ctx, id, []string{"enter"}); err != nil {
			r.logger.Warn("a session was not woken after a login", "session", id, "err", err)
			break
		}
		if pause.For(ctx, nudgeDelay) != nil {
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
		if pause.For(ctx, askInterval) != nil {
			return
		}
	}
}
