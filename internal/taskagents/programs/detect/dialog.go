package detect

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/base/text"
)

// Dialog is a question with a selection list, found by its structure and not by its
// wording: at least two options, exactly one of them selected by a cursor glyph or
// reverse video, in the last 25 rows of what is on the screen, with numbered choices
// or a line that states which keys to press.
type Dialog struct {
	Prompt   string
	Options  []string // labels
	Numbers  []int    // as shown before the labels; 0: none
	Selected int      // index of the option under the cursor

	top, first, last int // rows: of the block, the first option, the last one
	footer           bool
}

const (
	dialogRows   = 25
	rowsOfPrompt = 14 // rows above the options that may belong to the question
	gap          = 3  // rows between options: blanks, descriptions, a line
)

const allCursors = "❯›●>"

// option is one row read as an option.
type option struct {
	row, col int // col: of the number or, without one, of the label
	number   int
	label    string
	cursor   bool
}

// findDialog finds the lowest dialog, or nil. rows ends with the last one that is not
// blank.
func findDialog(rows []string, inverse []bool, file *File) *Dialog {
	cursors := file.Cursors
	if cursors == "" {
		cursors = allCursors
	}
	start := max(0, len(rows)-dialogRows)
	for y := len(rows) - 1; y >= start; y-- {
		o, ok := readOption(rows, y, cursors)
		if !ok || !o.cursor && !inverse[y] {
			continue
		}
		list := numbered(rows, start, o, cursors)
		if o.number == 0 {
			list = aligned(rows, start, o, cursors)
		}
		if len(list) < 2 || selected(list, inverse) < 0 {
			continue
		}
		d := &Dialog{first: list[0].row, last: list[len(list)-1].row, Selected: selected(list, inverse)}
		var below int
		below, d.footer = footer(rows[d.last+1:])
		if below > maxBelow || !d.footer && (o.number == 0 || file.Footer) {
			continue
		}
		for _, each := range list {
			d.Options, d.Numbers = append(d.Options, each.label), append(d.Numbers, each.number)
		}
		d.top = max(d.first-rowsOfPrompt, 0)
		for top := d.first - 1; top >= d.top; top-- {
			if isRule(rows[top], ruleRunes) || strings.HasPrefix(strings.TrimSpace(rows[top]), "╭") {
				d.top = top + 1
				break
			}
		}
		d.Prompt = prompt(rows[d.top:d.first])
		return d
	}
	return nil
}

// readOption reads a row as an option: borders, cursor, number, label.
func readOption(rows []string, y int, cursors string) (o option, ok bool) {
	s, col := unbordered(rows[y])
	if s == "" || isRule(rows[y], ruleRunes) {
		return o, false
	}
	o.row = y
	if c, size := utf8.DecodeRuneInString(s); strings.ContainsRune(cursors, c) && strings.HasPrefix(s[size:], " ") {
		rest := strings.TrimLeft(s[size:], " ")
		col += 1 + utf8.RuneCountInString(s[size:]) - utf8.RuneCountInString(rest)
		s, o.cursor = rest, true
	}
	o.col, o.label = col, s
	digits := len(s) - len(strings.TrimLeftFunc(s, unicode.IsDigit))
	if digits > 0 && digits <= 2 && len(s) > digits+1 && (s[digits] == '.' || s[digits] == ')') && s[digits+1] == ' ' {
		for _, c := range s[:digits] {
			if c < '0' || c > '9' {
				return o, false
			}
			o.number = o.number*10 + int(c-'0')
		}
		o.label = strings.TrimSpace(s[digits+1:])
	}
	o.label = text.CutRunes(o.label, maxPrompt)
	return o, o.label != ""
}

// unbordered returns a row's text without blanks and the sides of a box around it, and
// the column it begins in.
func unbordered(row string) (text string, col int) {
	text = strings.TrimLeft(row, " │┃║|")
	col = utf8.RuneCountInString(row) - utf8.RuneCountInString(text)
	return strings.TrimRight(text, " │┃║|"), col
}

// numbered collects the options around the selected one whose numbers run on. Between
// two of them may be blank rows, a line, and descriptions, which are indented.
func numbered(rows []string, start int, at option, cursors string) []option {
	if at.number == 0 {
		return nil
	}
	list := []option{at}
	for _, step := range []int{-1, 1} {
		prev, skipped := at, 0
		for y := at.row + step; y >= start && y < len(rows) && len(list) < maxOptions; y += step {
			o, ok := readOption(rows, y, cursors)
			switch {
			case ok && o.number > 0 && o.number == prev.number+step && o.col >= at.col-1 && o.col <= at.col+1:
				list, prev, skipped = append(list, o), o, 0
				continue
			case !ok, !o.cursor && o.col > at.col:
				skipped++
			default:
				skipped = gap + 1
			}
			if skipped > gap {
				break
			}
		}
	}
	slices.SortFunc(list, func(a, b option) int { return a.row - b.row })
	return list
}

// aligned collects the rows next to the selected one whose labels begin in the same
// column.
func aligned(rows []string, start int, at option, cursors string) []option {
	list := []option{at}
	for _, step := range []int{-1, 1} {
		for y := at.row + step; y >= start && y < len(rows) && len(list) < maxOptions; y += step {
			o, ok := readOption(rows, y, cursors)
			if !ok || o.col != at.col || o.number != 0 {
				break
			}
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b option) int { return a.row - b.row })
	return list
}

// selected returns the index of the one option with a cursor or, where none has one,
// the one in reverse video; -1: none, or several.
func selected(list []option, inverse []bool) int {
	for _, is := range []func(option) bool{
		func(o option) bool { return o.cursor },
		func(o option) bool { return inverse[o.row] },
	} {
		at, n := -1, 0
		for i, o := range list {
			if is(o) {
				at = i
				n++
			}
		}
		if n == 1 {
			return at
		}
		if n > 1 {
			return -1
		}
	}
	return -1
}

// footer counts the rows below the options that are not blank, and reports whether one of
// them tells which keys to press.
func footer(rows []string) (below int, keys bool) {
	for _, row := range rows {
		text, _ := unbordered(row)
		if text == "" {
			continue
		}
		below++
		keys = keys || tellsKeys(text)
	}
	return below, keys
}

func tellsKeys(line string) bool {
	var key, act bool
	for _, word := range strings.FieldsFunc(strings.ToLower(line),
		func(c rune) bool { return !unicode.IsLetter(c) && c != '↑' && c != '↓' }) {
		switch word {
		case "enter", "return", "esc", "escape", "tab", "space", "↑", "↓", "↑↓", "arrow", "arrows":
			key = true
		case "confirm", "select", "cancel", "continue", "navigate", "submit", "choose", "skip", "back", "amend", "approve", "toggle", "exit",
			"dismiss", "move":
			act = true
		}
	}
	return key && act
}

// prompt returns the question above the options: the nearest paragraph with a question
// mark, or the nearest one.
func prompt(rows []string) string {
	var paragraphs []string
	var open []string
	for _, row := range slices.Concat(rows, []string{""}) {
		s, _ := unbordered(row)
		if s != "" {
			open = append(open, s)
			continue
		}
		if len(open) > 0 {
			paragraphs, open = append(paragraphs, strings.Join(open, " ")), nil
		}
	}
	for i := len(paragraphs) - 1; i >= 0; i-- {
		if strings.Contains(paragraphs[i], "?") {
			return text.CutRunes(paragraphs[i], maxPrompt)
		}
	}
	if len(paragraphs) == 0 {
		return ""
	}
	return text.CutRunes(paragraphs[len(paragraphs)-1], maxPrompt)
}

// Fingerprint recognises the same question when it is drawn again: its kind, the first
// 100 characters with digits made alike, the labels.
func Fingerprint(kind, question string, options []string) string {
	question = strings.Map(func(c rune) rune {
		if unicode.IsDigit(c) {
			return '#'
		}
		return c
	}, question)
	return kind + "|" + text.CutRunes(question, 100) + "|" + strings.Join(options, "|")
}

// MatchOption returns the index of the option that begins with label, ignoring case; -1 if it
// does not exist exactly once. An equal option wins unless two others come before it. Trailing marks are
// cut from the options.
func MatchOption(options []string, label, marks string) int {
	label = text.Fold(label)
	found := -1
	for i, o := range options {
		switch o = strings.TrimRight(text.Fold(o), marks); {
		case label == "":
			return -1
		case o == label:
			return i
		case strings.HasPrefix(o, label) && found >= 0:
			return -1
		case strings.HasPrefix(o, label):
			found = i
		}
	}
	return found
}
