// Package term keeps the screen of a terminal: what a person would see after all the
// bytes that a program wrote. Programs that draw (agent CLIs above all) move the cursor
// between words and over old text, so the bytes with their escape codes removed are not
// what is on screen. The repertoire is xterm's, as far as such programs use it; colours
// are read and not kept.
//
// Nothing here trusts the stream: every size is bounded and no input fails. It parses
// by itself because parsers of others end a title at the byte 0x9C, which is part of
// UTF-8 characters that CLIs have in theirs (docs/dependencies.md).
package term

import (
	"bytes"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
)

const (
	// MaxSize bounds columns and rows of a screen; what is larger becomes this.
	MaxSize = 1000
	// MaxScrollback is how many lines that left the top are kept, the latest.
	MaxScrollback = 2000
	// MaxSequence bounds an operating system command, in bytes; longer ones are dropped
	// whole, as half a message misleads.
	MaxSequence = 4096
	// MaxTitle bounds the window title, in bytes.
	MaxTitle = 512
	// MaxMarks bounds what one cell holds beyond its first character, in bytes.
	MaxMarks = 48

	maxMode = 4096 // private modes from here on are not kept: none are defined
)

// Screen is the screen of one terminal: a grid of cells, its cursor, the alternate
// screen, what scrolled away, the title and the modes. It is not safe for concurrent
// use.
type Screen struct {
	// Reply gets the answers to what the program asked its terminal, during Write: where
	// the cursor is (CSI 6n), what the terminal is (CSI c, CSI >q), kitty's keyboard
	// (CSI ?u) and the colours (OSC 10 and 11: white on black). The bytes are valid until
	// it returns. It may be nil.
	Reply func([]byte)
	// OSC gets every operating system command but those Reply answers, during Write:
	// its number and the rest behind the semicolon, as sent, at most MaxSequence bytes
	// without control characters, not necessarily UTF-8. Neither may call the screen. It
	// may be nil.
	OSC func(n int, data string)

	cols, rows  int
	main, alt   grid
	grid        *grid // the one that shows: main or alt
	cursor      cursor
	top, bottom int // the scroll region, both inside
	tabs        []bool
	modes       [maxMode / 64]uint64
	insert      bool // ANSI mode 4
	newline     bool // ANSI mode 20: a line feed returns, too
	title       string
	changes     uint64
	last        rune // what CSI b repeats; 0 for nothing
	scrolled    scrollback

	parser
	scratch []byte
}

// grid is one of the two screens.
type grid struct {
	lines []*line
	saved cursor
}

// cursor is what DECSC saves.
type cursor struct {
	x, y   int
	wrap   bool // the last column is written: the next character goes to the next line
	origin bool // rows count from the top of the scroll region
	look
	graphics [2]bool // G0 and G1 are the line drawing set
	shift    uint8   // which of them is in use
}

// Attr is how a cell is drawn, a set of bits.
type Attr uint8

// The attributes of SGR (ECMA-48, 8.3.117) that are kept.
const (
	Bold Attr = 1 << iota
	Dim
	Italic
	Underline
	Blink
	Reverse
	Conceal
	Strike
)

// Colour is that of a cell: 0 is the terminal's own; else it is one of a palette of 256
// or 24 bits of red, green and blue.
type Colour uint32

const (
	ofPalette Colour = 1 << 24
	ofRGB     Colour = 2 << 24
)

// Palette returns the number of a colour of the palette.
func (c Colour) Palette() (n uint8, ok bool) { return uint8(c), c&ofPalette != 0 }

// RGB returns the parts of a colour of 24 bits.
func (c Colour) RGB() (r, g, b uint8, ok bool) {
	return uint8(c >> 16), uint8(c >> 8), uint8(c), c&ofRGB != 0
}

// look is how characters are drawn. What is erased has none: programs that fill areas
// with a colour by erasing are rare among those that this is for.
type look struct {
	attr   Attr
	fg, bg Colour
}

// New makes a blank screen of that many columns and rows, 1 to MaxSize each.
func New(cols, rows int) *Screen {
	s := &Screen{cols: size(cols), rows: size(rows)}
	s.main, s.alt = newGrid(s.cols, s.rows), newGrid(s.cols, s.rows)
	s.tabs = make([]bool, s.cols)
	s.reset()
	return s
}

func size(n int) int { return min(max(n, 1), MaxSize) }

func newGrid(cols, rows int) grid {
	g := grid{lines: make([]*line, rows)}
	for y := range g.lines {
		g.lines[y] = newLine(cols)
	}
	return g
}

// reset is RIS: all but size, callbacks and what scrolled away.
func (s *Screen) reset() {
	for _, g := range []*grid{&s.main, &s.alt} {
		s.blank(g.lines)
		g.saved = cursor{}
	}
	s.grid = &s.main
	for x := range s.tabs {
		s.tabs[x] = x%8 == 0
	}
	s.modes = [maxMode / 64]uint64{}
	s.title, s.last = "", 0
	s.softReset()
	s.cursor = cursor{}
}

// softReset is DECSTR: nothing that shows changes.
func (s *Screen) softReset() {
	s.top, s.bottom = 0, s.rows-1
	s.insert, s.newline = false, false
	s.setBit(1, false)
	s.setBit(7, true)
	s.setBit(25, true)
	s.cursor = cursor{x: s.cursor.x, y: s.cursor.y}
	s.grid.saved = cursor{}
}

// Rows is the number of rows.
func (s *Screen) Rows() int { return s.rows }

// Cols is the number of columns.
func (s *Screen) Cols() int { return s.cols }

// Row is the text of row y, 0 the topmost: cells never written are blanks, trailing
// blanks are trimmed, a wide character stands once. Other rows than the screen has are
// empty. No-break spaces stay what they are.
func (s *Screen) Row(y int) string {
	if y < 0 || y >= s.rows {
		return ""
	}
	s.scratch = s.grid.lines[y].text(s.scratch[:0])
	return string(s.scratch)
}

// Text is all rows, joined by line feeds, without the blank ones at the end.
func (s *Screen) Text() string {
	b := s.scratch[:0]
	end := 0
	for y, l := range s.grid.lines {
		if y > 0 {
			b = append(b, '\n')
		}
		from := len(b)
		if b = l.text(b); len(b) > from {
			end = len(b)
		}
	}
	s.scratch = b
	return string(b[:end])
}

// Cursor is the column and row of the cursor, from 0, and whether it shows (?25).
func (s *Screen) Cursor() (x, y int, visible bool) {
	return s.cursor.x, s.cursor.y, s.Mode(25)
}

// Inverse reports whether row y has text in reverse video. A blank is not text: some draw
// their cursor as one.
func (s *Screen) Inverse(y int) bool {
	if y < 0 || y >= s.rows {
		return false
	}
	for _, c := range s.grid.lines[y].written() {
		if c.attr&Reverse != 0 && c.r != 0 && c.r != ' ' {
			return true
		}
	}
	return false
}

// Attr is how the cell at column x of row y is drawn; 0 outside the screen.
func (s *Screen) Attr(x, y int) Attr {
	if x < 0 || x >= s.cols || y < 0 || y >= s.rows {
		return 0
	}
	return s.grid.lines[y].cells[x].attr
}

// Title is the window title (OSC 0 and 2): valid UTF-8 without control characters and
// blanks around it, at most MaxTitle bytes.
func (s *Screen) Title() string { return s.title }

// Alternate reports whether the alternate screen shows (?1049, ?1047, ?47).
func (s *Screen) Alternate() bool { return s.grid == &s.alt }

// Updating reports whether the program is inside a synchronised update (?2026): what is on
// screen may be half drawn. A program may never end one, so who waits bounds the wait.
func (s *Screen) Updating() bool { return s.Mode(2026) }

// Mode reports whether the DEC private mode n is set, such as 2004 for bracketed paste.
// Modes from 4096 on are never set.
func (s *Screen) Mode(n int) bool {
	switch n {
	case 6:
		return s.cursor.origin
	case 47, 1047, 1049:
		return s.Alternate()
	}
	return n >= 0 && n < maxMode && s.modes[n/64]&(1<<(n%64)) != 0
}

func (s *Screen) setBit(n int, on bool) {
	if n < 0 || n >= maxMode {
		return
	}
	if on {
		s.modes[n/64] |= 1 << (n % 64)
	} else {
		s.modes[n/64] &^= 1 << (n % 64)
	}
}

// Changes grows whenever something visible may have changed: text, attributes, cursor,
// size, the screen that shows, the title. Who evaluated the screen need not do so again
// while it is the same.
func (s *Screen) Changes() uint64 { return s.changes }

// setTitle keeps what can be shown of a title.
func (s *Screen) setTitle(data []byte) {
	data = bytes.TrimSpace(data) // some pad theirs
	if string(data) == s.title {
		return
	}
	clean := strings.ToValidUTF8(string(data), "\uFFFD")
	clean = strings.Map(func(r rune) rune {
		if isControl(r) {
			return -1
		}
		return r
	}, clean)
	s.title = text.CutBytes(clean, MaxTitle)
	s.changes++
}

// Resize gives the screen another size, 1 to MaxSize each way. Text is not wrapped
// again: programs redraw. The right is cut off; rows leave at the bottom below the
// cursor, then at the top, which the main screen scrolls back.
func (s *Screen) Resize(cols, rows int) {
	cols, rows = size(cols), size(rows)
	if cols == s.cols && rows == s.rows {
		return
	}
	for _, g := range []*grid{&s.main, &s.alt} {
		at := &g.saved
		if g == s.grid {
			at = &s.cursor
		}
		away := max(0, at.y-rows+1)
		for _, l := range g.lines[:away] {
			if g == &s.main {
				s.scrolled.push(l)
			}
		}
		at.y -= away
		g.lines = g.lines[away:]
		g.lines = append([]*line(nil), g.lines[:min(rows, len(g.lines))]...)
		for _, l := range g.lines {
			l.resize(cols)
		}
		for len(g.lines) < rows {
			g.lines = append(g.lines, newLine(cols))
		}
		g.saved.clamp(cols, rows)
	}
	for len(s.tabs) < cols {
		s.tabs = append(s.tabs, len(s.tabs)%8 == 0)
	}
	s.tabs = s.tabs[:cols]
	s.cols, s.rows = cols, rows
	s.top, s.bottom = 0, rows-1
	s.cursor.clamp(cols, rows)
	s.changes++
}

func (c *cursor) clamp(cols, rows int) {
	c.x, c.y, c.wrap = min(c.x, cols-1), min(c.y, rows-1), false
}
