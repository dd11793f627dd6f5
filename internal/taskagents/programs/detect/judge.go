package detect

import (
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
)

// proposal is a state that the evidence indicates. It is reported after it has held for its
// settle time.
type proposal struct {
	status   Status
	settle   time.Duration
	since    time.Time
	cause    string
	evidence []Evidence
}

// signs holds the matching rules of one look, by kind.
type signs struct {
	seq                                          *Verdict // class 3: the decisive sequence
	seqAt                                        time.Time
	fatal, ask, busy, phase, failed, intr, ended *Verdict // class 4
}

// judge sets the candidate from the evidence, or removes it if the evidence indicates no allowed
// change.
func (d *Detector) judge() {
	p, ok := d.propose()
	if !ok || p.status.same(d.status) || !Allowed(d.status.State, p.status.State) {
		d.cand = nil
		return
	}
	if p.since = d.news; p.since.Before(d.since) {
		p.since = d.since
	}
	if c := d.cand; c != nil && c.status.same(p.status) {
		// Better evidence needs less time, but must itself have held that long.
		sooner := p.settle < c.settle && p.since.Add(p.settle).Before(c.since.Add(c.settle))
		if !sooner {
			p.since = c.since
		}
		if p.settle < c.settle && !sooner {
			p.settle = c.settle
		}
	}
	d.cand = &p
}

// propose combines the classes of evidence. ok is false if they indicate no state.
func (d *Detector) propose() (proposal, bool) {
	if d.view == nil {
		return proposal{}, false
	}
	if d.fact != nil && d.fact.Class == 1 {
		return d.ofFact("structured"), true
	}
	p, ok := d.ofTerminal()
	if d.fact == nil {
		d.lower = ""
		return p, ok
	}
	word := ""
	if ok {
		word = p.status.Word()
	}
	// A fact from before a dialog does not apply after its answer, because no hook reports a
	// tool that the user refused.
	answered := strings.HasPrefix(d.lower, string(Blocked)) && (d.fact.State == Blocked || d.fact.at.Before(d.lowerSince))
	if word != d.lower {
		d.lower, d.lowerSince = word, d.news
	}
	hook := d.ofFact("hook")
	switch {
	case ok && p.status.State == Blocked: // a visible dialog takes precedence over a hook
		return p, true
	case ok && answered:
		d.fact = nil
		return p, true
	case ok && word != hook.status.Word() && d.lowerSince.Sub(d.fact.at) >= hookGrace: // a hook yields to newer signals of the terminal
		d.fact = nil
		return p, true
	case ok && p.status.State == Ready && d.fact.State == Busy && (d.lowerSince.After(d.fact.at) || d.escaped.After(d.returned)):
		// The turn ended at once without a hook, or Esc ended it and the hook of its start is
		// late. The program must have looked ready as long as a fact holds.
		p.settle = max(p.settle, hookGrace)
		return p, true
	case ok && p.status.State == Ready && d.fact.State == Busy && d.status.same(hook.status): // the hook of the end may be lost
		p.settle = max(p.settle, hookEndTimeout)
		return p, true
	}
	return hook, true
}

func (d *Detector) ofFact(cause string) proposal {
	f := d.fact
	s := Status{State: f.State, Phase: f.Phase}
	switch f.State {
	case Blocked:
		s.Blocker = blocker(f.Kind, f.Text, nil, nil, -1)
	case Error:
		s.Kind = f.Kind
	}
	return proposal{status: s, cause: cause, evidence: []Evidence{{Class: f.Class, Source: f.Source, Text: f.Text, at: f.at}}}
}

// sort assigns the matching rules to their kinds. Rules are ordered by priority, so the first
// one of a kind counts, and the latest of sequences with the same priority.
func (d *Detector) sort() (s signs) {
	order := -1
	for i := range d.verdicts {
		v := &d.verdicts[i]
		if !v.Matched {
			continue
		}
		r := v.Rule
		if r.Region.Sequence() {
			n, _ := r.Region.OSC()
			if seq := d.sequences[n]; s.seq == nil || r.Priority == s.seq.Rule.Priority && seq.order > order {
				s.seq, s.seqAt, order = v, seq.at, seq.order
			}
			continue
		}
		place := map[string]**Verdict{
			"error": &s.fatal, "blocked": &s.ask, "authenticating": &s.ask, "busy": &s.busy,
			"failed": &s.failed, "interrupted": &s.intr, "done": &s.ended,
		}[r.State]
		if place == nil || place == &s.ask && !d.mayAsk(r) {
			continue
		}
		if *place == nil {
			*place = v
		}
		if r.State == "busy" && r.Detail != "" && s.phase == nil {
			s.phase = v
		}
	}
	return s
}

// mayAsk reports whether a rule may find a question. Rules for any place on the screen do not
// apply while an input box is open, because their words are then prose of an answer.
func (d *Detector) mayAsk(r *Rule) bool { return !r.Region.Anywhere() || d.view.Box == nil }

// ofTerminal returns the state that classes 3 and 4 indicate.
func (d *Detector) ofTerminal() (proposal, bool) {
	s := d.sort()
	from := d.status.State
	bracketed := d.screen.Mode(2004)
	if s.fatal != nil && from == Starting && !bracketed {
		return proposal{
			status: Status{State: Error, Kind: s.fatal.Rule.Detail}, settle: fatalDelay, cause: "refused to start",
			evidence: []Evidence{d.evidence(s.fatal)},
		}, true
	}
	if p, ok := d.asked(s); ok {
		return p, true
	}
	begun := d.turn
	if d.entered.After(begun) {
		begun = d.entered
	}
	// A sequence from before the turn does not report its end.
	idle := s.seq != nil && s.seq.Rule.State != "busy" && !s.seqAt.Before(begun)
	if (from == Ready || from == Starting) && !d.entered.IsZero() && (d.took || d.view.Submitted(d.typed)) {
		e := Evidence{Source: "input", Text: "Enter, and the text stands in the transcript", at: d.entered}
		if d.took {
			e = Evidence{Class: 3, Source: "osc:" + strconv.Itoa(d.tookBy), Text: "after Enter the program told that it works", at: d.entered}
		}
		return proposal{status: Status{State: Busy}, cause: "submitted", evidence: []Evidence{e}}, true
	}
	var why []Evidence
	switch {
	case s.seq != nil && s.seq.Rule.State == "busy":
		why = append(why, d.evidence(s.seq))
		if s.busy != nil {
			why = append(why, d.evidence(s.busy))
		}
	case s.busy != nil && !idle:
		why = append(why, d.evidence(s.busy))
	case d.file.OneShot && !bracketed && s.ended == nil && s.failed == nil && (from == Starting || from == Busy):
		why = append(why, Evidence{Source: "start", Text: "the program works from its start to its end", at: d.since})
	}
	if why != nil {
		d.worked = true
		return d.working(s, why), true
	}
	return d.idle(s, idle)
}

// asked proposes Blocked or Authenticating if the screen shows a dialog or a sign-in screen, or a
// sequence reports one.
func (d *Detector) asked(s signs) (proposal, bool) {
	p := proposal{settle: blockerDelay, cause: "dialog"}
	rule := s.ask
	dialog := d.view.Dialog != nil
	if rule == nil && !dialog {
		if s.seq == nil || s.seq.Rule.State != "blocked" {
			return p, false
		}
		rule, p.cause = s.seq, "sequence"
	}
	if rule == nil { // a dialog is blocking although no rule matches it
		kind := "unknown"
		p.evidence = []Evidence{{Class: 4, Source: "dialog", Text: "a selection list that no rule knows", at: d.news}}
		if s.seq != nil && s.seq.Rule.State == "blocked" {
			kind = s.seq.Rule.Detail
			p.evidence = append(p.evidence, d.evidence(s.seq))
		}
		question, options, selected, _ := d.view.Question(nil)
		p.status = Status{State: Blocked, Blocker: blocker(kind, question, options, d.numbers(options), selected)}
		return p, true
	}
	p.evidence = []Evidence{d.evidence(rule)}
	question, options, selected, url := d.view.Question(rule.Rule)
	if rule.Rule.State == "authenticating" {
		p.status, p.cause = Status{State: Authenticating, URL: url}, "sign-in"
		return p, true
	}
	if question == "" {
		question = rule.Text
	}
	p.status = Status{State: Blocked, Blocker: blocker(rule.Rule.Detail, question, options, d.numbers(options), selected)}
	return p, true
}

// numbers returns the numbers of the options of the open dialog, or nil if they are not its options.
func (d *Detector) numbers(options []string) []int {
	if d.view.Dialog == nil || len(d.view.Dialog.Numbers) != len(options) {
		return nil
	}
	return d.view.Dialog.Numbers
}

// working proposes Busy for a running turn, first without phase; the phase follows as a second
// change.
func (d *Detector) working(s signs, why []Evidence) proposal {
	p := proposal{status: Status{State: Busy}, settle: workDelay, cause: "work", evidence: why}
	switch d.status.State {
	case Busy:
		p.cause, p.settle = "phase", doneDelay
		if s.phase != nil {
			p.status.Phase, p.settle = s.phase.Rule.Detail, blockerDelay
			p.evidence = []Evidence{d.evidence(s.phase)}
		}
	case Ready:
		if !d.entered.IsZero() {
			p.settle = 0
		}
	case Blocked:
		// A permission lets a tool run. After other answers the next dialog or the end
		// of the turn often follows at once.
		if b := d.status.Blocker; b == nil || b.Type != "permission" {
			p.settle = doneDelay
		}
	default:
		// While a program starts, loading looks like work.
		p.settle = d.readySettle()
	}
	return p
}

// idle proposes Ready, with the end of the turn as phase, for a program that waits for input.
func (d *Detector) idle(s signs, sequence bool) (proposal, bool) {
	box := d.view.Box != nil
	if !box && !sequence && s.ended == nil && (s.failed == nil || !d.file.OneShot) {
		return proposal{}, false
	}
	p := proposal{status: Status{State: Ready}, cause: "input box"}
	if sequence {
		p.evidence = append(p.evidence, d.evidence(s.seq))
	}
	if box {
		p.evidence = append(p.evidence, Evidence{Class: 4, Source: "input_box", Text: "the input box is open", at: d.news})
	}
	if d.status.State == Ready {
		return d.unsent(p), true
	}
	sure := d.endOfTurn(s, sequence, &p)
	switch open := !d.turn.IsZero(); {
	case box && sequence && sure:
		p.settle = agreedDelay
	case open && !sequence && !sure && !d.hooked.Before(d.turn):
		p.settle = hookEndTimeout // the program reports the end by a hook, and may be between two tools
	case open && (box || sequence):
		p.settle = doneDelay
	case open || d.file.OneShot:
		p.settle = signalDelay
	default: // some programs draw the input box while they work, so the box or a sequence alone proves little
		p.settle = d.readySettle()
	}
	return p, true
}

// endOfTurn sets the phase and cause of ready, and reports whether there is evidence for it other
// than silence.
func (d *Detector) endOfTurn(s signs, sequence bool, p *proposal) (sure bool) {
	open := !d.turn.IsZero()
	ran := open || d.worked
	says := func(state string) bool { return sequence && s.seq.Rule.State == state }
	set := func(phase, cause string, v *Verdict) bool {
		p.status.Phase, p.cause = phase, cause
		if v != nil && v != s.seq {
			p.evidence = append([]Evidence{d.evidence(v)}, p.evidence...)
		}
		return true
	}
	switch {
	case ran && s.failed != nil:
		return set(phaseFailed+s.failed.Rule.Detail, "turn failed", s.failed)
	case says("failed"):
		return set(phaseFailed+s.seq.Rule.Detail, "turn failed", s.seq)
	case ran && s.intr != nil:
		return set(PhaseInterrupted, "interrupted", s.intr)
	case says("done"):
		return set(PhaseDone, "turn ended", s.seq)
	case open && !d.escaped.Before(d.turn):
		// This has precedence over a completed turn on the screen, which may be the previous
		// one if this turn left no output.
		p.evidence = append(p.evidence, Evidence{Source: "input", Text: "Esc or Ctrl-C", at: d.escaped})
		return set(PhaseInterrupted, "interrupted", nil)
	case ran && s.ended != nil:
		return set(PhaseDone, "turn ended", s.ended)
	case open, d.worked && !d.endings:
		set(PhaseDone, "turn ended", nil)
		return false
	}
	return true
}

// unsent sets the phase PhaseUnsubmitted if a ready program still has the typed text in its box
// after Enter.
func (d *Detector) unsent(p proposal) proposal {
	p.status.Phase = d.status.Phase
	switch holds := !d.entered.IsZero() && d.view.Holds(d.typed); {
	case holds:
		p.status.Phase, p.settle, p.cause = PhaseUnsubmitted, doneDelay, "not submitted"
		p.evidence = append(p.evidence, Evidence{Source: "input", Text: "Enter, and the text still stands in the input box", at: d.entered})
	case d.status.Phase == PhaseUnsubmitted:
		p.status.Phase, p.settle = "", agreedDelay
	}
	return p
}

func (d *Detector) readySettle() time.Duration {
	return time.Duration(d.file.ReadyMS) * time.Millisecond
}

func (d *Detector) evidence(v *Verdict) Evidence {
	e := Evidence{Class: 4, Source: v.Rule.Region.String(), Rule: v.Rule.ID, Text: text.ClipBytes(v.Text, maxText), at: d.news}
	if v.Rule.Region.Sequence() {
		n, _ := v.Rule.Region.OSC()
		e.Class, e.at = 3, d.sequences[n].at
	}
	return e
}
