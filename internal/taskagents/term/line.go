package term

import "unicode/utf8"

// cell is one cell of the grid. A cell that was never written is the zero value. A wide character
// has a lead cell and a tail cell without text.
type cell struct {
	r rune
	look
	part part
	more string // marks and joined characters after r, at most MaxMarks bytes
}

type part uint8

const (
	whole part = iota
	lead
	tail
)

// line is a row of cells. Cells from used on are zero, so that the cost of erasing depends on what
// was written, and repeated erasing is cheap.
type line struct {
	cells []cell
	used  int
}

func newLine(cols int) *line { return &line{cells: make([]cell, cols)} }

func (l *line) written() []cell { return l.cells[:l.used] }

// text appends the line's text without trailing blanks.
func (l *line) text(b []byte) []byte {
	end := len(b)
	for i := range l.written() {
		c := &l.cells[i]
		switch {
		case c.part == tail:
			continue
		case c.r == 0:
			b = append(b, ' ')
			continue
		case c.r < utf8.RuneSelf:
			b = append(b, byte(c.r))
		default:
			b = utf8.AppendRune(b, c.r)
		}
		b = append(b, c.more...)
		if c.r != ' ' || c.more != "" {
			end = len(b)
		}
	}
	return b[:end]
}

// mend blanks a wide character that extends over column x, so that a write which begins or ends
// there leaves no half of it.
func (l *line) mend(x int) {
	if x > 0 && x < l.used && l.cells[x].part == tail {
		l.cells[x-1], l.cells[x] = cell{}, cell{}
	}
}

// reserve returns the cells from a to b for writing.
func (l *line) reserve(a, b int) []cell {
	l.mend(a)
	l.mend(b)
	l.used = max(l.used, b)
	return l.cells[a:b]
}

// erase blanks the cells from a to b.
func (l *line) erase(a, b int) {
	l.mend(a)
	l.mend(b)
	b = min(b, l.used)
	if a >= b {
		return
	}
	clear(l.cells[a:b])
	if b == l.used {
		l.used = a
	}
}

// insert shifts the cells from x on to the right by n, at most to the end of the line. Cells that
// leave the line are dropped.
func (l *line) insert(x, n int) {
	cols := len(l.cells)
	l.mend(x)
	l.mend(cols - n)
	if x >= l.used {
		return
	}
	copy(l.cells[x+n:], l.cells[x:l.used])
	clear(l.cells[x : x+n])
	l.used = min(cols, l.used+n)
}

// remove shifts the cells from x+n on to the left by n, which must not exceed the rest of the
// line.
func (l *line) remove(x, n int) {
	l.mend(x)
	l.mend(x + n)
	if x >= l.used {
		return
	}
	from := min(x+n, l.used)
	kept := copy(l.cells[x:], l.cells[from:l.used])
	clear(l.cells[x+kept : l.used])
	l.used = x + kept
}

func (l *line) resize(cols int) {
	l.mend(cols)
	cells := make([]cell, cols)
	l.used = copy(cells, l.written())
	l.cells = cells
}

// scrollback is a ring of the lines that left the top of the screen.
type scrollback struct {
	lines [][]byte // their memory is reused
	first int      // the oldest, once it is full
}

func (b *scrollback) push(l *line) {
	if len(b.lines) < MaxScrollback {
		b.lines = append(b.lines, l.text(nil))
		return
	}
	b.lines[b.first] = l.text(b.lines[b.first][:0])
	b.first = (b.first + 1) % MaxScrollback
}

// Scrollback returns the text of the lines that left the top of the main screen, the oldest first,
// at most MaxScrollback. CSI 3J empties it.
func (s *Screen) Scrollback() []string {
	b := &s.scrolled
	out := make([]string, 0, len(b.lines))
	for i := range b.lines {
		out = append(out, string(b.lines[(b.first+i)%len(b.lines)]))
	}
	return out
}
