package sessions

import (
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
	return e
}

// Info returns i with its texts masked.
func (m Mask) Info(i Info) Info {
	i.Blocker, i.Error = m.blocker(i.Blocker), m.Text(i.Error)
	return i
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
	return &out
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
	return fingerprint == "" || fingerprint == open.Fingerprint || fingerprint == m.Text(open.Fingerprint)
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
