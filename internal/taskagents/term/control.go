package term

import "slices"

// control executes a C0 control character.
func (s *Screen) control(b byte) {
	c := &s.cursor
	switch b {
	case '\b':
		c.x, c.wrap = max(0, c.x-1), false
	case '\t':
		s.tab(1)
	case '\n', '\v', '\f':
		s.lineFeed()
		if s.newline {
			c.x = 0
		}
	case '\r':
		c.x, c.wrap = 0, false
	case 0x0E: // SO
		c.shift = 1
	case 0x0F: // SI
		c.shift = 0
	}
}

// lineFeed moves the cursor one line down, and scrolls at the bottom of the region.
func (s *Screen) lineFeed() {
	c := &s.cursor
	c.wrap = false
	switch {
	case c.y == s.bottom:
		s.scroll(1)
	case c.y < s.rows-1:
		c.y++
	}
}

func (s *Screen) reverseLineFeed() {
	c := &s.cursor
	c.wrap = false
	switch {
	case c.y == s.top:
		s.scrollDown(s.top, 1)
	case c.y > 0:
		c.y--
	}
}

// tab moves the cursor n tab stops forward, or back if n is negative.
func (s *Screen) tab(n int) {
	c := &s.cursor
	c.wrap = false
	for ; n > 0 && c.x < s.cols-1; n-- {
		for c.x++; c.x < s.cols-1 && !s.tabs[c.x]; c.x++ {
		}
	}
	for ; n < 0 && c.x > 0; n++ {
		for c.x--; c.x > 0 && !s.tabs[c.x]; c.x-- {
		}
	}
}

// scroll moves the scroll region up by n. Lines that leave the top of the main screen are added to
// the scrollback.
func (s *Screen) scroll(n int) {
	if s.top == 0 && s.grid == &s.main {
		for _, l := range s.main.lines[:min(n, s.bottom+1)] {
			s.scrolled.push(l)
		}
	}
	s.scrollUp(s.top, n)
}

// scrollUp moves the lines from y to the bottom of the region up by n.
func (s *Screen) scrollUp(y, n int) {
	lines := s.grid.lines[y : s.bottom+1]
	n = min(n, len(lines))
	rotate(lines, n)
	s.blank(lines[len(lines)-n:])
}

// scrollDown moves the lines from y to the bottom of the region down by n.
func (s *Screen) scrollDown(y, n int) {
	lines := s.grid.lines[y : s.bottom+1]
	n = min(n, len(lines))
	rotate(lines, len(lines)-n)
	s.blank(lines[:n])
}

// rotate moves the first n lines behind the others.
func rotate(lines []*line, n int) {
	slices.Reverse(lines[:n])
	slices.Reverse(lines[n:])
	slices.Reverse(lines)
}

func (s *Screen) blank(lines []*line) {
	for _, l := range lines {
		l.erase(0, s.cols)
	}
	s.changes++
}

// moveTo moves the cursor to a column and row, or to the nearest allowed position.
func (s *Screen) moveTo(x, y int) {
	from, to := 0, s.rows-1
	if s.cursor.origin {
		from, to = s.top, s.bottom
		y += s.top
	}
	s.cursor.x, s.cursor.y, s.cursor.wrap = min(max(x, 0), s.cols-1), min(max(y, from), to), false
}

// moveBy moves the cursor by columns and rows, within the scroll region.
func (s *Screen) moveBy(dx, dy int) {
	c := &s.cursor
	from, to := 0, s.rows-1
	if c.y >= s.top {
		from = s.top
	}
	if c.y <= s.bottom {
		to = s.bottom
	}
	c.x, c.y, c.wrap = min(max(c.x+dx, 0), s.cols-1), min(max(c.y+dy, from), to), false
}

// row returns the first row for absolute addresses: with DECOM they count from the scroll region.
func (s *Screen) row() int {
	if s.cursor.origin {
		return s.cursor.y - s.top
	}
	return s.cursor.y
}

func (s *Screen) save() { s.grid.saved = s.cursor }

func (s *Screen) restore() {
	s.cursor = s.grid.saved
	if s.cursor.origin {
		s.cursor.y = min(max(s.cursor.y, s.top), s.bottom)
	}
}

// escapeSequence executes ESC, an optional intermediate byte, and b.
func (s *Screen) escapeSequence(b byte) {
	c := &s.cursor
	switch s.inter {
	case 0:
	case '(', ')':
		c.graphics[s.inter-'('] = b == '0'
		return
	default:
		return
	}
	switch b {
	case '7':
		s.save()
	case '8':
		s.restore()
	case 'D':
		s.lineFeed()
	case 'E':
		s.lineFeed()
		c.x = 0
	case 'H':
		s.tabs[c.x] = true
	case 'M':
		s.reverseLineFeed()
	case 'Z':
		s.reply("\x1b[?62;22c")
	case 'c':
		s.reset()
	}
}

// setMode sets or resets a private mode.
func (s *Screen) setMode(n int, on bool) {
	switch n {
	case 6:
		s.cursor.origin = on
		s.moveTo(0, 0)
		return
	case 1048:
		if on {
			s.save()
		} else {
			s.restore()
		}
		return
	case 47, 1047, 1049:
		s.alternate(n, on)
		return
	}
	if n == 25 && on != s.Mode(25) {
		s.changes++
	}
	s.setBit(n, on)
}

// alternate shows the alternate screen or the main one. 1049 saves and restores the
// cursor and begins blank; 1047 blanks at the end; 47 does neither.
func (s *Screen) alternate(mode int, on bool) {
	if on == s.Alternate() {
		return
	}
	s.changes++
	s.cursor.wrap = false
	if on {
		if mode == 1049 {
			s.save()
			s.blank(s.alt.lines)
		}
		s.grid = &s.alt
		return
	}
	if mode == 1047 {
		s.blank(s.alt.lines)
	}
	s.grid = &s.main
	if mode == 1049 {
		s.restore()
	}
}
