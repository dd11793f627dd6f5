package detect

import (
	"fmt"
	"time"
)

// Explanation states why a session is in its state: the last change with its evidence, the
// candidate for the next one, and the result of every rule.
type Explanation struct {
	Status    Status      `json:"status"`
	Word      string      `json:"word"`
	SinceMS   int64       `json:"since_ms"`
	Cause     string      `json:"cause"`
	Evidence  []Evidence  `json:"evidence"`
	Candidate *Candidate  `json:"candidate,omitempty"`
	RuleFile  string      `json:"rule_file"`
	Remark    string      `json:"remark,omitempty"` // the program's version is not among those of the file
	Rules     []Explained `json:"rules"`
	Quiet     bool        `json:"quiet"` // no output for a minute: the program may be stalled
	QuietMS   int64       `json:"quiet_ms"`
}

// Candidate is a state whose settle time has not passed.
type Candidate struct {
	Word     string     `json:"word"`
	Cause    string     `json:"cause"`
	HeldMS   int64      `json:"held_ms"`
	SettleMS int64      `json:"settle_ms"`
	Evidence []Evidence `json:"evidence"`
}

// Explained is the result of one rule.
type Explained struct {
	Rule     string `json:"rule"`
	Class    int    `json:"class"`
	Region   string `json:"region"`
	State    string `json:"state"`
	Priority int    `json:"priority"`
	Matched  bool   `json:"matched"`
	Won      bool   `json:"won"`
	Text     string `json:"text,omitempty"`
	Why      string `json:"why"`
}

// Explain returns the explanation of the current state, with the rules' results of the last
// look.
func (d *Detector) Explain(now time.Time) Explanation {
	x := Explanation{
		Status: d.status, Word: d.status.Word(), SinceMS: now.Sub(d.since).Milliseconds(), Cause: d.cause,
		Evidence: aged(d.grounds, now), Rules: []Explained{},
		RuleFile: fmt.Sprintf("%s, revision %d, %s", d.file.Framework, d.file.Revision, d.file.Source), Remark: d.file.Remark(d.version),
	}
	if !d.output.IsZero() {
		x.QuietMS = now.Sub(d.output).Milliseconds()
		x.Quiet = now.Sub(d.output) >= stallTimeout
	}
	won := map[string]bool{}
	deciding := d.grounds
	if d.cand != nil {
		x.Candidate = &Candidate{
			Word: d.cand.status.Word(), Cause: d.cand.cause, HeldMS: now.Sub(d.cand.since).Milliseconds(),
			SettleMS: d.cand.settle.Milliseconds(), Evidence: aged(d.cand.evidence, now),
		}
		deciding = d.cand.evidence
	}
	for _, e := range deciding {
		won[e.Rule] = true
	}
	for _, v := range d.verdicts {
		r := v.Rule
		e := Explained{
			Rule: r.ID, Class: 4, Region: r.Region.String(), State: r.State, Priority: r.Priority, Matched: v.Matched, Text: v.Text,
			Why: v.Why,
		}
		if r.Detail != "" {
			e.State += ":" + r.Detail
		}
		if r.Region.Sequence() {
			e.Class = 3
		}
		switch {
		case v.Matched && won[r.ID]:
			e.Won, e.Why = true, "it decides"
		case v.Matched:
			e.Why = "it matches, and what decides is a higher class, a higher priority or a later sequence"
		}
		x.Rules = append(x.Rules, e)
	}
	return x
}

func aged(list []Evidence, now time.Time) []Evidence {
	out := make([]Evidence, 0, len(list))
	for _, e := range list {
		if !e.at.IsZero() {
			e.AgeMS = max(now.Sub(e.at).Milliseconds(), 0)
		}
		out = append(out, e)
	}
	return out
}
