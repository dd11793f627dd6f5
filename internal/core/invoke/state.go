package invoke

import (
	"fmt"
	"time"
)

// State is the state of an invocation, lower case in every protocol.
type State string

// The states; the last four are terminal.
const (
	StateCreated    State = "created"
	StateQueued     State = "queued"
	StateValidating State = "validating"
	StateAwaiting   State = "awaiting_confirmation"
	StateExecuting  State = "executing"
	StateProcessing State = "processing"
	StateLogging    State = "logging"
	StateCompleted  State = "completed"
	StateFailed     State = "failed"
	StateTimeout    State = "timeout"
	StateCancelled  State = "cancelled"
)

// Terminal reports whether s is final.
func (s State) Terminal() bool {
	switch s {
	case StateCompleted, StateFailed, StateTimeout, StateCancelled:
		return true
	}
	return false
}

// Event is an input that moves an invocation from one state to the next.
type Event string

// The events of an invocation.
const (
	EventValidate      Event = "validate"
	EventEnqueue       Event = "enqueue"
	EventExpire        Event = "expire"
	EventValidated     Event = "validated"
	EventInvalid       Event = "invalid"
	EventConfirmNeeded Event = "confirm_needed"
	EventApproved      Event = "approved"
	EventRejected      Event = "rejected"
	EventSuccess       Event = "success"
	EventError         Event = "error"
	EventTimeout       Event = "timeout"
	EventProcessed     Event = "processed"
	EventLogged        Event = "logged"
	EventLogFailed     Event = "log_failed"
	EventLogTolerated  Event = "log_tolerated"
	EventCancel        Event = "cancel"
	EventPanic         Event = "panic"
)

// next implements the transition table. The deadline ends an invocation in any state before
// logging, and a cancellation too, unless its result is being processed. A panic fails it in
// any state that is not final. ok is false for an illegal pair.
func next(from State, ev Event) (to State, ok bool) {
	if from.Terminal() {
		return from, false
	}
	if ev == EventPanic {
		return StateFailed, true
	}
	switch from {
	case StateCreated:
		switch ev {
		case EventValidate:
			return StateValidating, true
		case EventEnqueue:
			return StateQueued, true
		}
	case StateQueued:
		switch ev {
		case EventValidate:
			return StateValidating, true
		case EventExpire:
			return StateFailed, true
		}
	case StateValidating:
		switch ev {
		case EventValidated:
			return StateExecuting, true
		case EventInvalid:
			return StateFailed, true
		case EventConfirmNeeded:
			return StateAwaiting, true
		}
	case StateAwaiting:
		switch ev {
		case EventApproved: // checks run again; an approval must not skip them
			return StateValidating, true
		case EventRejected, EventExpire:
			return StateFailed, true
		}
	case StateExecuting:
		switch ev {
		case EventSuccess:
			return StateProcessing, true
		case EventError:
			return StateFailed, true
		}
	case StateProcessing:
		switch ev {
		case EventProcessed:
			return StateLogging, true
		case EventError:
			return StateFailed, true
		}
	case StateLogging:
		switch ev {
		case EventLogged, EventLogTolerated:
			return StateCompleted, true
		case EventLogFailed:
			return StateFailed, true
		}
		return from, false // a cancel or deadline in logging comes too late
	}
	switch {
	case ev == EventTimeout:
		return StateTimeout, true
	case ev == EventCancel && from != StateProcessing:
		return StateCancelled, true
	}
	return from, false
}

// TransitionError is the error of an event that the state does not accept. The state
// does not change.
type TransitionError struct {
	From  State
	Event Event
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("illegal transition: event %s in state %s", e.Event, e.From)
}

// Transition is one entry of an invocation's history.
type Transition struct {
	State  State     `json:"state"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// machine is the state of one invocation. It belongs to the goroutine of Invoke, where
// exit, deadline and cancel compete in one select, and the first one fires.
type machine struct {
	state   State
	history []Transition // handed out with the Reply
}

func (m *machine) start(now time.Time) {
	m.state = StateCreated
	m.history = append(make([]Transition, 0, 6), Transition{State: StateCreated, At: now}) // a plain call has six
}

// fire applies ev and appends the new state to the history. An illegal event changes nothing and
// returns a *TransitionError.
func (m *machine) fire(ev Event, now time.Time, reason string) error {
	to, ok := next(m.state, ev)
	if !ok {
		return &TransitionError{From: m.state, Event: ev}
	}
	m.state = to
	m.history = append(m.history, Transition{State: to, At: now, Reason: reason})
	return nil
}
