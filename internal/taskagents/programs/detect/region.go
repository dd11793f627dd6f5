package detect

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/junctor-run/junctor/internal/base/text"
)

// Region is the part of a screen that a rule matches. above_input(n) is the last n lines of
// the running turn above the input box, and last_block is the last paragraph.
type Region struct {
	kind string
	n    int
}

// Sequence reports whether the region is a terminal sequence instead of a part of the screen:
// a title or an operating system command.
func (r Region) Sequence() bool { return r.kind == "title" || r.kind == "osc" }

// OSC returns the number of the sequence a rule reads, and whether it reads one.
func (r Region) OSC() (n int, ok bool) { return r.n, r.kind == "osc" }

// Anywhere reports whether the region does not belong to a part that the program draws.
func (r Region) Anywhere() bool { return r.kind == "whole" || r.kind == "last_lines" }

// String returns the region as rule files write it.
func (r Region) String() string {
	switch r.kind {
	case "osc":
		return "osc:" + strconv.Itoa(r.n)
	case "last_lines", "above_input":
		return fmt.Sprintf("%s(%d)", r.kind, r.n)
	}
	return r.kind
}

func parseRegion(text string) (Region, error) {
	if n, ok := strings.CutPrefix(text, "osc:"); ok {
		if v, err := strconv.Atoi(n); err == nil && v >= 0 && v < 100_000 {
			return Region{"osc", v}, nil
		}
	}
	for _, kind := range []string{"last_lines", "above_input"} {
		n, ok := strings.CutPrefix(text, kind+"(")
		if n, closed := strings.CutSuffix(n, ")"); ok && closed {
			if v, err := strconv.Atoi(n); err == nil && v >= 1 && v <= 100 {
				return Region{kind, v}, nil
			}
		}
	}
	if slices.Contains([]string{"title", "below_last_rule", "input_box", "footer", "whole", "dialog", "last_block"}, text) {
		return Region{text, 0}, nil
	}
	return Region{}, fmt.Errorf("is %q, which is not a region", text)
}

// Snapshot is the input of [Look]: the rows of a screen from the top, and the title and sequences
// of the program. Missing rows are blank.
type Snapshot struct {
	Rows    []string
	Inverse []bool // has the row text in reverse video
	Title   string
	OSC     map[int]string // the last one of each number
}

// View is one screen with its regions, for one rule file. It is not safe for concurrent use.
type View struct {
	file    *File
	rows    []string
	inverse []bool
	title   string
	osc     map[int]string
	last    int // last row that is not blank; -1: none

	// Dialog is the open dialog, Box the input box; nil: none is visible.
	Dialog *Dialog
	Box    *Box

	found map[Region]*regionText
}

// Box is the input box of a screen.
type Box struct {
	First, Last int    // its rows, without the frame
	Text        string // its content, including placeholders
}

// regionText holds a region's lines, and their folded text once a rule needs it.
type regionText struct {
	lines  []string
	folded string
}

func (t *regionText) holds(s string) bool {
	if t.folded == "" {
		t.folded = text.Fold(strings.Join(t.lines, " "))
	}
	return strings.Contains(t.folded, s)
}

// Look finds the regions of a screen.
func Look(file *File, s Snapshot) *View {
	v := &View{file: file, title: text.CutRunes(s.Title, maxPayload), osc: s.OSC, last: -1, found: map[Region]*regionText{}}
	rows := s.Rows[max(0, len(s.Rows)-maxRows):]
	v.inverse = make([]bool, len(rows))
	copy(v.inverse, s.Inverse[max(0, min(len(s.Inverse), len(s.Rows)-len(rows))):])
	for i, row := range rows {
		row = strings.TrimRightFunc(text.CutRunes(plainSpace(row), maxRow), unicode.IsSpace)
		v.rows = append(v.rows, row)
		if row != "" {
			v.last = i
		}
	}
	v.Box = findBox(v.rows, v.last, file.Input)
	v.Dialog = findDialog(v.rows[:v.last+1], v.inverse, file)
	v.settle()
	return v
}

// settle decides between a dialog and an input box. A dialog above the box is history, because
// programs hide the box while they ask. A list inside of the box is text that the user types.
func (v *View) settle() {
	d, b := v.Dialog, v.Box
	switch {
	case d == nil || b == nil:
	case d.last < b.First, v.file.Input.Frame != "" && d.first >= b.First && d.last <= b.Last:
		v.Dialog = nil
	default:
		v.Box = nil
	}
}

func plainSpace(s string) string { return strings.ReplaceAll(s, "\u00a0", " ") }

// findBox finds the lowest input box.
func findBox(rows []string, last int, in Input) *Box {
	if in.Frame == "" && len(in.Glyphs) == 0 { // the rule file does not describe it
		return nil
	}
	below := 0
	for y := last; y >= 0 && below <= in.Below; y-- {
		switch {
		case in.Frame != "":
			if !isRule(rows[y], in.Frame) {
				break
			}
			top := y - 1
			for top >= 0 && y-top < 30 && !isRule(rows[top], in.Frame) {
				top--
			}
			if top < 0 || y-top < 2 || y-top >= 30 {
				break
			}
			if text, ok := afterGlyph(rows[top+1], in.Glyphs); ok {
				return &Box{First: top + 1, Last: y - 1, Text: join(text, rows[top+2:y])}
			}
		default:
			text, ok := afterGlyph(rows[y], in.Glyphs)
			if !ok || strings.HasPrefix(rows[y], "    ") {
				break
			}
			end := y
			for end < last && strings.HasPrefix(rows[end+1], "  ") && strings.TrimSpace(rows[end+1]) != "" {
				end++
			}
			return &Box{First: y, Last: end, Text: join(text, rows[y+1:end+1])}
		}
		if strings.TrimSpace(rows[y]) != "" {
			below++
		}
	}
	return nil
}

func join(first string, rest []string) string {
	for _, r := range rest {
		first += "\n" + strings.TrimSpace(r)
	}
	return strings.TrimSpace(first)
}

// afterGlyph returns what follows one of the glyphs at the beginning of a row.
func afterGlyph(row string, glyphs []string) (string, bool) {
	row = strings.TrimLeft(row, " │┃|")
	if len(glyphs) == 0 {
		return strings.TrimSpace(row), true
	}
	for _, g := range glyphs {
		if rest, ok := strings.CutPrefix(row, g); ok && (rest == "" || rest[0] == ' ') {
			return strings.TrimRight(strings.TrimSpace(rest), " │┃|"), true
		}
	}
	return "", false
}

// isRule reports whether a row is a horizontal line drawn with these runes. A word may follow the
// line, as in some programs.
func isRule(row, runes string) bool {
	n := 0
	for _, c := range strings.TrimSpace(row) {
		if !strings.ContainsRune(runes, c) {
			break
		}
		n++
	}
	return n >= 20
}

const ruleRunes = "─━═╌┄▄▀"

// region returns the lines of a region.
func (v *View) region(r Region) *regionText {
	if t, ok := v.found[r]; ok {
		return t
	}
	t := &regionText{lines: v.linesOf(r)}
	v.found[r] = t
	return t
}

func (v *View) linesOf(r Region) []string {
	switch r.kind {
	case "title":
		return nonEmpty(v.title)
	case "osc":
		return nonEmpty(text.CutRunes(v.osc[r.n], maxPayload))
	case "whole":
		return v.rows[:v.last+1]
	case "last_lines":
		return v.lastOf(0, v.last, r.n)
	case "last_block":
		first := v.last
		for first > 0 && strings.TrimSpace(v.rows[first-1]) != "" {
			first--
		}
		return v.rows[max(first, 0) : v.last+1]
	case "below_last_rule":
		for y := v.last; y >= 0; y-- {
			if isRule(v.rows[y], ruleRunes) {
				return v.rows[y+1 : v.last+1]
			}
		}
	case "input_box":
		if v.Box != nil {
			return strings.Split(v.Box.Text, "\n")
		}
	case "above_input":
		return v.turn(r.n)
	case "dialog":
		if v.Dialog != nil {
			return v.rows[v.Dialog.top : v.last+1]
		}
	case "footer":
		switch {
		case v.Box != nil:
			return v.lastOf(v.Box.Last+1, v.last, maxRows)
		case v.Dialog != nil:
			return v.lastOf(v.Dialog.last+1, v.last, maxRows)
		}
		return v.lastOf(0, v.last, 2)
	}
	return nil
}

// turn returns the last n non-blank lines above the input box, or at the end of the screen if
// the screen has none. It stops at the last submitted line, because earlier lines belong to earlier
// turns.
func (v *View) turn(n int) []string {
	end := v.last
	if v.Box != nil {
		end = v.Box.First - 1
	}
	lines := v.lastOf(0, end, n)
	for i := len(lines) - 1; i >= 0; i-- {
		if v.echo(lines[i]) {
			return lines[i+1:]
		}
	}
	return lines
}

// Turn returns the lines of the last turn on the screen: those after the last submitted text, up
// to the input box.
func (v *View) Turn() []string { return v.turn(maxRows) }

// echo reports whether a line of the transcript was submitted. Quotes in answers are indented,
// so they do not count.
func (v *View) echo(line string) bool {
	_, ok := afterGlyph(line, v.file.Input.Echo)
	return ok && len(v.file.Input.Echo) > 0 && !strings.HasPrefix(line, "  ")
}

// lastOf returns the last n rows of a range that are neither blank nor a frame.
func (v *View) lastOf(first, last, n int) []string {
	var lines []string
	for y := last; y >= first && len(lines) < n; y-- {
		if strings.TrimSpace(v.rows[y]) != "" && !isRule(v.rows[y], ruleRunes) {
			lines = append(lines, v.rows[y])
		}
	}
	slices.Reverse(lines)
	return lines
}

// Submitted reports whether a typed text is in the transcript above the input box and no
// longer in the box.
func (v *View) Submitted(typed string) bool {
	first := firstLine(typed)
	if v.Box == nil || first == "" || v.Holds(typed) {
		return false
	}
	for y := v.Box.First - 1; y >= 0; y-- {
		line := v.rows[y]
		if len(v.file.Input.Echo) > 0 {
			if !v.echo(line) {
				continue
			}
			line, _ = afterGlyph(line, v.file.Input.Echo)
			return strings.HasPrefix(text.Fold(line), first)
		}
		if strings.HasPrefix(text.Fold(line), first) {
			return true
		}
	}
	return false
}

// Holds reports whether a typed text is still in the input box, literally or as a placeholder for
// pasted text.
func (v *View) Holds(typed string) bool {
	first := firstLine(typed)
	if v.Box == nil || first == "" {
		return false
	}
	box := text.Fold(v.Box.Text)
	return strings.Contains(box, first) || strings.HasPrefix(box, "[pasted")
}

// BoxBegins reports whether the input box begins with a text that was typed, literally or as a
// placeholder for pasted text.
func (v *View) BoxBegins(typed string) bool {
	first := firstLine(typed)
	return v.Holds(typed) && (strings.HasPrefix(text.Fold(v.Box.Text), first) || strings.HasPrefix(text.Fold(v.Box.Text), "[pasted"))
}

// firstLine returns the folded beginning of a text, short enough not to be wrapped.
func firstLine(typed string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(typed), "\n")
	return strings.TrimSpace(text.CutRunes(text.Fold(line), 40))
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

func foldAll(list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, text.Fold(s))
	}
	return out
}
