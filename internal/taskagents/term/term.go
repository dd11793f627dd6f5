// Package term models the screen of a terminal: the visible content after the bytes that a program
// wrote. Programs that draw, such as agent CLIs, move the cursor between words and over old text,
// so removing escape codes from the bytes does not yield the visible text. It supports the
// sequences of xterm that such programs use.
//
// The stream is untrusted: every size is bounded and no input fails. The package has its own parser
// because existing ones end a title at the byte 0x9C, which is part of UTF-8 characters in titles
// of CLIs (docs/dependencies.md).
package term

import (
	"bytes"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
)

// Screen is the screen of one terminal: a grid of cells, its cursor, the alternate screen, the
// scrollback, the title and the modes. It is not safe for concurrent use.
type Screen struct {
	// Reply is called during Write with the replies to the program's queries: for the cursor
	// position (CSI 6n), the terminal's identity (CSI c, CSI >q), kitty's keyboard (CSI ?u) and the
	// colours (OSC 10 and 11: white on black). The bytes are valid until it returns. It may be
	// nil.
	Reply func([]byte)
	// OSC is called during Write with every operating system command that Reply does not answer:
	// its number and the text after the semicolon, at most MaxSequence bytes without control
	// characters, not necessarily UTF-8. It may be nil. Neither function may call the screen.
	OSC func(n int, data string)

	cols, rows  int
	main, alt   grid
	grid        *grid // the visible one: main or alt
	cursor      cursor
	top, bottom int // first and last row of the scroll region
	tabs        []bool
	modes       [maxMode / 64]uint64
	insert      bool // ANSI mode 4
	newline     bool // ANSI mode 20: a line feed also returns to the first column
	title       string
	changes     uint64
	last        rune // character that CSI b repeats; 0 if none
	scrolled    scrollback

	parser
	scratch []byte
}

// grid is one of the two screens.
type grid struct {
	lines []*line
	saved cursor
}

// cursor is the state that DECSC saves.
type cursor struct {
	x, y   int
	wrap   bool // the last column was written, so the next character wraps
	origin bool // rows count from the top of the scroll region
	look
	graphics [2]bool // G0 and G1 are the line drawing set
	shift    uint8   // the active one
}

// Attr is a set of attributes of a cell.
type Attr uint8

// The supported attributes of SGR (ECMA-48, 8.3.117).
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

// Colour is the colour of a cell: 0 is the terminal's default; others are an index of a palette of
// 256 colours, or 24 bits of red, green and blue.
type Colour uint32

const (
	ofPalette Colour = 1 << 24
	ofRGB     Colour = 2 << 24
)

// Palette returns the index of a palette colour; ok is false for others.
func (c Colour) Palette() (n uint8, ok bool) { return uint8(c), c&ofPalette != 0 }

// RGB returns the components of a 24-bit colour; ok is false for others.
func (c Colour) RGB() (r, g, b uint8, ok bool) {
	return uint8(c >> 16), uint8(c >> 8), uint8(c), c&ofRGB != 0
}

// look holds the attributes and colours of characters. Erased cells have none, because few of the
// supported programs fill areas with a colour by erasing.
type look struct {
	attr   Attr
	fg, bg Colour
}

// New returns a blank screen. cols and rows are limited to 1 to MaxSize.
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

// reset executes RIS: it resets all but size, callbacks and scrollback.
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

// softReset executes DECSTR, which does not change the visible content.
func (s *Screen) softReset() {
	s.top, s.bottom = 0, s.rows-1
	s.insert, s.newline = false, false
	s.setBit(1, false)
	s.setBit(7, true)
	s.setBit(25, true)
	s.cursor = cursor{x: s.cursor.x, y: s.cursor.y}
	s.grid.saved = cursor{}
}

// Rows returns the number of rows.
func (s *Screen) Rows() int { return s.rows }

// Cols returns the number of columns.
func (s *Screen) Cols() int { return s.cols }

// Row returns the text of row y, counted from 0 at the top. Unwritten cells are blanks, trailing
// blanks are trimmed, and a wide character occurs once. Rows outside of the screen are "".
func (s *Screen) Row(y int) string {
	if y < 0 || y >= s.rows {
		return ""
	}
	s.scratch = s.grid.lines[y].text(s.scratch[:0])
	return string(s.scratch)
}

// Text returns all rows, joined by line feeds, without blank ones at the end.
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

// Cursor returns the column and row of the cursor, from 0, and whether it is visible (?25).
func (s *Screen) Cursor() (x, y int, visible bool) {
	return s.cursor.x, s.cursor.y, s.Mode(25)
}

// Inverse reports whether row y has text in reverse video. Blanks do not count, because some
// programs draw their cursor as one.
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

// Attr returns the attributes of the cell at column x of row y, or 0 outside of the screen.
func (s *Screen) Attr(x, y int) Attr {
	if x < 0 || x >= s.cols || y < 0 || y >= s.rows {
		return 0
	}
	return s.grid.lines[y].cells[x].attr
}

// Title returns the window title (OSC 0 and 2) as trimmed, valid UTF-8 without control characters,
// at most MaxTitle bytes.
func (s *Screen) Title() string { return s.title }

// Alternate reports whether the alternate screen is visible (?1049, ?1047, ?47).
func (s *Screen) Alternate() bool { return s.grid == &s.alt }

// Updating reports whether a synchronised update (?2026) is in progress, so that the screen may be
// incomplete. A program may never end one, so callers must limit their wait.
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

// Changes returns a counter that grows whenever text, attributes, cursor, size, the visible screen
// or the title may have changed. While it is the same, the screen need not be evaluated again.
func (s *Screen) Changes() uint64 { return s.changes }

// setTitle sets the title without control characters, cut to MaxTitle.
func (s *Screen) setTitle(data []byte) {
	data = bytes.TrimSpace(data) // some programs pad it
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

// Resize changes the size, limited to 1 to MaxSize. Text is not reflowed, because programs redraw.
// Columns are cut at the right. Rows are removed below the cursor, then at the top, where the main
// screen adds them to the scrollback.
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
