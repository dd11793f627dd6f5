// Package directive parses the lines with which an agent addresses junctor instead of its
// reader: decisions, calls of skills and proofs of finished work. It also parses the JSON answers
// of a coordinator's model.
//
// All of this text is untrusted. It is parsed by a grammar, never by a model, so that the same
// text always has the same meaning; malformed directives are ignored. Sizes and counts are
// bounded.
package directive

import (
	"regexp"
	"strings"

	"golang.org/x/text/width"

	"github.com/junctor-run/junctor/internal/base/text"
)

// Text is the text of one turn of an agent.
type Text struct {
	Body string
	// Columns is 0 for Markdown of the agent. For text from a screen it is the screen's width,
	// because lines are wrapped there and fences are not visible.
	Columns int
}

// line is one line of a text.
type line struct {
	raw    string
	body   string // trimmed, without the glyph before an answer
	hidden bool   // part of a fence, or quoted
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

// withoutGlyph removes the glyph that programs draw before an answer.
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

// joined returns a directive's text with its continuation lines.
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

// margin is the number of columns that programs leave empty at the right of a screen.
const margin = 4

// wrapped reports whether a line was wrapped because the next word did not fit.
func wrapped(before, next string, columns int) bool {
	word, _, _ := strings.Cut(next, " ")
	return cells(before)+1+cells(word) > columns-margin
}

// cells returns the approximate number of screen columns of a text.
func cells(s string) (n int) {
	for _, r := range s {
		n++
		if k := width.LookupRune(r).Kind(); k == width.EastAsianWide || k == width.EastAsianFullwidth {
			n++
		}
	}
	return n
}

// normal returns s as valid UTF-8 with single blanks and without control characters.
func normal(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return text.OneLine(s)
}
