// Package detect determines the state of a session's program. It combines the program's own
// signals (structured messages, hooks, terminal sequences) with the text on its screen; a
// higher class of signal takes precedence, with measured exceptions. It has no clock: every
// call passes the time, so that [Replay] of a recording gives the same result as the session
// did. It reads one screen at a time and keeps little more than the last sequence of each
// kind.
package detect

import (
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
)

// Screen is the screen of the session, as package term keeps it.
type Screen interface {
	Rows() int
	Row(y int) string
	Inverse(y int) bool
	Title() string
	Mode(n int) bool
	Updating() bool
	Changes() uint64
}

// Detector determines the state of one session. Only the goroutine that writes to the screen may
// use it.
type Detector struct {
	file    *File
	version string
	screen  Screen
	reads   map[int]bool // numbers of the sequences that rules read
	endings bool         // there are rules for the end of a turn

	status  Status
	since   time.Time
	cause   string
	grounds []Evidence // of the status
	cand    *proposal

	title     string
	sequences map[int]sequence // by number; the title is number 0
	order     int              // of the latest sequence
	output    time.Time        // of the last output
	news      time.Time        // of the last event that may change the state
	due       time.Time        // time of the next evaluation; zero if nothing has changed
	held      time.Time        // since when a synchronised update delays the evaluation

	typed    string    // text typed since a turn began or ended
	entered  time.Time // Enter was pressed on it, in ready or starting
	took     bool      // a sequence has reported work since then
	tookBy   int       // its number
	escaped  time.Time
	sent     time.Time // when Enter was last pressed on a text in ready or starting; kept in its turn
	returned time.Time // when Enter was last pressed, but for dialogs
	begun    time.Time // when a hook last reported the begin of a turn
	turn     time.Time // begin of the current turn; zero if none exists
	worked   bool      // the program has shown work since it started or became ready
	fact     *Fact
	factNews bool
	hooked   time.Time // time of the last hook; zero after Esc and after a dialog, whose refusal no hook reports

	lower      string // state by classes 3 and 4 while a hook's fact holds
	lowerSince time.Time

	view     *View
	verdicts []Verdict
	seen     [2]uint64 // versions of screen and sequences at the last look
}

type sequence struct {
	data  string
	at    time.Time
	order int
}

// Fact is a report of a structured protocol (class 1) or a hook (class 2).
type Fact struct {
	Class  int // 1: structured, 2: a hook
	State  State
	Phase  string // as in Status
	Kind   string // of a blocker
	Source string // "hook:Stop"
	Text   string
	Begin  bool // a turn begins
	at     time.Time
}

// New returns a detector for a program that is about to start. version is the program's version,
// or "" if it is unknown.
func New(file *File, version string, screen Screen) *Detector {
	d := &Detector{
		file: file, version: version, screen: screen, status: Status{State: Pending}, sequences: map[int]sequence{},
		reads: map[int]bool{},
	}
	for _, r := range file.Rules {
		if n, ok := r.Region.OSC(); ok {
			d.reads[n] = true
		}
		d.endings = d.endings || r.State == "done"
	}
	return d
}

// Status returns the last reported state.
func (d *Detector) Status() Status { return d.status }

// Start must be called when the process runs. It returns the change to Starting.
func (d *Detector) Start(now time.Time) []Change {
	c := d.move(now, Status{State: Starting}, "started", nil)
	d.changed(now)
	return c
}

// OSC handles an operating system command when the screen receives it. Numbers that no rule
// reads, and titles, are ignored.
func (d *Detector) OSC(now time.Time, n int, data string) {
	if n == 0 || n == 2 {
		return // Output reads the title from the screen
	}
	if d.reads[n] {
		d.order++
		d.sequences[n] = sequence{text.ClipBytes(data, maxPayload), now, d.order}
		if !d.entered.IsZero() && !d.took {
			d.took, d.tookBy = d.says(n, "busy"), n
		}
		d.changed(now)
	}
}

// says reports whether the last sequence with number n matches a rule for a state. It must be
// called at once, because other sequences may follow before the next look.
func (d *Detector) says(n int, state string) bool {
	v := Look(d.file, Snapshot{OSC: map[int]string{n: d.sequences[n].data}})
	return slices.ContainsFunc(v.Match(d.version), func(m Verdict) bool {
		of, _ := m.Rule.Region.OSC()
		return m.Matched && m.Rule.Region.Sequence() && of == n && m.Rule.State == state
	})
}

// Output must be called after the screen has processed output of the program.
func (d *Detector) Output(now time.Time) {
	d.output = now
	if t := text.ClipBytes(d.screen.Title(), maxPayload); t != d.title {
		d.order++
		d.title, d.sequences[0] = t, sequence{t, now, d.order}
	}
	d.changed(now)
}

// changed schedules an evaluation after evaluateInterval, so that the result does not depend on
// how output was split.
func (d *Detector) changed(now time.Time) {
	d.news = now
	if d.due.IsZero() {
		d.due = now.Add(evaluateInterval)
	}
}

// Input must be called with the bytes that were written to the terminal. It records typed text,
// Enter and Esc.
func (d *Detector) Input(now time.Time, data []byte) {
	text := string(data)
	if text == "\x1b" || text == "\x1b\x1b" || strings.Contains(text, "\x03") {
		d.escaped = now
		d.drop()
	}
	d.changed(now)
	pasted := false
	for text != "" {
		switch {
		case strings.HasPrefix(text, "\x1b[200~"):
			pasted, text = true, text[6:]
			continue
		case strings.HasPrefix(text, "\x1b[201~"):
			pasted, text = false, text[6:]
			continue
		case text[0] == '\r' && !pasted:
			if d.status.State != Blocked {
				d.returned = now
			}
			if d.status.State == Ready || d.status.State == Starting {
				d.entered, d.sent, d.took = now, now, false
				d.drop()
			}
		case text[0] == '\x1b': // another key: skip its sequence
			text = strings.TrimLeft(text[1:], "[O0123456789;")
			if text == "" {
				return
			}
		case (text[0] >= ' ' || text[0] == '\n') && text[0] != '\x7f' && len(d.typed) < maxTyped && d.status.State != Blocked:
			d.typed += text[:1]
		}
		text = text[1:]
	}
}

// drop discards the fact of a hook, because no hook reports Esc, and because the fact does
// not describe a new turn.
func (d *Detector) drop() {
	if d.fact != nil && d.fact.Class == 2 {
		d.fact = nil
	}
	d.hooked = time.Time{}
}

// Fact applies a fact of class 1 or 2; the next Tick reports it. A fact is ignored while one of
// a higher class holds. A hook of the end of a turn is ignored, and late is true, if hooks report
// begins and none has since the last Enter: it belongs to the turn before, and its process was slow.
func (d *Detector) Fact(now time.Time, f Fact) (late bool) {
	if d.fact != nil && d.fact.Class < f.Class {
		return false
	}
	switch {
	case f.Class != 2:
	case f.State == Busy:
		if f.Begin {
			d.begun = now
		}
		if d.cand != nil && d.cand.status.State == Ready { // its time begins again
			d.cand = nil
		}
	case f.State == Ready && !d.begun.IsZero() && d.begun.Before(d.sent):
		return true
	}
	f.at, f.Text = now, text.ClipBytes(f.Text, maxText)
	d.fact, d.factNews = &f, true
	if f.Class == 2 {
		d.hooked = now
	}
	d.changed(now)
	return false
}

// Stopping must be called when a client requested the end of the program.
func (d *Detector) Stopping(now time.Time) []Change {
	return d.move(now, Status{State: Stopping, Phase: d.status.Phase}, "stop requested", nil)
}

// Exit must be called when the process has ended. code is its exit status, negative after a
// signal; asked reports whether a client requested the end. The state becomes Error after an
// unrequested failure, otherwise Stopped.
func (d *Detector) Exit(now time.Time, code int, asked bool) []Change {
	if !d.status.State.live() {
		return nil
	}
	if code != 0 && !asked && d.status.State != Stopping {
		s := Status{State: Error, Kind: "exit"}
		evidence := []Evidence{{Source: "exit", Text: exitText(code)}}
		// During the start, a matching error on the screen names the cause. Later such a text
		// may be part of any output.
		if d.look(); d.status.State == Starting {
			if fatal := d.sort().fatal; fatal != nil {
				s.Kind, evidence = fatal.Rule.Detail, append(evidence, d.evidence(fatal))
			}
		}
		var changes []Change
		if failed := d.sort().failed; failed != nil && d.file.OneShot && !d.turn.IsZero() {
			s.Phase = phaseFailed + failed.Rule.Detail // a program for one task ends with its failure
			changes = d.move(now, Status{State: Ready, Phase: s.Phase}, "exit", append(evidence, d.evidence(failed)))
		}
		return append(changes, d.move(now, s, "exit", evidence)...)
	}
	evidence := []Evidence{{Source: "exit", Text: exitText(code)}}
	var changes []Change
	if code == 0 && !asked && !d.turn.IsZero() { // a program for one task ends with it
		to := Status{State: Ready, Phase: PhaseDone}
		if d.look(); d.file.OneShot {
			if failed := d.sort().failed; failed != nil && failed.Rule.Detail == RefusedPermission {
				to.Phase, evidence = phaseFailed+failed.Rule.Detail, append(evidence, d.evidence(failed))
			}
		}
		changes = d.move(now, to, "exit", evidence)
	}
	phase := d.status.Phase
	changes = append(changes, d.move(now, Status{State: Stopping, Phase: phase}, "exit", evidence)...)
	return append(changes, d.move(now, Status{State: Stopped, Phase: phase}, "exit", evidence)...)
}

// Next returns the time at which Tick should be called if no other event occurs; ok is false if
// that is not necessary.
func (d *Detector) Next() (at time.Time, ok bool) {
	if !d.status.State.live() {
		return at, false
	}
	if at = d.due; at.IsZero() && d.cand != nil {
		at = d.cand.since.Add(d.cand.settle)
	}
	return at, !at.IsZero()
}

// Tick evaluates the screen if that is due, and returns the changes of state whose settle time
// has passed.
func (d *Detector) Tick(now time.Time) (changes []Change) {
	if !d.status.State.live() {
		return nil
	}
	if !d.due.IsZero() && (!now.Before(d.due) || d.factNews) {
		d.evaluate(now)
	}
	for range maxSeries {
		// Unevaluated output may change the result.
		if d.cand == nil || !d.due.IsZero() || now.Sub(d.cand.since) < d.cand.settle {
			break
		}
		p := d.cand
		d.cand = nil
		if d.fact != nil && d.fact.Class == 2 && d.fact.State == Busy && p.status.State == Ready {
			d.fact = nil // the candidate overrules it
		}
		changes = append(changes, d.move(now, p.status, p.cause, p.evidence)...)
		d.judge() // the new state may have consequences
	}
	return changes
}

// evaluate reads the screen and sets the candidate, unless a synchronised update is in progress.
func (d *Detector) evaluate(now time.Time) {
	if d.screen.Updating() && !d.factNews {
		if d.held.IsZero() {
			d.held = now
		}
		if now.Sub(d.held) < maxUpdateDelay {
			d.due = now.Add(evaluateInterval)
			return
		}
	}
	d.held, d.due, d.factNews = time.Time{}, time.Time{}, false
	d.look()
	d.judge()
}

// View returns the current screen with its regions. It is valid until the next call of the
// detector.
func (d *Detector) View() *View {
	d.look()
	return d.view
}

// Turn returns the text of the last turn on the screen: the lines after the submitted text,
// without the program's status lines.
func (d *Detector) Turn() string {
	d.look()
	lines := d.view.Turn()
	for _, v := range d.verdicts {
		if v.Matched && (v.Rule.State == "done" || v.Rule.State == "busy") && !v.Rule.Region.Sequence() {
			lines = slices.DeleteFunc(lines, func(line string) bool { return strings.TrimSpace(line) == strings.TrimSpace(v.Text) })
		}
	}
	return strings.Join(lines, "\n")
}

// Works reports whether the screen shows that the program works, so that it is not stalled even
// if nothing changes.
func (d *Detector) Works() bool {
	d.look()
	return slices.ContainsFunc(d.verdicts, func(v Verdict) bool {
		return v.Matched && v.Rule.State == "busy" && !v.Rule.Region.Sequence()
	})
}

// look updates the view and the verdicts of the rules, if screen or sequences have changed.
func (d *Detector) look() {
	seen := [2]uint64{d.screen.Changes(), uint64(d.order)}
	if d.view != nil && seen == d.seen {
		return
	}
	d.seen = seen
	s := Snapshot{Title: d.title, OSC: make(map[int]string, len(d.sequences))}
	for y := range d.screen.Rows() {
		s.Rows = append(s.Rows, d.screen.Row(y))
		s.Inverse = append(s.Inverse, d.screen.Inverse(y))
	}
	for n, seq := range d.sequences {
		s.OSC[n] = seq.data
	}
	d.view = Look(d.file, s)
	d.verdicts = d.view.Match(d.version)
}

// move changes the state and returns the change, or nil if it is not allowed.
func (d *Detector) move(now time.Time, to Status, cause string, evidence []Evidence) []Change {
	from := d.status
	if !Allowed(from.State, to.State) {
		return nil
	}
	for i := range evidence {
		if !evidence[i].at.IsZero() {
			evidence[i].AgeMS = max(now.Sub(evidence[i].at).Milliseconds(), 0)
		}
	}
	d.status, d.since, d.cause, d.grounds, d.cand = to, now, cause, evidence, nil
	switch to.State {
	case Busy:
		if d.turn.IsZero() {
			d.turn = now
			if !d.entered.IsZero() {
				d.turn = d.entered
			}
		}
		d.worked, d.entered, d.typed = true, time.Time{}, ""
	case Blocked: // a dialog that a text opened is part of its turn
		d.hooked = time.Time{}
		if d.turn.IsZero() && !d.entered.IsZero() {
			d.turn, d.entered, d.typed = d.entered, time.Time{}, ""
		}
	case Ready:
		if to.Phase != PhaseUnsubmitted && from.State != Starting { // otherwise the text may still be in the box
			d.typed, d.entered = "", time.Time{}
		}
		d.turn, d.worked = time.Time{}, false
	}
	return []Change{{At: now, From: from, To: to, Cause: cause, Evidence: evidence}}
}
