package term

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestColours(t *testing.T) {
	for name, c := range map[string]struct {
		in     string
		fg, bg Colour
	}{
		"none":                        {"A", 0, 0},
		"one of eight":                {"\x1b[31;44mA", ofPalette | 1, ofPalette | 4},
		"a bright one":                {"\x1b[97;100mA", ofPalette | 15, ofPalette | 8},
		"of the palette":              {"\x1b[38;5;200;48;5;7mA", ofPalette | 200, ofPalette | 7},
		"of the palette, colons":      {"\x1b[38:5:200mA", ofPalette | 200, 0},
		"true":                        {"\x1b[38;2;1;2;3;48;2;255;0;9mA", ofRGB | 0x010203, ofRGB | 0xff0009},
		"true, colons and a space":    {"\x1b[48:2::7:8:9mA", 0, ofRGB | 0x070809},
		"true, colons without":        {"\x1b[48:2:7:8:9mA", 0, ofRGB | 0x070809},
		"too large":                   {"\x1b[38;2;256;2;3mA", 0, 0},
		"taken back":                  {"\x1b[31;41;39;49mA", 0, 0},
		"reset":                       {"\x1b[31;41mB\x1b[mA", 0, 0},
		"that of an underline":        {"\x1b[58;2;1;2;3mA", 0, 0},
		"with more than it says":      {"\x1b[38;5;1;1mA", ofPalette | 1, 0},
		"with less than it says":      {"\x1b[38;2;1mA", 0, 0},
		"beside what is not a colour": {"\x1b[>4;31mA", 0, 0},
		"saved with the cursor":       {"\x1b[31m\x1b7\x1b[32m\x1b8A", ofPalette | 1, 0},
		"the last of several is kept": {"\x1b[31;32;33mA", ofPalette | 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(10, 1)
			_, _ = s.Write([]byte(c.in))
			x := strings.Index(s.Row(0), "A")
			if cell := s.grid.lines[0].cells[x]; cell.fg != c.fg || cell.bg != c.bg {
				t.Errorf("got %x on %x, want %x on %x", cell.fg, cell.bg, c.fg, c.bg)
			}
		})
	}
}

// same compares all that a repaint is about.
func same(t *testing.T, want, got *Screen) {
	t.Helper()
	if d := cmp.Diff(want.Text(), got.Text()); d != "" {
		t.Fatalf("diff (-want +got):\n%s", d)
	}
	if !want.Alternate() {
		if d := cmp.Diff(want.Scrollback(), got.Scrollback()); d != "" {
			t.Fatalf("diff (-want +got):\n%s", d)
		}
	}
	if want.Title() != got.Title() || want.Alternate() != got.Alternate() || want.cursor.look != got.cursor.look {
		t.Fatalf("%q %q, %v %v, %+v %+v; want want.Title() = got.Title(), want.Alternate() = got.Alternate(), want.cursor.look = %v",
			want.Title(), got.Title(), want.Alternate(), got.Alternate(), want.cursor.look, got.cursor.look, got.cursor.look)
	}
	for _, n := range modesKept() {
		if want.Mode(n) != got.Mode(n) {
			t.Fatalf("mode %d is %v; want want.Mode(n) = got.Mode(n)", n, got.Mode(n))
		}
	}
	wx, wy, wv := want.Cursor()
	if gx, gy, gv := got.Cursor(); wx != gx || wy != gy || wv != gv {
		t.Fatalf("the cursor is at %d,%d %v, not %d,%d %v; want wx = %v, wy = %v, wv = %v", gx, gy, gv, wx, wy, wv, gx, gy, gv)
	}
	for y := range want.Rows() {
		for x, c := range want.grid.lines[y].cells {
			if g := got.grid.lines[y].cells[x]; g.look != c.look && (c.r != 0 || c.part != whole) {
				t.Fatalf("%d,%d %q is drawn as %+v, not %+v; want not (g.look != c.look && (c.r != 0 || c.part != whole))",
					x, y, c.r, g.look, c.look)
			}
		}
	}
}

func TestARepaintShowsTheSame(t *testing.T) {
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			s := New(r.cols, r.rows)
			at := 0
			for _, mark := range r.marks {
				_, _ = s.Write(r.output[at:mark])
				at = mark
				again := New(r.cols, r.rows)
				_, _ = again.Write([]byte("\x1b[31mwhat was there before\x1b[?1049h"))
				again.scrolled = scrollback{}
				_, _ = again.Write(s.Repaint())
				same(t, s, again)
			}
		})
	}
}

// FuzzRepaint leaves out what joins the character before it, which depends on the order
// in which both were written.
func FuzzRepaint(f *testing.F) {
	for _, seed := range []string{
		"hello\r\n\x1b[31mred\x1b[5;5Hthere", "\x1b[?1049h\x1b[2;4r\x1b[7mx", strings.Repeat("line\r\n", 20),
		"\x1b[10Gab\x1b[2K\x1b[1P\x1b[4h0", "0123456789012345678901234",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for i := range data {
			if data[i] >= 0x80 || data[i] == 0x0e { // the line drawing set holds pictures
				data[i] = ' '
			}
		}
		s := New(20, 6)
		_, _ = s.Write([]byte(strings.ReplaceAll(string(data), "\x1b(0", "")))
		s.setBit(6, false)
		s.cursor.origin = false
		again := New(20, 6)
		_, _ = again.Write(s.Repaint())
		if s.cursor.graphics != again.cursor.graphics {
			return
		}
		same(t, s, again)
	})
}
