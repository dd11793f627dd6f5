package sessions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/internal/taskagents/programs/cast"
)

// Keys presses keys, 50 ms apart, and does not wait for their effect. If a key is unknown, it
// presses none and fails with invalid_input (unknown_key).
func (s *Session) Keys(ctx context.Context, names []string) error {
	list, err := EncodeKeys(names)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return capability.Errorf(capability.CodeInvalidInput, "tasks.send", "there are no keys to press").With("no_input", "")
	}
	s.mu.Lock()
	s.emit(Event{Type: Message, Direction: "keys", Text: strings.Join(names, " ")})
	s.mu.Unlock()
	return s.press(ctx, list)
}

func (s *Session) press(ctx context.Context, list [][]byte) error {
	for i, data := range list {
		if i > 0 && pause.For(ctx, keyDelay) != nil {
			return capability.AsError(ctx.Err())
		}
		if err := s.write(ctx, data); err != nil {
			return err
		}
	}
	return nil
}

// Raw types bytes unchanged for a user at a terminal, and extends that user's control. Errors:
// conflict (control_taken) while another user is in control; too_large; unavailable.
func (s *Session) Raw(ctx context.Context, who string, data []byte) error {
	if len(data) > MaxMessage {
		return capability.Errorf(capability.CodeTooLarge, "tasks.send", "input may have %d MiB at most", MaxMessage>>20)
	}
	s.mu.Lock()
	err := s.others(who)
	if err == nil && !s.taken.IsZero() {
		s.taken = time.Now()
	}
	if err == nil {
		s.noteDraft(data)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.writeAs(ctx, data, hidden(data))
}

// hidden returns typed bytes with all visible characters replaced by *, because they may be a
// password.
func hidden(data []byte) []byte {
	return []byte(strings.Map(func(r rune) rune {
		if r > ' ' && r != 0x7f {
			return '*'
		}
		return r
	}, string(data)))
}

// others returns an error if another user than who is in control. The caller holds mu.
func (s *Session) others(who string) error {
	if s.taken.IsZero() || s.holder == who {
		return nil
	}
	return capability.Errorf(capability.CodeConflict, "tasks.control", "another person is in control of session %s",
		s.spec.ID).With("control_taken", "it ends a minute after their last key")
}

// Control gives the keyboard to a user, or releases it. While a user has control, messages wait
// and dialogs are not answered. Control ends after a minute without input. It fails with
// conflict (control_taken) while another user has control.
func (s *Session) Control(who string, take bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.others(who); err != nil {
		return err
	}
	was := !s.taken.IsZero()
	s.holder, s.taken = who, time.Time{}
	if take {
		s.taken = time.Now()
	}
	if take != was {
		s.emit(Event{Type: Controlled, Cause: map[bool]string{true: "taken", false: "released"}[take]})
		s.x.Notify()
		poke(s.wake)
	}
	return nil
}

// Resize changes the size of the terminal, within 20 to 500 columns and 5 to 200 rows. Errors:
// invalid_input (bad_size); conflict (control_taken) while another user is in control;
// unavailable (session_ended); failed.
func (s *Session) Resize(who string, cols, rows int) error {
	if cols < minCols || cols > maxCols || rows < minRows || rows > maxRows {
		return capability.Errorf(capability.CodeInvalidInput, "tasks.resize", "a terminal has %d to %d columns and %d to %d rows", minCols,
			maxCols, minRows, maxRows).With("bad_size", "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return s.x.Ended()
	}
	if err := s.others(who); err != nil {
		return err
	}
	if s.info.Cols == cols && s.info.Rows == rows {
		return nil
	}
	if err := s.terminal.Resize(cols, rows); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return capability.Wrap(capability.CodeFailed, "tasks.resize", "the terminal cannot be resized", err)
	}
	s.screen.Resize(cols, rows)
	s.info.Cols, s.info.Rows = cols, rows
	s.record(time.Now(), cast.Resize, fmt.Sprintf("%dx%d", cols, rows))
	s.emit(Event{Type: Resized, Cols: cols, Rows: rows})
	return nil
}
