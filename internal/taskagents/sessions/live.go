package sessions

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// Mode is how a session's program is run.
type Mode string

// The modes.
const (
	InPTY      Mode = "pty"        // in a terminal
	Structured Mode = "structured" // over pipes, in a protocol of the program's own
)

// Usage is what a conversation has cost so far, as far as its program tells.
type Usage struct {
	In  int64   `json:"inputTokens"`
	Out int64   `json:"outputTokens"`
	USD float64 `json:"costUsd,omitempty"`
}

// Live is a session, in whichever mode. Its methods may be called at any time by any caller,
// also when it has ended. What only a terminal has, [InTerminal] gives.
type Live interface {
	ID() string
	Info() Info
	// Send gives the program a text; the errors are those of [Session.Send].
	Send(ctx context.Context, text string, atOnce bool) (Outcome, error)
	// Keys presses keys. Without a terminal Escape ends the turn, and others are a conflict
	// (no_terminal).
	Keys(ctx context.Context, names []string) error
	// Choose answers what the program asks; the errors are those of [Session.Choose].
	Choose(ctx context.Context, fingerprint, label string) error
	Stop(force bool)
	Done() <-chan struct{}
	// Lines are the last n lines that people would read.
	Lines(n int) []string
	Explain() detect.Explanation
	// Console is what was shown from an offset on, and the offset of what comes; Snapshot
	// makes a terminal show it from the beginning.
	Console(since uint64) (data []byte, next uint64)
	Snapshot() Snapshot
}

// NoTerminal is the error for what only a terminal has: conflict, reason no_terminal.
func NoTerminal(id string) error {
	return capability.Errorf(capability.CodeConflict, "tasks", "session %s runs in structured mode, without a terminal", id).
		With("no_terminal", "send whole messages, choose what it asks by its label, and read its output; mode pty is for terminals")
}

// InTerminal is the session as one in a terminal, or the error of NoTerminal.
func InTerminal(s Live) (*Session, error) {
	if t, ok := s.(*Session); ok {
		return t, nil
	}
	return nil, NoTerminal(s.ID())
}
