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

// Intervals of the detector, and how long a state must last before it is reported.
const (
	evaluateInterval = 50 * time.Millisecond
	maxUpdateDelay   = time.Second // then a synchronised update is evaluated although it has not ended
	blockerDelay     = 250 * time.Millisecond
	doneDelay        = 1500 * time.Millisecond
	signalDelay      = 2500 * time.Millisecond // a completion that only the last lines of the screen show
	hookGrace        = 2 * time.Second
	// agreedDelay applies if a sequence and the screen agree; the longer times are for one
	// of them alone.
	agreedDelay = 500 * time.Millisecond
	fatalDelay  = 750 * time.Millisecond
	workDelay   = 250 * time.Millisecond // work without a submitted text; the start of helpers looks like it for an instant
)

const (
	maxTyped   = 4096 // bytes
	maxPayload = 1000 // bytes of a sequence
	maxText    = 200  // bytes of a piece of evidence
	maxSeries  = 8    // changes that one look can tell
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

// Detector follows one session. It is for one goroutine: the one that writes to the
// screen.
type Detector struct {
	file    *File
	version string
	screen  Screen
	reads   map[int]bool // the sequences that rules read
	endings bool         // do rules know how this program reports that a turn is over

	status  Status
	since   time.Time
	cause   string
	grounds []Evidence // of the status
	cand    *proposal

	title     string
	sequences map[int]sequence // by number; the title is number 0
	order     int              // of the latest sequence
	output    time.Time        // of the last output
	news      time.Time        // of anything that may change the answer
	due       time.Time        // of the next look; zero: nothing has changed
	held      time.Time        // since when a synchronised update holds the look back

	typed    string    // since a turn began or ended
	entered  time.Time // Enter was pressed on it, in ready or starting
	took     bool      // a sequence has told of work since then
	tookBy   int       // its number
	escaped  time.Time
	turn     time.Time // since when one is open; zero: none is
	worked   bool      // the program has shown work since it started or became ready
	fact     *Fact
	factNews bool

	lower      string // what classes 3 and 4 say while a hook's fact holds
	lowerSince time.Time

	view     *View
	verdicts []Verdict
	seen     [2]uint64 // of the screen and of the sequences, when that was made
}

type sequence struct {
	data  string
	at    time.Time
	order int
}

// Fact is what a structured protocol or a hook said: classes 1 and 2.
type Fact struct {
	Class  int // 1: structured, 2: a hook
	State  State
	Phase  string // as in Status
	Kind   string // of a blocker
	Source string // "hook:Stop"
	Text   string
	at     time.Time
}

// New returns a detector for a program that is about to start. version is the
// program's, "" where it is not known.
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

// Status returns the state that was announced last.
func (d *Detector) Status() Status { return d.status }

// Start is told when the process runs.
func (d *Detector) Start(now time.Time) []Change {
	c := d.move(now, Status{State: Starting}, "started", nil)
	d.changed(now)
	return c
}

// OSC takes an operating system command at the moment that the screen meets it. Those
// that no rule reads are dropped.
func (d *Detector) OSC(now time.Time, n int, data string) {
	if n == 0 || n == 2 {
		return // the screen knows the title
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

// reports whether the last sequence of a number is one that speaks for a state. It may be
// followed by others before the next look.
func (d *Detector) says(n int, state string) bool {
	v := Look(d.file, Snapshot{OSC: map[int]string{n: d.sequences[n].data}})
	return slices.ContainsFunc(v.Match(d.version), func(m Verdict) bool {
		of, _ := m.Rule.Region.OSC()
		return m.Matched && m.Rule.Region.Sequence() && of == n && m.Rule.State == state
	})
}

// Output is told after the screen has taken in what the program printed.
func (d *Detector) Output(now time.Time) {
	d.output = now
	if t := text.ClipBytes(d.screen.Title(), maxPayload); t != d.title {
		d.order++
		d.title, d.sequences[0] = t, sequence{t, now, d.order}
	}
	d.changed(now)
}

// changed asks for a look: at most one in 50 ms, and all that comes within them is seen
// together, however it was cut.
func (d *Detector) changed(now time.Time) {
	d.news = now
	if d.due.IsZero() {
		d.due = now.Add(evaluateInterval)
	}
}

// Input takes what was typed, as it was written to the terminal.
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
			if d.status.State == Ready || d.status.State == Starting {
				d.entered, d.took = now, false
				d.drop()
			}
		case text[0] == '\x1b': // some other key: skip its sequence
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
}

// Fact takes a fact of class 1 or 2. It holds at once: the next Tick tells it.
func (d *Detector) Fact(now time.Time, f Fact) {
	if d.fact != nil && d.fact.Class < f.Class {
		return
	}
	f.at, f.Text = now, text.ClipBytes(f.Text, maxText)
	d.fact, d.factNews = &f, true
	d.changed(now)
}

// Stopping is told when a client asked for the end.
func (d *Detector) Stopping(now time.Time) []Change {
	return d.move(now, Status{State: Stopping, Phase: d.status.Phase}, "stop requested", nil)
}

// Exit is told when the process is gone. code is its status, negative after a signal;
// asked reports whether a client wanted it.
func (d *Detector) Exit(now time.Time, code int, asked bool) []Change {
	if !d.status.State.live() {
		return nil
	}
	if code != 0 && !asked && d.status.State != Stopping {
		s := Status{State: Error, Kind: "exit"}
		evidence := []Evidence{{Source: "exit", Text: exitText(code)}}
		// What a program said while it started is the better name for its end; later it
		// may be any caller's text.
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
		changes = d.move(now, Status{State: Ready, Phase: PhaseDone}, "exit", evidence)
	}
	phase := d.status.Phase
	changes = append(changes, d.move(now, Status{State: Stopping, Phase: phase}, "exit", evidence)...)
	return append(changes, d.move(now, Status{State: Stopped, Phase: phase}, "exit", evidence)...)
}

// Next returns when Tick has something to do if nothing else happens; ok is false where
// it never has.
func (d *Detector) Next() (at time.Time, ok bool) {
	if !d.status.State.live() {
		return at, false
	}
	if at = d.due; at.IsZero() && d.cand != nil {
		at = d.cand.since.Add(d.cand.settle)
	}
	return at, !at.IsZero()
}

// Tick looks at the screen if a look is due, and returns the changes of state that are
// settled.
func (d *Detector) Tick(now time.Time) (changes []Change) {
	if !d.status.State.live() {
		return nil
	}
	if !d.due.IsZero() && (!now.Before(d.due) || d.factNews) {
		d.evaluate(now)
	}
	for range maxSeries {
		// What has come and was not looked at yet may say otherwise.
		if d.cand == nil || !d.due.IsZero() || now.Sub(d.cand.since) < d.cand.settle {
			break
		}
		p := d.cand
		d.cand = nil
		if d.fact != nil && d.fact.Class == 2 && d.fact.State == Busy && p.status.State == Ready {
			d.fact = nil // it was overruled
		}
		changes = append(changes, d.move(now, p.status, p.cause, p.evidence)...)
		d.judge() // what follows from the new state
	}
	return changes
}

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

// View is the screen as it is now, with its regions found. It is valid until the next
// call of the detector.
func (d *Detector) View() *View {
	d.look()
	return d.view
}

// Turn is the text of the last turn as it stands on the screen: what follows the text
// that was submitted, without the program's own lines about its state.
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

// Works reports whether the screen itself shows that the program works: whatever else
// stands still then, it is not stalled.
func (d *Detector) Works() bool {
	d.look()
	return slices.ContainsFunc(d.verdicts, func(v Verdict) bool {
		return v.Matched && v.Rule.State == "busy" && !v.Rule.Region.Sequence()
	})
}

// look reads the screen and asks the rules.
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

// move announces a state.
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
		if d.turn.IsZero() && !d.entered.IsZero() {
			d.turn, d.entered, d.typed = d.entered, time.Time{}, ""
		}
	case Ready:
		if to.Phase != PhaseUnsubmitted && from.State != Starting { // else it may still stand in the box
			d.typed, d.entered = "", time.Time{}
		}
		d.turn, d.worked = time.Time{}, false
	}
	return []Change{{At: now, From: from, To: to, Cause: cause, Evidence: evidence}}
}
