package sessions

import (
	"context"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// Fits reports whether an answer applies to a dialog, and the index of the option that it
// selects, or -1 if it presses keys.
func Fits(a programs.Answer, b *detect.Blocker) (option int, ok bool) {
	if b == nil || a.Type != b.Type || !strings.Contains(text.Fold(b.Prompt), text.Fold(a.Prompt)) {
		return 0, false
	}
	if len(a.Keys) > 0 || len(b.Options) == 0 {
		return -1, len(a.Keys) > 0 && len(b.Options) == 0
	}
	option = detect.MatchOption(b.Options, a.Label, checkMarks)
	return option, option >= 0
}

// checkMarks follow the label of the currently active option.
const checkMarks = " ✔✓"

// answering holds the automatic answers that were given.
type answering struct {
	used        []string // ids of given answers that may be given once
	fingerprint string
	inRow       int
}

// answerFor returns the automatic answer to a dialog, or nil if the user has to be asked. The
// same dialog is answered at most sameAnswered times in a row. The caller holds mu.
func (s *Session) answerFor(b *detect.Blocker) *programs.Answer {
	if !s.taken.IsZero() || b == nil {
		return nil
	}
	for i := range s.spec.Answers {
		a := &s.spec.Answers[i]
		if _, ok := Fits(*a, b); !ok || a.Once && slices.Contains(s.answers.used, a.ID) {
			continue
		}
		if s.answers.fingerprint != b.Fingerprint {
			s.answers.fingerprint, s.answers.inRow = b.Fingerprint, 0
		}
		if s.answers.inRow++; s.answers.inRow > sameAnswered {
			return nil
		}
		if a.Once {
			s.answers.used = append(s.answers.used, a.ID)
		}
		return a
	}
	return nil
}

// answer answers dialog b automatically. If that fails and the dialog is still open, it reports
// the dialog again as unanswered.
func (s *Session) answer(a *programs.Answer, b *detect.Blocker) {
	err := s.give(a, b)
	if err == nil || s.ctx.Err() != nil {
		return
	}
	s.m.cfg.Logger.Warn("a dialog could not be answered", "session", s.spec.ID, "answer", a.ID, "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.detector.Status(); st.State == detect.Blocked && st.Blocker.Fingerprint == b.Fingerprint {
		s.emit(Event{Type: BlockedNow, To: &st, Cause: "the answer did not work"})
	}
}

func (s *Session) give(a *programs.Answer, b *detect.Blocker) error {
	if len(a.Keys) == 0 {
		return s.Choose(s.ctx, b.Fingerprint, a.Label)
	}
	s.mu.Lock()
	st := s.detector.Status()
	still := st.State == detect.Blocked && st.Blocker.Fingerprint == b.Fingerprint && s.view().Dialog == nil
	s.mu.Unlock()
	if !still {
		return nil
	}
	return s.Keys(s.ctx, a.Keys)
}

// Answer selects the option of the open dialog that a reply names. Its errors are those of reading
// the reply and of Choose, and invalid_input (needs_terminal) for a text, for several answers and for a
// dialog without options, which a person has to type in the terminal.
func (s *Session) Answer(ctx context.Context, r detect.Reply) error {
	s.mu.Lock()
	b := s.info.Blocker
	open := !s.gone && s.info.Status == detect.Blocked && b != nil
	s.mu.Unlock()
	if !open {
		return detect.Ended()
	}
	if len(r.Values) > 0 || len(b.Options) == 0 || r.Free {
		return capability.Errorf(capability.CodeInvalidInput, "tasks.answer", "the program takes this answer only in its terminal").
			With("needs_terminal", "answer it by hand: junctor tasks attach "+s.spec.ID)
	}
	a, err := s.spec.Mask.Read(b, r)
	if err != nil {
		return err
	}
	return s.choose(ctx, b.ID, a.Option)
}

// Choose selects an option of the open dialog by the beginning of its label. It moves the cursor
// to the option, verifies its position on the screen, presses Enter, and returns when the dialog
// has closed. fingerprint identifies the dialog that the caller saw; "" means any open one.
//
// Its errors: conflict (no_dialog: it is not open any more, or another one is),
// invalid_input (no_such_option), failed (dialog_stays), unavailable, and those of ctx.
func (s *Session) Choose(ctx context.Context, fingerprint, label string) error {
	const op = "tasks.choose"
	s.mu.Lock()
	b := s.info.Blocker
	s.mu.Unlock()
	if b == nil {
		return errNoDialog()
	}
	target := s.spec.Mask.Option(b.Options, label)
	if target < 0 && s.spec.Mask.Means(fingerprint, b) {
		return capability.Errorf(capability.CodeInvalidInput, op, "the dialog has no single option that begins with %.80q; it has: %s", label,
			s.spec.Mask.Text(strings.Join(b.Options, " | "))).With("no_such_option", "")
	}
	return s.choose(ctx, fingerprint, target)
}

func errNoDialog() error {
	return capability.Errorf(capability.CodeConflict, "tasks.choose", "that dialog is not open any more").With(ReasonNoDialog,
		"look at the screen again")
}

// choose is Choose with the index of the option.
func (s *Session) choose(ctx context.Context, fingerprint string, target int) error {
	const op = "tasks.choose"
	gone := errNoDialog()
	s.mu.Lock()
	st := s.detector.Status()
	d := s.view().Dialog
	b := s.info.Blocker
	s.mu.Unlock()
	if st.State != detect.Blocked || d == nil || b == nil || b.Fingerprint != st.Blocker.Fingerprint || !s.spec.Mask.Means(fingerprint, b) ||
		target < 0 || target >= len(d.Options) || !slices.Equal(d.Options, st.Blocker.Options) {
		return gone
	}
	fingerprint = st.Blocker.Fingerprint
	// stands reports whether d is the same list with the cursor at that option.
	stands := func(d *detect.Dialog, at int) bool {
		return d != nil && d.Selected == at && len(d.Options) > target && d.Options[target] == st.Blocker.Options[target]
	}
	for at := d.Selected; at != target; {
		step, key := 1, []byte("\x1b[B")
		if target < at {
			step, key = -1, []byte("\x1b[A")
		}
		if err := s.write(ctx, key); err != nil {
			return err
		}
		at += step
		there, err := s.x.Await(ctx, cursorTimeout, func() bool { return stands(s.view().Dialog, at) })
		if err != nil {
			return err
		}
		if !there {
			return capability.Errorf(capability.CodeFailed, op, "the cursor of the dialog does not move as it should").With("dialog_stays",
				"answer it by hand: junctor tasks attach "+s.spec.ID)
		}
	}
	s.mu.Lock()
	still := stands(s.view().Dialog, target)
	if still {
		s.emit(Event{Type: Message, Direction: "keys", Text: "choose " + d.Options[target]})
	}
	s.mu.Unlock()
	if !still {
		return gone
	}
	// Busy programs lose keys. Enter is repeated only if the program printed nothing since,
	// because otherwise an equal dialog might be a second one.
	var left bool
	for range enters {
		_, before := s.Console(0)
		err := s.write(ctx, []byte("\r"))
		if err != nil {
			return err
		}
		left, err = s.x.Await(ctx, confirmTimeout, func() bool {
			st := s.detector.Status()
			return st.State != detect.Blocked || st.Blocker.Fingerprint != fingerprint || s.view().Dialog == nil
		})
		switch {
		case err != nil && s.ctx.Err() != nil:
			return nil // the choice ended the program
		case err != nil:
			return err
		}
		if _, now := s.Console(0); left || now != before {
			break
		}
	}
	if !left {
		return capability.Errorf(capability.CodeFailed, op, "the dialog is still open after the choice").With("dialog_stays",
			"answer it by hand: junctor tasks attach "+s.spec.ID)
	}
	return nil
}
