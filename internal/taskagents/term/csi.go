package term

import "strconv"

// private returns the key of a sequence with a prefix or an intermediate byte and a final byte, to
// distinguish it from the plain sequence.
func private(with, final byte) uint16 { return uint16(with)<<8 | uint16(final) }

// controlSequence executes CSI … final. Unknown sequences are ignored.
func (s *Screen) controlSequence(final byte) {
	c := &s.cursor
	if s.prefix != 0 || s.inter != 0 {
		s.privateSequence(final)
		return
	}
	switch final {
	case '@':
		s.changes++
		c.wrap = false
		s.line().insert(c.x, min(s.arg(0, 1), s.cols-c.x))
	case 'A':
		s.moveBy(0, -s.arg(0, 1))
	case 'B', 'e':
		s.moveBy(0, s.arg(0, 1))
	case 'C', 'a':
		s.moveBy(s.arg(0, 1), 0)
	case 'D':
		s.moveBy(-s.arg(0, 1), 0)
	case 'E':
		s.moveBy(-s.cols, s.arg(0, 1))
	case 'F':
		s.moveBy(-s.cols, -s.arg(0, 1))
	case 'G', '`':
		s.moveTo(s.arg(0, 1)-1, s.row())
	case 'H', 'f':
		s.moveTo(s.arg(1, 1)-1, s.arg(0, 1)-1)
	case 'I':
		s.tab(s.arg(0, 1))
	case 'J':
		s.eraseDisplay(s.arg(0, 0))
	case 'K':
		s.eraseLine(s.arg(0, 0))
	case 'L', 'M':
		s.shiftLines(final == 'L', s.arg(0, 1))
	case 'P':
		s.changes++
		c.wrap = false
		s.line().remove(c.x, min(s.arg(0, 1), s.cols-c.x))
	case 'S':
		s.scroll(s.arg(0, 1))
	case 'T':
		if s.nparam <= 1 { // with five parameters it requests mouse tracking
			s.scrollDown(s.top, s.arg(0, 1))
		}
	case 'X':
		s.changes++
		c.wrap = false
		s.line().erase(c.x, min(s.cols, c.x+s.arg(0, 1)))
	case 'Z':
		s.tab(-s.arg(0, 1))
	case 'b':
		if s.last != 0 {
			for range min(s.arg(0, 1), s.cols) { // bounds the work for a few bytes of input
				s.print(s.last)
			}
		}
	case 'c':
		if s.arg(0, 0) == 0 {
			s.reply("\x1b[?62;22c") // a VT220 with colours
		}
	case 'd':
		s.moveTo(c.x, s.arg(0, 1)-1)
	case 'g':
		switch s.arg(0, 0) {
		case 0:
			s.tabs[c.x] = false
		case 3:
			clear(s.tabs)
		}
	case 'h', 'l':
		for _, n := range s.args() {
			switch n {
			case 4:
				s.insert = final == 'h'
			case 20:
				s.newline = final == 'h'
			}
		}
	case 'm':
		s.attributes()
	case 'n':
		switch s.arg(0, 0) {
		case 5:
			s.reply("\x1b[0n")
		case 6:
			s.reply("\x1b[" + strconv.Itoa(s.row()+1) + ";" + strconv.Itoa(c.x+1) + "R")
		}
	case 'r':
		if top, bottom := s.arg(0, 1)-1, min(s.arg(1, s.rows), s.rows)-1; top < bottom {
			s.top, s.bottom = top, bottom
			s.moveTo(0, 0)
		}
	case 's':
		s.save()
	case 'u':
		s.restore()
	}
}

// privateSequence executes CSI with a prefix or an intermediate byte. The sequences for the
// keyboards of kitty (CSI >u, <u, =u) and xterm (CSI >m) do not change the screen and are ignored.
func (s *Screen) privateSequence(final byte) {
	if s.prefix != 0 && s.inter != 0 {
		return
	}
	switch private(s.prefix|s.inter, final) {
	case private('?', 'h'), private('?', 'l'):
		for _, n := range s.args() {
			s.setMode(int(n), final == 'h')
		}
	case private('?', 'J'):
		s.eraseDisplay(s.arg(0, 0))
	case private('?', 'K'):
		s.eraseLine(s.arg(0, 0))
	case private('?', 'n'):
		if s.arg(0, 0) == 6 {
			s.reply("\x1b[?" + strconv.Itoa(s.row()+1) + ";" + strconv.Itoa(s.cursor.x+1) + "R")
		}
	case private('?', 'u'):
		s.reply("\x1b[?0u") // legacy key encoding
	case private('>', 'q'):
		if s.arg(0, 0) == 0 {
			s.reply("\x1bP>|junctor\x1b\\")
		}
	case private('!', 'p'):
		s.softReset()
		s.changes++
	}
}

func (s *Screen) line() *line { return s.grid.lines[s.cursor.y] }

func (s *Screen) eraseLine(how int) {
	c := &s.cursor
	s.changes++
	switch how {
	case 0:
		s.line().erase(c.x, s.cols)
	case 1:
		s.line().erase(0, c.x+1)
	case 2:
		s.line().erase(0, s.cols)
	}
	c.wrap = false
}

func (s *Screen) eraseDisplay(how int) {
	lines := s.grid.lines
	switch how {
	case 0:
		s.eraseLine(0)
		lines = lines[s.cursor.y+1:]
	case 1:
		s.eraseLine(1)
		lines = lines[:s.cursor.y]
	case 2:
		s.eraseLine(2)
	case 3:
		s.scrolled = scrollback{}
		return
	default:
		return
	}
	s.blank(lines)
}

// shiftLines inserts or deletes n lines at the cursor, inside the scroll region only.
func (s *Screen) shiftLines(insert bool, n int) {
	c := &s.cursor
	if c.y < s.top || c.y > s.bottom {
		return
	}
	if insert {
		s.scrollDown(c.y, n)
	} else {
		s.scrollUp(c.y, n)
	}
	c.x, c.wrap = 0, false
}

// attributes executes SGR.
func (s *Screen) attributes() {
	a := &s.cursor.look
	args := s.args()
	if len(args) == 0 {
		*a = look{}
	}
	for i := 0; i < len(args); {
		n := args[i]
		details := i + 1
		for i++; i < len(args) && s.colon&(1<<i) != 0; i++ { // subparameters after colons
		}
		switch {
		case n == 0:
			*a = look{}
		case n >= 1 && n <= 9 && n != 4 && n != 6:
			a.attr |= attribute(n)
		case n == 4:
			a.attr |= Underline
			if details < i && args[details] == 0 {
				a.attr &^= Underline
			}
		case n == 6:
			a.attr |= Blink
		case n == 21:
			a.attr |= Underline
		case n == 22:
			a.attr &^= Bold | Dim
		case n >= 23 && n <= 29 && n != 26:
			a.attr &^= attribute(n - 20)
		case n >= 30 && n <= 37:
			a.fg = ofPalette | Colour(n-30)
		case n >= 90 && n <= 97:
			a.fg = ofPalette | Colour(n-90+8)
		case n >= 40 && n <= 47:
			a.bg = ofPalette | Colour(n-40)
		case n >= 100 && n <= 107:
			a.bg = ofPalette | Colour(n-100+8)
		case n == 39:
			a.fg = 0
		case n == 49:
			a.bg = 0
		case n == 38, n == 48, n == 58:
			colour, ok := Colour(0), false
			if details < i { // after colons
				colour, ok = colourOf(args[details:i], true)
			} else if i < len(args) { // older form after semicolons
				colour, ok = colourOf(args[i:], false)
				switch args[i] {
				case 2:
					i += 4
				case 5:
					i += 2
				}
			}
			switch {
			case !ok:
			case n == 38:
				a.fg = colour
			case n == 48:
				a.bg = colour
			}
		}
	}
}

// colourOf parses the parameters of a colour: 5 and a palette number, or 2 and three components,
// before which, after colons, there may be the id of a colour space.
func colourOf(args []uint16, colons bool) (Colour, bool) {
	switch {
	case len(args) >= 2 && args[0] == 5 && args[1] <= 255:
		return ofPalette | Colour(args[1]), true
	case len(args) >= 4 && args[0] == 2:
		rgb := args[1:4]
		if colons && len(args) >= 5 {
			rgb = args[2:5]
		}
		if rgb[0] > 255 || rgb[1] > 255 || rgb[2] > 255 {
			return 0, false
		}
		return ofRGB | Colour(rgb[0])<<16 | Colour(rgb[1])<<8 | Colour(rgb[2]), true
	}
	return 0, false
}

// attribute returns the attribute that SGR parameter n sets.
func attribute(n uint16) Attr {
	if n > 5 {
		n-- // 6 is another blinking
	}
	return 1 << (n - 1)
}
