package term

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// modesKept returns the private modes that a repaint sets, so that the user's terminal behaves as
// the program expects.
func modesKept() []int {
	return []int{1, 7, 25, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 2004}
}

// Repaint returns the bytes that make another terminal of the same size show this screen: the
// scrollback as plain text, the screen with attributes and colours, the title, the modes and the
// cursor. The size of the result is bounded by that of screen and scrollback.
func (s *Screen) Repaint() []byte {
	b := make([]byte, 0, 16<<10)
	b = append(b, "\x1bc"...)
	if s.Alternate() {
		b = append(b, "\x1b[?1049h"...)
	} else {
		for i := range s.scrolled.lines {
			b = append(b, s.scrolled.lines[(s.scrolled.first+i)%len(s.scrolled.lines)]...)
			b = append(b, "\r\n"...)
		}
	}
	for y, l := range s.grid.lines {
		if y > 0 {
			b = append(b, "\r\n"...)
		}
		b = l.paint(b)
	}
	if s.top != 0 || s.bottom != s.rows-1 {
		b = sequence(b, 'r', s.top+1, s.bottom+1)
	}
	if s.title != "" {
		b = append(append(append(b, "\x1b]0;"...), s.title...), '\a')
	}
	for _, n := range modesKept() {
		final := "l"
		if s.Mode(n) {
			final = "h"
		}
		b = append(strconv.AppendInt(append(b, "\x1b[?"...), int64(n), 10), final...)
	}
	b = append(b, s.cursor.sgr()...)
	return sequence(b, 'H', s.cursor.y+1, s.cursor.x+1)
}

// paint appends a line with its attributes and colours, without trailing blanks.
func (l *line) paint(b []byte) []byte {
	var now look
	cells := l.written()
	for len(cells) > 0 && (cells[len(cells)-1].r == 0 && cells[len(cells)-1].part == whole) {
		cells = cells[:len(cells)-1]
	}
	for i := range cells {
		c := &cells[i]
		if c.part == tail {
			continue
		}
		if c.r == 0 { // erased: it has no look
			if now != (look{}) {
				now = look{}
				b = append(b, "\x1b[m"...)
			}
			b = append(b, "\x1b[C"...)
			continue
		}
		if c.look != now {
			now = c.look
			b = append(b, now.sgr()...)
		}
		b = utf8.AppendRune(b, c.r)
		b = append(b, c.more...)
	}
	if now != (look{}) {
		b = append(b, "\x1b[m"...)
	}
	return b
}

// sgr returns the sequence that resets all attributes and sets those of the look.
func (k look) sgr() string {
	var b strings.Builder
	b.WriteString("\x1b[0")
	for n := uint16(1); n <= 9; n++ {
		if n != 6 && k.attr&attribute(n) != 0 {
			b.WriteString(";" + strconv.Itoa(int(n)))
		}
	}
	for _, part := range []struct {
		colour Colour
		word   string
	}{{k.fg, ";38"}, {k.bg, ";48"}} {
		if n, ok := part.colour.Palette(); ok {
			b.WriteString(part.word + ";5;" + strconv.Itoa(int(n)))
		} else if red, green, blue, ok := part.colour.RGB(); ok {
			b.WriteString(part.word + ";2;" + strconv.Itoa(int(red)) + ";" + strconv.Itoa(int(green)) + ";" + strconv.Itoa(int(blue)))
		}
	}
	b.WriteByte('m')
	return b.String()
}

func sequence(b []byte, final byte, x, y int) []byte {
	b = strconv.AppendInt(append(b, "\x1b["...), int64(x), 10)
	b = strconv.AppendInt(append(b, ';'), int64(y), 10)
	return append(b, final)
}
