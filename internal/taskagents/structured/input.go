package structured

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// Send starts a turn with a text when the program is ready; up to 20 texts wait in order. With
// atOnce it also sends the text to a working program if the protocol allows that. It returns when
// the program has accepted or refused the text. ACP does not confirm texts, so they count as
// delivered when they are sent.
//
// Its errors are those of [sessions.Session.Send]; submit_failed has the program's message, or
// states that it did not answer for 30 s.
func (s *Session) Send(ctx context.Context, text string, atOnce bool) (sessions.Outcome, error) {
	text = strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", ""))
	return s.x.Send(ctx, text, atOnce, s.blocked)
}

// blocked returns an error if no text can be sent now. The caller holds mu.
func (s *Session) blocked() error {
	if s.gone {
		return s.x.Ended()
	}
	return s.spec.Mask.Blocked(s.status, "sign in with the program itself, and start the session again", "choose one of its options")
}

// deliver sends the first task and then the messages, one after the other.
func (s *Session) deliver() {
	if task := strings.TrimSpace(s.spec.Task); task != "" {
		if _, err := s.submit(&sessions.Text{Ctx: s.ctx, Content: task}); err != nil && s.ctx.Err() == nil {
			s.cfg.Logger.Warn("the first task of a session was not delivered", "session", s.spec.ID, "err", err)
		}
	}
	s.x.Deliver(s.submit)
}

// submit waits until the program is ready, sends one message and waits for its acceptance.
func (s *Session) submit(m *sessions.Text) (sessions.Outcome, error) {
	var turns, taken, refusals uint64
	said := func() bool { // called with mu held
		working := s.status.State == detect.Busy
		if s.status.State != detect.Ready && (!working || !m.AtOnce) {
			return false
		}
		// Counts from before the text is sent do not confirm it.
		turns, taken, refusals = s.turns, s.taken, s.declined.times
		step, ok := s.talk.Say(m.Content, working)
		if !ok {
			return false
		}
		s.print("> " + m.Content)
		s.emit(sessions.Event{Type: sessions.Message, Direction: "stdin", Text: m.Content})
		if !working {
			s.info.LastInput, s.begun = time.Now(), false
			s.move(detect.Status{State: detect.Busy}, "input", "")
		}
		s.do(step)
		return true
	}
	if _, err := s.x.Await(m.Ctx, 0, said); err != nil {
		return sessions.NotSent, err
	}
	outcome := sessions.NotSent
	_, err := s.x.Await(m.Ctx, acceptTimeout, func() bool {
		switch {
		case s.turns > turns || s.taken > taken:
			outcome = sessions.Delivered
		case s.status.State == detect.Blocked:
			outcome = sessions.ButBlocked
		default:
			return s.declined.times > refusals
		}
		return true
	})
	if outcome != sessions.NotSent || err != nil {
		return outcome, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	why := "it said nothing for " + acceptTimeout.String()
	if s.declined.times > refusals {
		why = s.declined.why
	}
	if s.status.State == detect.Busy && !s.begun {
		s.move(detect.Status{State: detect.Ready, Phase: "failed:submit"}, "not taken", why)
	}
	s.emit(sessions.Event{Type: sessions.SubmitFailed, Kind: "submit_failed", Cause: why, Text: s.view.tail(shownLines)})
	return sessions.NotSent, capability.Errorf(capability.CodeFailed, "tasks.send", "the program did not take the text: %s",
		why).With("submit_failed", "")
}

// Choose answers the open question with the option whose label begins with label, ignoring case.
// fingerprint identifies the question that the caller saw; "" means any open one.
//
// Its errors: conflict (no_dialog: it is not open any more, or another one is) and
// invalid_input (no_such_option).
func (s *Session) Choose(_ context.Context, fingerprint, label string) error {
	const op = "tasks.choose"
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.status.Blocker
	if s.gone || s.status.State != detect.Blocked || !s.spec.Mask.Means(fingerprint, b) {
		return capability.Errorf(capability.CodeConflict, op, "that question is not open any more").With(sessions.ReasonNoDialog,
			"look at the session again")
	}
	option := s.spec.Mask.Option(b.Options, label)
	if option < 0 {
		return capability.Errorf(capability.CodeInvalidInput, op, "the question has no single option that begins with %.80q; it has: %s", label,
			s.spec.Mask.Text(strings.Join(b.Options, " | "))).With("no_such_option", "")
	}
	s.decide(b.Selects(option))
	return nil
}

// Answer answers the open question. Its errors are those of [detect.Blocker.Read], and conflict
// (blocker_ended) if no question is open.
func (s *Session) Answer(_ context.Context, r detect.Reply) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.status.Blocker
	if s.gone || s.status.State != detect.Blocked || b == nil {
		return detect.Ended()
	}
	a, err := s.spec.Mask.Read(b, r)
	if err != nil {
		return err
	}
	s.decide(a)
	return nil
}

// decide sends an answer to the open question. The caller holds mu.
func (s *Session) decide(a detect.Answer) {
	i := slices.IndexFunc(s.open, func(p *pending) bool { return p.shown }) // the oldest shown question is the blocker
	if i < 0 {
		return
	}
	p := s.open[i]
	s.info.LastInput = time.Now()
	said := "answer a form"
	if a.Option >= 0 {
		said = "choose " + p.Options[a.Option].Label
	}
	s.emit(sessions.Event{Type: sessions.Message, Direction: "keys", Text: said})
	if len(a.Values) > 0 {
		s.fill(p, a.Values)
		return
	}
	if kind := p.Options[a.Option].Kind; p.Type == "permission" && strings.HasPrefix(kind, "reject_") {
		s.refused(p.Tool, p.Call, p.Input, sessions.ByAnswer)
	}
	s.answer(p, a.Option, "")
}

// Keys implements sessions.Live. Without a terminal, only Escape has an effect: it interrupts the
// turn. Other keys fail with conflict, reason no_terminal; unknown names with invalid_input,
// reason unknown_key.
func (s *Session) Keys(ctx context.Context, names []string) error {
	list, err := sessions.EncodeKeys(names)
	if err != nil {
		return err
	}
	if len(list) != 1 || string(list[0]) != "\x1b" {
		return sessions.NoTerminal(s.spec.ID)
	}
	return s.Interrupt(ctx)
}

// Interrupt ends the running turn, withdraws its open questions, and waits at most 10 s for the
// end.
//
// Its errors: conflict (no_turn), failed (interrupt_ignored), unavailable, and those of
// ctx.
func (s *Session) Interrupt(ctx context.Context) error {
	const op = "tasks.interrupt"
	s.mu.Lock()
	if s.status.State != detect.Busy && s.status.State != detect.Blocked {
		err := capability.Errorf(capability.CodeConflict, op, "the program does not work on anything").With("no_turn", "")
		if s.gone {
			err = capability.AsError(s.x.Ended())
		}
		s.mu.Unlock()
		return err
	}
	refusals := s.declined.times
	s.emit(sessions.Event{Type: sessions.Message, Direction: "keys", Text: "interrupt"})
	open := s.questions()
	s.open = nil
	s.do(s.talk.Interrupt(open))
	s.blocker()
	s.mu.Unlock()
	over := false
	_, err := s.x.Await(ctx, interruptTimeout, func() bool {
		over = s.status.State != detect.Busy && s.status.State != detect.Blocked
		return over || s.declined.times > refusals
	})
	if over || err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	why := "it goes on"
	if s.declined.times > refusals {
		why = s.declined.why
	}
	return capability.Errorf(capability.CodeFailed, op, "the program did not end its turn: %s", why).With("interrupt_ignored",
		"stop the session")
}

// Stop ends the session. It asks the program to exit and kills it with all its descendants after
// 5 s, or at once with force. It does not wait for the end; see Done. A repeated call has an
// effect only with force.
func (s *Session) Stop(force bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.asked
	s.asked = true
	if s.gone {
		return
	}
	if first {
		s.move(detect.Status{State: detect.Stopping, Phase: s.status.Phase}, "stop requested", "")
	}
	switch {
	case force:
		s.child.Kill()
	case first:
		s.child.Ask()
		s.group.Go(func() {
			timer := time.NewTimer(stopGrace)
			defer timer.Stop()
			select {
			case <-timer.C:
				s.child.Kill()
			case <-s.ctx.Done():
			}
		})
	}
}

// Done returns a channel that is closed when the program has ended and Cleanup has run.
func (s *Session) Done() <-chan struct{} { return s.done }

// plain returns a text without escape sequences and control characters other than line feeds.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t':
			return ' '
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(strings.ReplaceAll(sessions.StripEscapes(text), "\r\n", "\n"), ""))
}
