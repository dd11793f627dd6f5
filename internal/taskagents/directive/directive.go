// Package directive reads the lines by which an agent tells something to us and not to its
// reader: decisions, calls of skills, proofs of finished work; and the JSON by which a
// coordinator's model answers.
//
// All of it is text that a stranger wrote. It is read by a grammar and never by a model, so
// the same text always says the same; what does not fit is not there. Sizes and counts are
// bounded.
package directive

import (
	"regexp"
	"strings"

	"golang.org/x/text/width"

	"github.com/junctor-run/junctor/internal/base/text"
)

// Limits of what is read.
const (
	MaxText   = 1 << 20 // bytes of a turn's text; of a longer one its end is read
	MaxShared = 240     // characters of a decision that others are shown, and of a key decision
	MaxStored = 2_000   // characters of a decision that is kept
	MaxTurn   = 20      // decisions of one turn
)

// Text is what an agent said in one turn.
type Text struct {
	Body string
	// Columns is 0 for the Markdown that the agent wrote. For the cleaned text of a screen it
	// is the screen's width: there lines are wrapped, and fences cannot be seen.
	Columns int
}

// line is one line of a text.
type line struct {
	raw    string
	body   string // without blanks around it and without an answer's glyph before it
	hidden bool   // in a fence, of a fence, or quoted
}

func (t Text) lines() (all []line) {
	body := t.Body
	if len(body) > MaxText {
		body = body[len(body)-MaxText:]
	}
	fence := ""
	for raw := range strings.SplitSeq(body, "\n") {
		l := line{raw: strings.TrimRight(raw, " \t\r")}
		l.body = strings.TrimSpace(l.raw)
		mark := fenceOf(l.body)
		switch {
		case fence == "" && mark != "":
			fence, l.hidden = mark, true
		case fence != "":
			l.hidden = true
			if strings.HasPrefix(mark, fence) && strings.Trim(l.body, fence[:1]) == "" {
				fence = ""
			}
		default:
			l.hidden = strings.HasPrefix(l.body, ">")
		}
		l.body = withoutGlyph(l.body)
		all = append(all, l)
	}
	return all
}

// fenceOf returns the run of three or more marks that a fence begins with.
func fenceOf(s string) string {
	for _, c := range []string{"`", "~"} {
		if run := s[:len(s)-len(strings.TrimLeft(s, c))]; len(run) >= 3 {
			return run
		}
	}
	return ""
}

// withoutGlyph takes away the one glyph that programs draw before an answer.
func withoutGlyph(s string) string {
	for _, g := range []string{"●", "•", "✦", "⏺", "*"} {
		if rest, ok := strings.CutPrefix(s, g); ok {
			return strings.TrimLeft(rest, " \t\u00a0")
		}
	}
	return s
}

var (
	decisionLine = regexp.MustCompile(`^DECISION[ \t]*:[ \t]*(.*)$`)
	directives   = regexp.MustCompile(`^(DECISION[ \t]*:|(USE_SKILL|APP_CREATE_DONE|PLUGIN_CREATE_DONE)([ \t]|$))`)
	listMarker   = regexp.MustCompile(`^([-*+•]|\d{1,9}[.)])([ \t]|$)`)
)

// joined is a directive's text with the lines that go on with it.
func (t Text) joined(all []line, at int, text string) string {
	parts := []string{text}
	for i := at + 1; i < len(all) && t.continues(all[i-1], all[i]); i++ {
		parts = append(parts, strings.TrimSpace(all[i].raw))
	}
	return strings.Join(parts, " ")
}

func (t Text) continues(before, next line) bool {
	bare := strings.TrimSpace(next.raw)
	if bare == "" || next.hidden || directives.MatchString(next.body) || listMarker.MatchString(bare) {
		return false
	}
	if t.Columns == 0 {
		return true
	}
	return strings.HasPrefix(next.raw, "  ") && wrapped(before.raw, bare, t.Columns)
}

// margin is how many columns of a screen programs leave empty at the right.
const margin = 4

// wrapped reports whether a line ended because the next word had no room in it.
func wrapped(before, next string, columns int) bool {
	word, _, _ := strings.Cut(next, " ")
	return cells(before)+1+cells(word) > columns-margin
}

// cells is how many columns of a screen a text takes, about.
func cells(s string) (n int) {
	for _, r := range s {
		n++
		if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
			n++
		}
	}
	return n
}

// normal is text with single blanks, without control characters, as valid UTF-8.
func normal(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return text.OneLine(s)
}
