package mcpclient

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// errIdle is the cause with which a request ends whose server was silent for too long.
var errIdle = errors.New("the server says nothing")

// directly forwards notifications while no loop receives them.
type directly struct {
	to    func(capability.Chunk)
	heard func()

	mu   sync.Mutex
	told progress
}

func (d *directly) tell(m message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.told.pass(m, d.to) {
		d.heard()
	}
}

// startHere posts the request of an exchange in the caller's goroutine, and returns an
// answer that is one document. over is false if the answer is a stream; then a goroutine
// reads it and ends the exchange.
func (l *httpLink) startHere(ctx context.Context, ex *exchange, idle time.Duration) (a answer, over bool) {
	select {
	case <-l.opened:
	case <-ctx.Done():
	}
	// The request's context does not end with its answer; see post.
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ex.ctx = own
	ex.leave = func() {
		if ex.questions.Load() > 0 {
			cancel(nil) // no goroutine waits for their answers
		}
	}
	drained := func() {
		if ex.ended.Load() && ex.questions.Load() == 0 {
			time.AfterFunc(drainGrace, func() { cancel(nil) })
		} else {
			cancel(context.Canceled)
		}
	}
	withdrawn := context.AfterFunc(ctx, drained)
	closed := context.AfterFunc(l.c.ctx, func() { cancel(context.Canceled) })
	var quiet *time.Timer
	// Until the answer, notifications arrive on the connection's own stream.
	told := &directly{to: ex.call.Progress, heard: func() { quiet.Reset(idle) }}
	ex.direct.Store(told)
	defer ex.direct.Store(nil)
	quiet = time.AfterFunc(idle, func() {
		switch {
		case ex.direct.Load() == nil: // the exchange is no longer direct, and its loop has its own timer
		case ex.asking.Load() > 0:
			quiet.Reset(idle)
		default:
			cancel(errIdle)
		}
	})
	if err := l.flight.add(ex); err != nil {
		withdrawn()
		closed()
		quiet.Stop()
		return answer{err: err}, true
	}
	traced := httptrace.WithClientTrace(own, &httptrace.ClientTrace{WroteHeaders: func() { ex.sent.Store(true) }})
	resp, err := l.send(traced, http.MethodPost, ex.body(), ex, "")
	if err == nil && resp.StatusCode/100 == 2 && kind(resp) == "text/event-stream" {
		quiet.Stop()
		ex.events = make(chan message, maxNotices)
		ex.direct.Store(nil)
		ex.leave = drained
		streams := l.c.spawn(func() {
			defer cancel(nil)
			defer closed()
			defer withdrawn()
			ex.end(l.read(own, ex, resp))
		})
		if !streams {
			cancel(nil)
			resp.Body.Close()
		}
		return a, !streams
	}
	defer withdrawn()
	defer closed()
	defer quiet.Stop()
	if err == nil {
		a = l.read(own, ex, resp)
		if ex.ended.Load() {
			return a, true
		}
		err = a.err
	}
	if err != nil {
		a.err = err
		if errors.Is(context.Cause(own), errIdle) {
			a.err = errIdle
		}
	}
	return a, true
}
