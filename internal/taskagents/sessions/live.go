package sessions

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// Mode is the way in which a session's program runs.
type Mode string

// The modes.
const (
	InPTY      Mode = "pty"        // in a terminal
	Structured Mode = "structured" // over pipes, with a protocol
	terminal   Mode = "terminal"   // what requests may call InPTY
)

// Request returns the mode that a request names. Another one is invalid_input, reason bad_mode.
func (m Mode) Request(op string) (Mode, error) {
	switch m {
	case terminal:
		return InPTY, nil
	case "", InPTY, Structured:
		return m, nil
	}
	return m, capability.Errorf(capability.CodeInvalidInput, op, "the mode %.60q is unknown", m).With("bad_mode",
		"use terminal, or structured for a program that has a protocol")
}

// Live is a session of any mode. Its methods are safe for concurrent use, also after the session
// has ended. [InTerminal] returns the session with the methods of a terminal.
type Live interface {
	ID() string
	Info() Info
	// Send sends a text to the program. Its errors are those of [Session.Send].
	Send(ctx context.Context, text string, atOnce bool) (Outcome, error)
	// Keys presses keys. Without a terminal, Escape ends the turn, and other keys fail with
	// conflict (no_terminal).
	Keys(ctx context.Context, names []string) error
	// Choose answers the program's question. Its errors are those of [Session.Choose].
	Choose(ctx context.Context, fingerprint, label string) error
	// Answer answers the program's question or form. Its errors are those of
	// [detect.Blocker.Read] and of Choose.
	Answer(ctx context.Context, r detect.Reply) error
	Stop(force bool)
	Done() <-chan struct{}
	// Lines returns the last n lines of the visible text.
	Lines(n int) []string
	Explain() detect.Explanation
	// Console returns the output from an offset on and the offset after it. Snapshot returns
	// the bytes with which a terminal shows the current state.
	Console(since uint64) (data []byte, next uint64)
	Snapshot() Snapshot
}

// NoTerminal returns the error for operations that require a terminal: conflict, reason
// no_terminal.
func NoTerminal(id string) error {
	return capability.Errorf(capability.CodeConflict, "tasks", "session %s runs in structured mode, without a terminal", id).
		With("no_terminal", "send whole messages, choose what it asks by its label, and read its output; mode pty is for terminals")
}

// InTerminal returns s as a session in a terminal, or the error of NoTerminal.
func InTerminal(s Live) (*Session, error) {
	if t, ok := s.(*Session); ok {
		return t, nil
	}
	return nil, NoTerminal(s.ID())
}
