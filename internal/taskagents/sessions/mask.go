package sessions

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/secret"
)

// Mask removes credentials from a text. It is applied to all texts that leave a session, except
// the output for live terminals. nil means [secret.MaskTokens].
type Mask func(string) string

// Text returns a masked text.
func (m Mask) Text(text string) string {
	switch {
	case text == "":
		return ""
	case m == nil:
		return secret.MaskTokens(text)
	}
	return m(text)
}

// Lines masks lines as one text, because a credential may span several.
func (m Mask) Lines(list []string) []string {
	before := strings.Join(list, "\n")
	if after := m.Text(before); after != before {
		return strings.Split(after, "\n")
	}
	return list
}

// Event returns an event with its texts masked.
func (m Mask) Event(e Event) Event {
	e.From, e.To = m.status(e.From), m.status(e.To)
	e.Text, e.Cause, e.Answered = m.Text(e.Text), m.Text(e.Cause), m.Text(e.Answered)
	e.Evidence = m.evidence(e.Evidence)
	if e.Refusal != nil {
		e.Refusal = &m.refusals([]Refusal{*e.Refusal})[0]
	}
	return e
}

// Info returns i with its texts masked.
func (m Mask) Info(i Info) Info {
	i.Blocker, i.Error, i.Refusals = m.blocker(i.Blocker), m.Text(i.Error), m.refusals(i.Refusals)
	return i
}

func (m Mask) refusals(list []Refusal) []Refusal {
	list = slices.Clone(list)
	for i, r := range list {
		list[i].What = m.Text(r.What)
	}
	return list
}

// Explanation returns x with its texts masked.
func (m Mask) Explanation(x detect.Explanation) detect.Explanation {
	x.Status.Blocker, x.Cause, x.Evidence = m.blocker(x.Status.Blocker), m.Text(x.Cause), m.evidence(x.Evidence)
	if x.Candidate != nil {
		c := *x.Candidate
		c.Evidence = m.evidence(c.Evidence)
		x.Candidate = &c
	}
	x.Rules = slices.Clone(x.Rules)
	for i := range x.Rules {
		x.Rules[i].Text = m.Text(x.Rules[i].Text)
	}
	return x
}

func (m Mask) status(s *detect.Status) *detect.Status {
	if s == nil || s.Blocker == nil {
		return s
	}
	out := *s
	out.Blocker = m.blocker(s.Blocker)
	return &out
}

func (m Mask) blocker(b *detect.Blocker) *detect.Blocker {
	if b == nil {
		return nil
	}
	out := *b
	out.Prompt, out.Fingerprint, out.Options = m.Text(b.Prompt), m.Text(b.Fingerprint), slices.Clone(b.Options)
	for i, o := range out.Options {
		out.Options[i] = m.Text(o)
	}
	out.Input, out.Cwd, out.Reason = m.json(b.Input), m.Text(b.Cwd), m.Text(b.Reason)
	out.Choices, out.Questions = m.choices(b.Choices), slices.Clone(b.Questions)
	for i, q := range out.Questions {
		out.Questions[i].Text, out.Questions[i].Options = m.Text(q.Text), m.choices(q.Options)
	}
	return &out
}

func (m Mask) choices(list []detect.Choice) []detect.Choice {
	list = slices.Clone(list)
	for i, c := range list {
		list[i].Label, list[i].Description = m.Text(c.Label), m.Text(c.Description)
	}
	return list
}

// json returns a tool's input masked. If the result is not JSON any more, it is returned as a text.
func (m Mask) json(input json.RawMessage) json.RawMessage {
	if len(input) == 0 {
		return nil
	}
	masked := json.RawMessage(m.Text(string(input)))
	if json.Valid(masked) {
		return masked
	}
	out, err := json.Marshal(string(masked))
	if err != nil {
		return nil
	}
	return out
}

// Read returns the meaning of a reply to a blocker, whose labels the user saw masked.
func (m Mask) Read(b *detect.Blocker, r detect.Reply) (detect.Answer, error) {
	a, err := b.Read(r)
	if err == nil {
		return a, nil
	}
	shown := m.blocker(b)
	if a, again := shown.Read(r); again == nil && a.Option >= 0 && a.Values == nil {
		return b.Selects(a.Option), nil
	}
	return detect.Answer{}, err
}

func (m Mask) evidence(list []detect.Evidence) []detect.Evidence {
	list = slices.Clone(list)
	for i := range list {
		list[i].Text = m.Text(list[i].Text)
	}
	return list
}

// Means reports whether a fingerprint, masked or not, is that of the open dialog. "" matches any
// dialog.
func (m Mask) Means(fingerprint string, open *detect.Blocker) bool {
	return fingerprint == "" || open.ID != "" && fingerprint == open.ID || fingerprint == open.Fingerprint || fingerprint == m.Text(open.Fingerprint)
}

// Option returns the index of the only option whose label, masked or not, begins with a text, or
// -1.
func (m Mask) Option(options []string, label string) int {
	if i := detect.MatchOption(options, label, checkMarks); i >= 0 {
		return i
	}
	shown := slices.Clone(options)
	for i, o := range shown {
		shown[i] = m.Text(o)
	}
	return detect.MatchOption(shown, label, checkMarks)
}
