package sessions

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// piece holds bytes to be typed.
type piece struct {
	data []byte
	done chan error // buffered
}

// keyboard writes pieces and replies to the terminal until the session ends. If the program does
// not read, only this goroutine blocks.
func (s *Session) keyboard() {
	for {
		select {
		case p := <-s.out:
			_, err := s.terminal.Write(p.data)
			p.done <- err
		case <-s.replied:
			s.mu.Lock()
			replies := s.replies
			s.replies = nil
			s.mu.Unlock()
			for _, r := range replies {
				_, _ = s.terminal.Write(r) // a failed write also fails for the next piece
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// write types data and returns when the terminal has accepted it.
func (s *Session) write(ctx context.Context, data []byte) error { return s.writeAs(ctx, data, nil) }

// writeAs types data, which is recorded as shown unless that is nil.
func (s *Session) writeAs(ctx context.Context, data, shown []byte) error {
	p := piece{data, make(chan error, 1)}
	select {
	case s.out <- p:
	case <-ctx.Done():
		return capability.AsError(ctx.Err())
	case <-s.ctx.Done():
		return s.x.Ended()
	}
	s.mu.Lock()
	now := time.Now()
	s.info.LastInput = now
	s.typedIn(now, data, shown)
	s.mu.Unlock()
	poke(s.wake)
	select {
	case err := <-p.done:
		if err != nil {
			return capability.Wrap(capability.CodeUnavailable, "tasks.send", "the terminal of session "+s.spec.ID+" takes nothing any more",
				err).With(ReasonEnded, "")
		}
		return nil
	case <-ctx.Done():
		return capability.AsError(ctx.Err())
	case <-s.ctx.Done():
		return s.x.Ended()
	}
}

// Outcome is the result of sending a text.
type Outcome string

// The outcomes.
const (
	Delivered  Outcome = "delivered"
	ButBlocked Outcome = "delivered_but_blocked" // a dialog opened
	NotSent    Outcome = "not_delivered"
	// Queued is returned by functions that do not wait for one of the others.
	Queued Outcome = "queued"
)

// Send types a text and presses Enter when the program is ready; up to 20 texts wait in order.
// With atOnce it also types into a busy program, which queues the text itself. A command in a shell
// that waits for a line gets the text at once. Send returns when the screen shows whether the program
// accepted the text.
//
// Its errors: invalid_input (no_input), too_large (1 MiB), conflict (agent_blocked: a dialog is
// open, which requires Choose or Keys; draft_open: a user has typed a text and not sent it),
// overloaded (too_many_messages), unavailable (session_ended), timeout (not_ready), failed
// (submit_failed: the text is still in the input box after Enter was pressed three times), and
// those of ctx.
func (s *Session) Send(ctx context.Context, text string, atOnce bool) (Outcome, error) {
	return s.x.Send(ctx, plain(text), atOnce, s.blocked)
}

// blocked returns an error if no text can be sent because the session has ended, waits for an
// answer or a login, or holds a draft. The caller holds mu.
func (s *Session) blocked() error {
	if s.gone {
		return s.x.Ended()
	}
	if err := s.spec.Mask.Blocked(s.detector.Status(), "see its screen with: junctor tasks attach "+s.spec.ID,
		"answer it with keys, or choose one of its options"); err != nil {
		return err
	}
	if _, shown := s.drafted(); shown && s.taken.IsZero() { // during control, messages wait
		return s.draftOpen()
	}
	return nil
}

// plain returns a text without escape sequences and control characters other than line feeds and
// tabs, because these would act as keys.
func plain(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	text = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, strings.ToValidUTF8(StripEscapes(text), ""))
	return strings.TrimSpace(text)
}

// escapes matches terminal escape sequences, of which the last may be incomplete.
var escapes = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*(\x07|\x1b\\)?|(?s:.))?`)

// StripEscapes returns a text without escape sequences.
func StripEscapes(text string) string {
	if strings.Contains(text, "\x1b") {
		return escapes.ReplaceAllString(text, "")
	}
	return text
}

// deliver types the first task and then the sent messages, one after the other.
func (s *Session) deliver() {
	if s.spec.Task != "" {
		s.firstTask()
	}
	s.x.Deliver(s.typed)
}

// firstTask types the first task, or waits until the program has started the one on its command
// line. A failure is reported as an event.
func (s *Session) firstTask() {
	if s.spec.TaskInArgv {
		s.mu.Lock()
		s.remember(s.spec.Task)
		s.mu.Unlock()
		begun, err := s.x.Await(s.ctx, startTimeout, func() bool { return s.turns > 0 })
		if err == nil && !begun {
			s.failed("the program did not begin with the task on its command line", "not_started")
		}
		return
	}
	m := &Text{Ctx: s.ctx, Content: plain(s.spec.Task), First: true}
	if _, err := s.typed(m); err != nil && s.ctx.Err() == nil {
		s.m.cfg.Logger.Warn("the first task of a session was not delivered", "session", s.spec.ID, "err", err)
	}
}

// remember records a text for the program and reports it as a message. The caller holds mu.
func (s *Session) remember(content string) {
	s.sent = append(s.sent[max(0, len(s.sent)-maxSent+1):], text.Fold(content))
	s.emit(Event{Type: Message, Direction: "stdin", Text: content})
}

// failed reports that a text was not accepted.
func (s *Session) failed(why, kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emit(Event{Type: SubmitFailed, Kind: kind, Cause: why, Text: tail(s.lines(), 20)})
}

// typed waits until a message may be typed and submits it.
func (s *Session) typed(m *Text) (Outcome, error) {
	ctx, cancel := context.WithCancel(m.Ctx)
	defer cancel()
	for {
		limit := readyTimeout
		if !m.First {
			limit = 24 * time.Hour // as long as its sender waits
		}
		ready, err := s.x.Await(ctx, limit, func() bool { return s.takes(m) })
		if err != nil {
			return NotSent, err
		}
		if !ready {
			s.failed("the program was not ready within "+limit.String(), "not_ready")
			return NotSent, capability.Errorf(capability.CodeTimeout, "tasks.send", "the program was not ready within %s", limit).With("not_ready",
				"see its screen with: junctor tasks attach "+s.spec.ID)
		}
		if m.First { // the program must stay ready for a moment
			if pause.For(ctx, max(readyDelay, s.spec.PostReady)) != nil {
				return NotSent, capability.AsError(ctx.Err())
			}
			s.mu.Lock()
			still := s.takes(m)
			s.mu.Unlock()
			if !still {
				continue
			}
		}
		return s.submit(ctx, m.Content)
	}
}

// takes reports whether a message may be typed now: no user has control or a draft, no dialog is open, and
// the program is ready, or busy if the message has AtOnce or a command in a shell reads a line. The
// caller holds mu.
func (s *Session) takes(m *Text) bool {
	if draft, _ := s.drafted(); draft || !s.taken.IsZero() || s.view().Dialog != nil {
		return false
	}
	switch s.detector.Status().State {
	case detect.Ready:
		return true
	case detect.Busy:
		return m.AtOnce || s.reads()
	}
	return false
}

// reads reports whether a command in a shell probably waits for a line of input: it runs, and the
// cursor stands behind text, as after a prompt. The caller holds mu.
func (s *Session) reads() bool {
	if s.spec.Framework != programs.Shell || s.detector.Status().State != detect.Busy || s.view().Box != nil {
		return false
	}
	x, _, _ := s.screen.Cursor()
	return x > 0
}

// submit types a text, presses Enter up to three times and returns whether the program accepted
// it. It does not press Enter if a dialog is open.
func (s *Session) submit(ctx context.Context, text string) (Outcome, error) {
	s.mu.Lock()
	line := s.reads()
	if line {
		s.remember(text)
	}
	s.mu.Unlock()
	if line { // No turn begins that would confirm it, and a second Enter would be another line.
		if err := s.write(ctx, []byte(text+"\r")); err != nil {
			return NotSent, err
		}
		return Delivered, nil
	}
	if err := s.clear(ctx); err != nil {
		return NotSent, err
	}
	s.mu.Lock()
	paste := s.screen.Mode(2004)
	typed := submission{text: text, box: s.boxText(), turns: s.turns, reports: s.submits}
	s.remember(text)
	s.last = text
	s.mu.Unlock()
	data := []byte(text)
	if paste {
		data = []byte("\x1b[200~" + text + "\x1b[201~")
	}
	if err := s.write(ctx, data); err != nil {
		return NotSent, err
	}
	for i := range enters {
		if i == enters-1 && s.lost(&typed) {
			if err := s.write(ctx, data); err != nil {
				return NotSent, err
			}
		}
		if pause.For(ctx, pasteDelay) != nil {
			return NotSent, capability.AsError(ctx.Err())
		}
		s.mu.Lock()
		dialog := s.view().Dialog != nil
		typed.shown = typed.shown || s.view().Holds(text)
		s.mu.Unlock()
		if dialog { // Enter would answer it
			return ButBlocked, nil
		}
		if err := s.write(ctx, []byte("\r")); err != nil {
			return NotSent, err
		}
		if outcome, err := s.accepted(ctx, &typed); outcome != NotSent || err != nil {
			return outcome, err
		}
	}
	s.failed("the text stands in the input box; Enter did not send it", "submit_failed")
	return NotSent, capability.Errorf(capability.CodeFailed, "tasks.send",
		"the program did not take the text: %d times Enter did not send it", enters).
		With("submit_failed", "see its screen with: junctor tasks attach "+s.spec.ID)
}

// submission is a text that was typed, with the state of the session before it.
type submission struct {
	text, box      string
	turns, reports uint64
	shown          bool // the box has shown the text
}

// lost reports whether a typed text never appeared in the box and began no turn. A program that starts discards
// what is typed while it looks at its terminal.
func (s *Session) lost(t *submission) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !t.shown && s.turns == t.turns && s.view().Box != nil && s.boxText() == t.box
}

// accepted waits until the program shows that it accepted a text after Enter, for confirmTimeout at most. A report of
// the program is sufficient. A new turn is not while the box holds the text or has not shown it yet, or if the text
// comes back, because a program may look busy after the turn before and draw its box empty for a moment.
func (s *Session) accepted(ctx context.Context, t *submission) (outcome Outcome, err error) {
	outcome = NotSent
	if _, err := s.x.Await(ctx, confirmTimeout, func() bool {
		view := s.view()
		holds := view.Holds(t.text)
		t.shown = t.shown || holds
		switch st := s.detector.Status(); {
		case s.submits > t.reports, s.turns > t.turns && t.shown && view.Box != nil && !holds:
			outcome = Delivered
		case st.State == detect.Blocked, st.State == detect.Authenticating, view.Dialog != nil:
			outcome = ButBlocked
		}
		return outcome != NotSent
	}); err != nil {
		return NotSent, err
	}
	if outcome == ButBlocked {
		return outcome, nil
	}
	back := false
	if _, err := s.x.Await(ctx, redrawDelay, func() bool {
		view := s.view()
		reported := s.submits > t.reports
		back = view.Holds(t.text) && !reported
		// A program that reports nothing may show no box while it works, or take the text before it shows it.
		if outcome == NotSent && s.turns > t.turns && (t.reports == 0 || view.Box == nil) {
			outcome = Delivered
		}
		return back || reported
	}); err != nil {
		return NotSent, err
	}
	if back {
		return NotSent, nil
	}
	return outcome, nil
}

// clear empties the input box if it contains one of the last texts, the task on the command line too, and still does after
// redrawDelay. Claude Code restores a text there if it is interrupted before its first word (measured), and the
// next text would be appended. While Codex redraws its screen, a message may look like its box, and Ctrl-C in an empty box ends it.
func (s *Session) clear(ctx context.Context) error {
	empty := func() bool { return !slices.ContainsFunc(s.sent, s.view().BoxBegins) }
	if ok, err := s.x.Await(ctx, redrawDelay, empty); ok || err != nil {
		return err
	}
	if err := s.write(ctx, []byte("\x03")); err != nil {
		return err
	}
	_, err := s.x.Await(ctx, confirmTimeout, empty)
	return err
}
