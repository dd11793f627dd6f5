package sessions

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// Type is the type of an event.
type Type string

// The types of events.
const (
	Started       Type = "session_started"
	State         Type = "state" // every change of state, with its evidence
	ReadyAgain    Type = "ready"
	BusyNow       Type = "busy"
	BlockedNow    Type = "blocked"
	ToolRunning   Type = "tool_running"
	LoginRequired Type = "login_required"
	TaskComplete  Type = "task_complete"
	TurnFailed    Type = "turn_failed"
	Message       Type = "message"
	SubmitFailed  Type = "submit_failed"
	Stall         Type = "stall"
	Wedged        Type = "wedged"
	Elsewhere     Type = "answered_elsewhere" // a tool ran because something else has answered its question
	Refused       Type = "refused"            // a tool call was refused
	Used          Type = "usage"
	Ended         Type = "stopped"
	Failed        Type = "error"
	Output        Type = "output"
	Resized       Type = "resized"
	Controlled    Type = "control"
)

// Event is an event of a session. Only the members of its type are set.
type Event struct {
	Seq     uint64    `json:"seq"` // number within the session; increases by one
	Session string    `json:"sessionId"`
	Type    Type      `json:"type"`
	At      time.Time `json:"timestamp"`

	From     *detect.Status    `json:"from,omitempty"`
	To       *detect.Status    `json:"to,omitempty"`
	Cause    string            `json:"cause,omitempty"`
	Evidence []detect.Evidence `json:"evidence,omitempty"`

	Answered  string `json:"autoResponded,omitempty"` // automatic answer to a dialog
	Direction string `json:"direction,omitempty"`     // of a message: stdin, keys or system
	Text      string `json:"text,omitempty"`          // text of a message, last text of a turn, or last lines of the screen
	Source    string `json:"source,omitempty"`        // of a turn's end: hook, structured or signal
	Tool      string `json:"toolName,omitempty"`
	Kind      string `json:"kind,omitempty"` // of a failure
	Report    int    `json:"report,omitempty"`
	QuietMS   int64  `json:"quietMs,omitempty"`
	ExitCode  *int   `json:"exitCode,omitempty"`
	Signal    string `json:"exitSignal,omitempty"`

	Refusal *Refusal `json:"refusal,omitempty"`

	Usage *programs.Usage `json:"usage,omitempty"` // of the session so far
	More  programs.Usage  `json:"-"`               // since the last event with Usage

	Data   []byte `json:"-"` // of output
	Offset uint64 `json:"-"` // of output: number of bytes before it
	Cols   int    `json:"cols,omitempty"`
	Rows   int    `json:"rows,omitempty"`
}

// Subscription receives the events of all sessions. Sessions do not wait for it.
type Subscription struct {
	m *Manager

	mu     sync.Mutex
	queue  []Event
	output int // bytes of output in queue
	over   bool
	err    error
	news   chan struct{} // holds a value if the queue has changed
}

// Subscribe returns a subscription to all events from now on. The caller closes it.
func (m *Manager) Subscribe() *Subscription {
	w := &Subscription{m: m, news: make(chan struct{}, 1)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		w.over = true
	} else {
		m.watchers[w] = true
	}
	return w
}

// Close ends the subscription.
func (w *Subscription) Close() {
	w.m.mu.Lock()
	delete(w.m.watchers, w)
	w.m.mu.Unlock()
	w.end(nil)
}

func (w *Subscription) end(err error) {
	w.mu.Lock()
	if !w.over {
		w.over, w.err = true, err
	}
	w.mu.Unlock()
	w.poke()
}

func (w *Subscription) poke() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// Next waits for the next event. ok is false after the last: the subscription
// or the manager was closed, ctx ended, or, with an error of code overloaded, this
// subscriber was too slow.
func (w *Subscription) Next(ctx context.Context) (e Event, ok bool, err error) {
	for {
		w.mu.Lock()
		if len(w.queue) > 0 {
			e = w.queue[0]
			w.queue[0] = Event{}
			w.queue = w.queue[1:]
			w.output -= len(e.Data)
			w.mu.Unlock()
			return e, true, nil
		}
		over, err := w.over, w.err
		w.mu.Unlock()
		if over {
			return e, false, err
		}
		select {
		case <-w.news:
		case <-ctx.Done():
			return e, false, nil
		}
	}
}

// put queues an event and never waits.
func (w *Subscription) put(e Event) {
	w.mu.Lock()
	switch {
	case w.over:
	case e.Type == Output:
		w.output += len(e.Data)
		w.queue = append(w.queue, e)
		if w.output > maxOutputQueued {
			w.queue = slices.DeleteFunc(w.queue, func(e Event) bool { // down to the half, so that the next events need no search
				old := e.Type == Output && w.output > maxOutputQueued/2
				if old {
					w.output -= len(e.Data)
				}
				return old
			})
		}
	case len(w.queue) >= maxWaiting:
		w.over = true
		w.err = capability.Errorf(capability.CodeOverloaded, "tasks.events", "%d events were waiting to be read", maxWaiting).With("too_slow",
			"subscribe again and read the state of the sessions")
	default:
		w.queue = append(w.queue, e)
	}
	w.mu.Unlock()
	w.poke()
}

// tell queues an event for all subscribers.
func (m *Manager) tell(e Event) {
	m.mu.Lock()
	list := make([]*Subscription, 0, len(m.watchers))
	for w := range m.watchers {
		list = append(list, w)
	}
	m.mu.Unlock()
	for _, w := range list {
		w.put(e)
	}
}
