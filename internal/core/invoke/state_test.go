package invoke

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// legal is the transition table written a second time: from event to.
const legal = `
created validate validating
created enqueue queued
created timeout timeout
created cancel cancelled
created panic failed
queued validate validating
queued expire failed
queued cancel cancelled
queued timeout timeout
queued panic failed
validating validated executing
validating invalid failed
validating confirm_needed awaiting_confirmation
validating cancel cancelled
validating timeout timeout
validating panic failed
awaiting_confirmation approved validating
awaiting_confirmation rejected failed
awaiting_confirmation expire failed
awaiting_confirmation cancel cancelled
awaiting_confirmation timeout timeout
awaiting_confirmation panic failed
executing success processing
executing error failed
executing timeout timeout
executing cancel cancelled
executing panic failed
processing processed logging
processing error failed
processing timeout timeout
processing panic failed
logging logged completed
logging log_tolerated completed
logging log_failed failed
logging panic failed
`

func TestEveryPairOfStateAndEventIsDecided(t *testing.T) {
	t.Parallel()
	want := make(map[string]State)
	for line := range strings.Lines(strings.TrimSpace(legal)) {
		f := strings.Fields(line)
		want[f[0]+" "+f[1]] = State(f[2])
	}
	if len(states()) != 11 || len(events()) != 17 {
		t.Fatalf("%d states and %d events; want len(states()) = 11, len(events()) = 17", len(states()), len(events()))
	}
	at := time.Unix(0, 0)
	for _, from := range states() {
		for _, ev := range events() {
			var m machine
			m.start(at)
			m.state = from
			err := m.fire(ev, at, "why")
			to, isLegal := want[fmt.Sprintf("%s %s", from, ev)]
			delete(want, fmt.Sprintf("%s %s", from, ev))
			if !isLegal {
				illegal, ok := errors.AsType[*TransitionError](err)
				if !ok || illegal.From != from || illegal.Event != ev || m.state != from || len(m.history) != 1 {
					t.Errorf("%s in %s: %v, state %s; want ok = true, illegal.From = %v, illegal.Event = %v, m.state = %v, "+
						"len(m.history) = 1", ev, from, err, m.state, from, ev, from)
				}
				continue
			}
			if err != nil || m.state != to || m.history[len(m.history)-1] != (Transition{State: to, At: at, Reason: "why"}) {
				t.Errorf("%s in %s: %v, state %s, want %s", ev, from, err, m.state, to)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("never tried: %v; want len(want) at most 0", want)
	}
}

func TestNoEventLeavesATerminalState(t *testing.T) {
	t.Parallel()
	for _, s := range states() {
		for _, ev := range events() {
			if to, ok := next(s, ev); s.Terminal() && (ok || to != s) {
				t.Errorf("%s leaves %s; want not (s.Terminal() && (ok || to != s))", ev, s)
			}
		}
	}
}

// states returns every state.
func states() []State {
	return []State{
		StateCreated, StateQueued, StateValidating, StateAwaiting, StateExecuting, StateProcessing,
		StateLogging, StateCompleted, StateFailed, StateTimeout, StateCancelled,
	}
}

// events returns every event.
func events() []Event {
	return []Event{
		EventValidate, EventEnqueue, EventExpire, EventValidated, EventInvalid, EventConfirmNeeded,
		EventApproved, EventRejected, EventSuccess, EventError, EventTimeout, EventProcessed,
		EventLogged, EventLogFailed, EventLogTolerated, EventCancel, EventPanic,
	}
}
