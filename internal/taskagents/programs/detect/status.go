package detect

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is the state of a session.
type State string

// The states of a session.
const (
	Pending        State = "pending"
	Starting       State = "starting"
	Authenticating State = "authenticating"
	Ready          State = "ready"
	Busy           State = "busy"
	Blocked        State = "blocked"
	Stopping       State = "stopping"
	Stopped        State = "stopped"
	Error          State = "error"
)

// live reports whether the state may change.
func (s State) live() bool { return s != Stopped && s != Error }

// Phases that refine ready and busy. After a failed turn of a running program the state is ready
// with the phase "failed:" and a kind.
const (
	PhaseDone        = "done"
	PhaseInterrupted = "interrupted"
	PhaseUnsubmitted = "unsubmitted"
	PhaseThinking    = "thinking"
	PhaseTool        = "tool"
	PhaseRetry       = "provider_retry"
	PhaseCompacting  = "compacting"
	phaseFailed      = "failed:"
)

// Allowed reports whether a session may move from one state to another. Within a state, its
// phase or its dialog may change. Three moves are less obvious, but recorded sessions make
// them: starting to busy (a task on the command line), blocked to ready (a dialog before or
// at the end of a turn), and to authenticating when a login expires or follows a dialog.
func Allowed(from, to State) bool {
	switch to {
	case Error:
		return from.live()
	case Stopping:
		return from.live() && from != Stopping
	case Stopped:
		return from == Stopping
	}
	if from == to {
		return from.live() && from != Pending && from != Starting && from != Stopping
	}
	return slices.Contains(map[State][]State{
		Pending:        {Starting},
		Starting:       {Authenticating, Blocked, Ready, Busy},
		Authenticating: {Ready, Blocked, Busy},
		Ready:          {Busy, Blocked, Authenticating},
		Busy:           {Ready, Blocked, Authenticating},
		Blocked:        {Busy, Ready, Authenticating},
	}[from], to)
}

// Status is a state with its details.
type Status struct {
	State   State    `json:"state"`
	Phase   string   `json:"phase,omitempty"`
	Kind    string   `json:"kind,omitempty"` // of an error
	Blocker *Blocker `json:"blocker,omitempty"`
	URL     string   `json:"url,omitempty"` // where to sign in
}

// RefusedPermission is the kind of the failure of a turn in which the program itself refused what its
// preset asks the user about.
const RefusedPermission = "permission_refused"

// Word returns the status as written in recordings.
func (s Status) Word() string {
	switch {
	case s.State == Authenticating:
		return "auth_required"
	case s.State == Error:
		return phaseFailed + s.Kind
	case s.State == Blocked && s.Blocker != nil:
		return "blocked:" + s.Blocker.Type
	case s.State == Stopped && s.Phase == PhaseDone, s.State == Ready && s.Phase == PhaseDone:
		return PhaseDone
	case s.State == Ready && strings.HasPrefix(s.Phase, phaseFailed):
		return s.Phase
	case s.Phase == "" || s.Phase == PhaseThinking || s.State != Ready && s.State != Busy:
		return string(s.State)
	case s.State == Busy && strings.HasPrefix(s.Phase, PhaseTool+":"): // hooks add the tool's name
		return "busy:tool"
	}
	return string(s.State) + ":" + s.Phase
}

// same reports whether two statuses need no new report: they may differ in a dialog's cursor.
func (s Status) same(o Status) bool {
	if s.State != o.State || s.Phase != o.Phase || s.Kind != o.Kind || (s.Blocker == nil) != (o.Blocker == nil) {
		return false
	}
	return s.Blocker == nil || s.Blocker.Fingerprint == o.Blocker.Fingerprint
}

// Change is one reported change of state.
type Change struct {
	At       time.Time
	From, To Status
	Cause    string // decisive evidence in one or two words
	Evidence []Evidence
}

// Evidence is one observation that a decision is based on.
type Evidence struct {
	Class  int    `json:"class,omitempty"` // 1: message, 2: hook, 3: sequence, 4: screen, 5: silence; 0: process or keyboard
	Source string `json:"source"`          // title, osc:7501, a region of the screen, input, exit, hook:<name>
	Rule   string `json:"rule,omitempty"`
	Text   string `json:"text,omitempty"`
	AgeMS  int64  `json:"age_ms"`

	at time.Time
}

func exitText(code int) string {
	if code < 0 {
		return fmt.Sprintf("ended by signal %d", -code)
	}
	return fmt.Sprintf("exit status %d", code)
}

func blocker(kind, prompt string, options []string, numbers []int, selected int) *Blocker {
	return &Blocker{
		Type: kind, Prompt: prompt, Options: options, Selected: selected, Fingerprint: Fingerprint(kind, prompt, options),
		Choices: choices(kind, options, numbers), Source: "screen",
	}
}
