package term

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

const (
	joiner      = 0x200D                            // zero width joiner
	emojiStyle  = 0xFE0F                            // variation selector 16: emoji presentation
	graphicsSet = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·" // DEC's line drawing set, for ` to ~
)

// printASCII writes characters from blank to tilde at the cursor.
func (s *Screen) printASCII(p []byte) {
	if s.cursor.graphics[s.cursor.shift] || s.insert {
		for _, b := range p {
			s.print(s.graphic(b))
		}
		return
	}
	s.changes++
	s.last = rune(p[len(p)-1])
	for c := &s.cursor; len(p) > 0; {
		s.wrap()
		n := min(len(p), s.cols-c.x)
		cells := s.grid.lines[c.y].reserve(c.x, c.x+n)
		for i := range cells {
			cells[i] = cell{r: rune(p[i]), look: c.look}
		}
		p = p[n:]
		s.advance(n)
	}
}

// graphic returns the character for b in the active character set.
func (s *Screen) graphic(b byte) rune {
	if b < '`' || !s.cursor.graphics[s.cursor.shift] {
		return rune(b)
	}
	n := int(b - '`')
	for _, r := range graphicsSet {
		if n == 0 {
			return r
		}
		n--
	}
	return rune(b)
}

// print writes one character at the cursor, or adds it to the previous one.
func (s *Screen) print(r rune) {
	w := runeWidth(r)
	if w < 0 || s.join(r, w) || w == 0 || w > s.cols {
		return
	}
	s.changes++
	s.last = r
	c := &s.cursor
	s.wrap()
	if c.x+w > s.cols { // a wide character does not fit
		if !s.Mode(7) {
			return
		}
		c.wrap = true
		s.wrap()
	}
	l := s.grid.lines[c.y]
	if s.insert {
		l.insert(c.x, w)
	}
	cells := l.reserve(c.x, c.x+w)
	cells[0] = cell{r: r, look: c.look}
	if w == 2 {
		cells[0].part = lead
		cells[1] = cell{look: c.look, part: tail}
	}
	s.advance(w)
}

// wrap moves the cursor to the next line if the last column of this one was written.
func (s *Screen) wrap() {
	if c := &s.cursor; c.wrap && s.Mode(7) {
		s.lineFeed()
		c.x, c.wrap = 0, false
	}
}

func (s *Screen) advance(n int) {
	c := &s.cursor
	if c.x += n; c.x >= s.cols {
		c.x, c.wrap = s.cols-1, true
	}
}

// join adds r to the character before the cursor if it is a mark, a character after a zero width
// joiner, a skin tone, or the second half of a flag, and reports whether it did. This approximates
// grapheme clusters (UAX #29), by which programs compute widths.
func (s *Screen) join(r rune, w int) bool {
	if w == 1 && !isRegional(r) && !isPicture(r) {
		return false
	}
	c := &s.cursor
	x := c.x - 1
	if c.wrap {
		x = c.x
	}
	if x < 0 {
		return false
	}
	l := s.grid.lines[c.y]
	if l.cells[x].part == tail {
		x--
	}
	before := &l.cells[x]
	switch {
	case before.r == 0:
		return false
	case isRegional(r):
		if !isRegional(before.r) || before.more != "" {
			return false
		}
	case w == 0:
	case !isPicture(before.r) || !isPicture(r):
		return false
	default:
		if last, _ := utf8.DecodeLastRuneInString(before.more); last != joiner && !isSkinTone(r) {
			return false
		}
	}
	if len(before.more)+utf8.RuneLen(r) <= MaxMarks {
		before.more += string(r)
		s.changes++
	}
	if (r == emojiStyle && isPicture(before.r) || isRegional(r)) && before.part == whole && x+2 <= s.cols && !c.wrap {
		next := l.reserve(x+1, x+2)
		l.cells[x].part = lead
		next[0] = cell{look: l.cells[x].look, part: tail}
		s.advance(1)
	}
	return true
}

func isRegional(r rune) bool { return r >= 0x1F1E6 && r <= 0x1F1FF }
func isSkinTone(r rune) bool { return r >= 0x1F3FB && r <= 0x1F3FF }

// isPicture reports whether r may be an emoji; it approximates Extended_Pictographic.
func isPicture(r rune) bool {
	return r >= 0x2190 && r <= 0x2BFF || r >= 0x1F000 && r <= 0x1FAFF
}

// runeWidth returns the number of columns of r: 0 if it combines with the previous character, and
// -1 for C1 controls.
func runeWidth(r rune) int {
	switch {
	case r < 0xA0:
		if isControl(r) {
			return -1
		}
		return 1
	case r < 0x300 && r != 0xAD, r >= 0x2500 && r < 0x25FD, r >= 0x2800 && r < 0x2900: // box drawing and Braille, the most frequent symbols
		return 1
	case r >= 0x4E00 && r < 0xA000, r >= 0xAC00 && r < 0xD7A4:
		return 2
	case r >= 0x1160 && r < 0x1200, r >= 0xD7B0 && r < 0xD800, unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0 // with the vowels and finals of Hangul, which follow their initial
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}
