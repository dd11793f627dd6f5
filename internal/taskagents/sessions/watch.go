package sessions

import (
	"hash/maphash"
	"strings"
	"time"
	"unicode"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// watching holds the data to detect a stalled session.
type watching struct {
	seed    maphash.Seed
	content uint64    // hash of the end of the screen without counters
	since   time.Time // of the last change of content
	reports int
	next    time.Duration // quiet time of the next report
	changes uint64        // of the screen
	still   time.Time     // of the last change of the screen
	wedged  bool
	at      time.Time // of the next look
}

func (w *watching) begin(now time.Time) {
	*w = watching{seed: maphash.MakeSeed(), since: now, still: now, next: stallTimeout, at: now.Add(lookInterval)}
}

// look reports a stalled or wedged session, and ends a user's control after controlTTL without
// input. It returns the time of the next look. The caller holds mu.
func (s *Session) look(now time.Time) time.Time {
	w := &s.watch
	if !s.taken.IsZero() && now.Sub(s.taken) >= controlTTL {
		s.taken = time.Time{}
		s.emit(Event{Type: Controlled, Cause: "no input"})
		s.x.Notify()
	}
	if now.Before(w.at) {
		return w.at
	}
	w.at = now.Add(lookInterval)
	if c := s.screen.Changes(); c != w.changes {
		w.changes, w.still, w.wedged = c, now, false
	}
	if h := maphash.String(w.seed, counted(s.screen.Text())); h != w.content {
		w.content, w.since, w.reports, w.next = h, now, 0, stallTimeout
	}
	st := s.detector.Status()
	if st.State != detect.Busy && st.State != detect.Starting {
		w.since, w.still = now, now
		return w.at
	}
	if quiet := now.Sub(w.still); quiet >= wedgedTimeout && !w.wedged && st.State == detect.Busy {
		w.wedged = true
		s.emit(Event{Type: Wedged, QuietMS: quiet.Milliseconds(), Text: tail(s.lines(), 20)})
	}
	if quiet := now.Sub(w.since); quiet >= w.next && w.reports < maxStalls && !s.detector.Works() {
		w.reports++
		w.next += min(stallTimeout<<w.reports, maxStallTimeout)
		s.emit(Event{Type: Stall, Report: w.reports, QuietMS: quiet.Milliseconds(), Text: tail(s.lines(), 20)})
	}
	return w.at
}

// counted returns the end of a text without digits, signs and glyphs, because spinners, times and
// counters change without progress.
func counted(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || r == ' ' {
			return r
		}
		return -1
	}, s)
	return text.LastRunes(s, stallText)
}
