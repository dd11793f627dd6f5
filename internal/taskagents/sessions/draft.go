package sessions

import (
	"bytes"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/junctor-run/junctor/capability"
)

// ReasonDraft is the reason of a message that is not typed, because it would be joined with what a user
// has typed and not sent.
const ReasonDraft = "draft_open"

// draft is what a user may have typed into the input box and not sent.
type draft struct {
	before  string    // the content of the box before it: nothing, or a placeholder
	at      time.Time // of the user's last key
	settled bool      // echoDelay is over, so that the screen shows what that key did
	// The last key was Enter, pressed after so many turns and submits, or Ctrl-C, which empties the box
	// of every known program.
	entered, cancelled bool
	turns, submits     uint64
}

var (
	pastes  = regexp.MustCompile(`(?s)\x1b\[200~.*?(\x1b\[201~|$)`)
	recalls = regexp.MustCompile(`\x1b[\[O]A`) // arrow up, which brings an earlier text back
)

// noteDraft is called before a user's keys are typed. Keys for a program without an input box answer its
// dialog. The caller holds mu.
func (s *Session) noteDraft(data []byte) {
	if s.view().Box == nil {
		return
	}
	keys := pastes.ReplaceAllFunc(data, func(p []byte) []byte { // Enter in a paste is a line of it
		return bytes.ReplaceAll(p, []byte("\r"), []byte("\n"))
	})
	typed := StripEscapes(string(keys))
	if s.draft == nil && (strings.IndexFunc(typed, unicode.IsPrint) >= 0 || recalls.Match(keys)) {
		s.draft = &draft{before: s.boxText()}
	}
	d := s.draft
	if d == nil || typed == "" && !recalls.Match(keys) { // an arrow, or a report of the user's terminal
		return
	}
	d.at, d.settled = time.Now(), false
	d.entered, d.cancelled = strings.HasSuffix(typed, "\r"), strings.HasSuffix(typed, "\x03")
	d.turns, d.submits = s.turns, s.submits
	poke(s.wake)
}

// settleDraft notes that the screen shows what a user's last key did, and returns when it will. The caller
// holds mu.
func (s *Session) settleDraft(now, next time.Time) time.Time {
	d := s.draft
	if d == nil || d.settled {
		return next
	}
	if due := d.at.Add(echoDelay); now.Before(due) {
		if due.Before(next) {
			return due
		}
		return next
	}
	d.settled = true
	s.x.Notify()
	return next
}

// drafted reports whether the input box may hold what a user has typed and not sent, and whether the
// screen shows it. The caller holds mu.
func (s *Session) drafted() (may, shown bool) {
	d := s.draft
	if d == nil || s.view().Box == nil {
		return false, false
	}
	if !d.settled {
		return true, false
	}
	content := s.boxText()
	sent := d.entered && (s.turns > d.turns || s.submits > d.submits)
	if content == "" || content == d.before || sent || d.cancelled {
		s.draft = nil
		return false, false
	}
	return true, true
}

func (s *Session) boxText() string {
	if box := s.view().Box; box != nil {
		return strings.TrimSpace(box.Text)
	}
	return ""
}

func (s *Session) draftOpen() error {
	return capability.Errorf(capability.CodeConflict, "tasks.send", "someone has typed a text into session %s and not sent it", s.spec.ID).
		With(ReasonDraft, "send it, or delete it with Ctrl-C, in: junctor tasks attach "+s.spec.ID+"; then send the message again")
}
