package term

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const family = "👨\u200d👩\u200d👧"

func TestWhatIsWrittenShows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, stream, want string // of a screen of 10×4
	}{
		{"text and lines", "one\r\ntwo", "one\ntwo"},
		{"a line feed keeps the column", "one\ntwo", "one\n   two"},
		{"in mode 20 a line feed returns", "\x1b[20hone\ntwo", "one\ntwo"},
		{"columns jumped over are blank", "Do\x1b[5Gyou", "Do  you"},
		{"a full line wraps with the next character", "0123456789\x1b[1;1HX", "X123456789"},
		{"a full line wraps", "0123456789ab", "0123456789\nab"},
		{"a return after a full line stays in it", "0123456789\rX", "X123456789"},
		{"without autowrap the last column is written over", "\x1b[?7l0123456789ab", "012345678b"},
		{"the bottom scrolls", "1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5"},
		{"backspace", "abc\b\bX", "aXc"},
		{"backspace at the left edge stays", "\b\bX", "X"},
		{"tab", "a\tb", "a       b"},
		{"tab stops can be set and cleared", "\x1b[3g\x1b[4G\x1bH\r\tX", "   X"},
		{"back tab", "\x1b[10G\x1b[ZX", "        X"},
		{"address", "\x1b[2;3Hx", "\n  x"},
		{"address outside is clamped", "\x1b[99;99Hx\x1b[0;0Hy", "y\n\n\n         x"},
		{"moves", "\x1b[3;3H\x1b[2Aa\x1b[Bb\x1b[3Dc\x1b[2Cd", "  a\n c bd"},
		{"next and previous line", "ab\x1b[2Ec\x1b[Fd", "ab\nd\nc"},
		{"row address keeps the column", "ab\x1b[3dc", "ab\n\n  c"},
		{"next line", "ab\x1bEc", "ab\nc"},
		{"erase to the end of the line", "abcdef\x1b[3G\x1b[K", "ab"},
		{"erase from the start of the line", "abcdef\x1b[3G\x1b[1K", "   def"},
		{"erase the line", "abcdef\x1b[2KX", "      X"},
		{"erase below", "aaa\r\nbbb\r\nccc\x1b[2;2H\x1b[J", "aaa\nb"},
		{"erase above", "aaa\r\nbbb\r\nccc\x1b[2;2H\x1b[1J", "\n  b\nccc"},
		{"erase all", "aaa\r\nbbb\x1b[2JX", "\n   X"},
		{"erase characters", "abcdef\x1b[2G\x1b[3X", "a   ef"},
		{"insert characters", "abcdef\x1b[2G\x1b[2@", "a  bcdef"},
		{"insert pushes characters out", "0123456789\x1b[2G\x1b[3@", "0   123456"},
		{"delete characters", "abcdef\x1b[2G\x1b[2P", "adef"},
		{"delete more than there are", "abcdef\x1b[2G\x1b[99P", "a"},
		{"insert mode", "abc\r\x1b[4hXY\x1b[4lZ", "XYZbc"},
		{"insert lines", "1\r\n2\r\n3\r\n4\x1b[2;1H\x1b[LX", "1\nX\n2\n3"},
		{"delete lines", "1\r\n2\r\n3\r\n4\x1b[2;1H\x1b[2MX", "1\nX"},
		{"scroll up and down", "1\r\n2\r\n3\r\n4\x1b[2S\x1b[T", "\n3\n4"},
		{"a region scrolls alone", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\nX", "1\n3\nX\n4"},
		{"below the region nothing scrolls", "\x1b[1;2r\x1b[4;1Ha\nb", "\n\n\nab"},
		{"reverse line feed scrolls at the top of the region", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[2;1H\x1bMX", "1\nX\n2\n4"},
		{"moves stop at the region", "\x1b[2;3r\x1b[2;1H\x1b[9AX\x1b[9BY", "\nX\n Y"},
		{"with origin mode rows count from the region", "\x1b[2;3r\x1b[?6hX\x1b[9;1HY", "\nX\nY"},
		{"lines outside the region are not inserted", "1\r\n2\r\n3\x1b[2;3r\x1b[LX", "X\n2\n3"},
		{"a region without rows is none", "1\x1b[3;2r\nX", "1\n X"},
		{"the cursor is saved and restored", "ab\x1b7\x1b[3;3Hc\x1b8d", "abd\n\n  c"},
		{"so by the ANSI sequences", "ab\x1b[s\x1b[3;3Hc\x1b[ud", "abd\n\n  c"},
		{"kitty's keyboard is not a restoring", "ab\x1b[s\x1b[3;3Hc\x1b[>1u\x1b[<u\x1b[=1u\x1b[?ud", "ab\n\n  cd"},
		{"the alternate screen comes and goes", "ab\x1b[?1049hX\x1b[?1049lc", "abc"},
		{"the alternate screen is blank at first", "ab\x1b[?1049hX\x1b[?1049l\x1b[?1049hY", "  Y"},
		{"mode 47 keeps the alternate screen", "ab\x1b[?47hX\x1b[?47l\x1b[?47hY", "  XY"},
		{"mode 1047 blanks it at the end", "ab\x1b[?1047hX\x1b[?1047l\x1b[?1047hY", "   Y"},
		{"repeat", "a\x1b[3b", "aaaa"},
		{"line drawing", "\x1b(0lqk\x1b(Bx", "┌─┐x"},
		{"line drawing in G1", "\x1b)0a\x0eq\x0fq", "a─q"},
		{"reset", "abc\x1b[?1049h\x1b[2;3rX\x1bcY", "Y"},
		{"colours are not attributes", "\x1b[38;2;1;4;7;1mA\x1b[38:2::7:7:7mB\x1b[48;5;7mC\x1b[4:3mD", "ABCD"},
		{"xterm's keyboard is not an attribute", "\x1b[>4;2mA", "A"},
		{"controls work inside sequences", "ab\x1b[\r2CX", "abX"},
		{"an escape begins anew", "\x1b[3\x1b[2GX", " X"},
		{"cancel ends a sequence", "\x1b[3\x18X", "X"},
		{"sequences of strangers are read over", "\x1b[1;2$xa\x1b[?1;2;3wb\x1b[<1;2;3Mc\x1b%Gd\x1b#8e\x1b[2 qf", "abcdef"},
		{"malformed sequences are read over", "\x1b[1?ha\x1b[ 1qb\x1b[!!pc", "abc"},
		{"strings are read over", "a\x1bPq#0~\x1b\\b\x1b_Gx\x1b\\c\x1b^p\x1b\\d\x1bXs\x1b\\e", "abcde"},
		{"commands are read over", "a\x1b]0;t\ab\x1b]8;;https://example.test\x1b\\c\x1b]8;;\x1b\\", "abc"},
		{"a sequence aborts a command", "\x1b]0;title\x1b[3GX", "  X"},
		{"invalid UTF-8", "a\xffb\xe2\x9cc\xc0\xafd", "a�b��c��d"},
		{"a character in a sequence ends it", "\x1b[3é", "é"},
		{"C1 controls are nothing", "a\u0085\u009bb", "ab"},
		{"accents belong to their letter", "e\u0301x", "e\u0301x"},
		{"an accent in the last column", "012345678e\u0301x", "012345678e\u0301\nx"},
		{"accents without a letter are dropped", "\u0301x", "x"},
		{"wide characters take two columns", "日本\x1b[5Gx", "日本x"},
		{"a wide character does not fit in one column", "012345678日", "012345678\n日"},
		{"writing on the left half removes the right", "日本\x1b[1Gx", "x 本"},
		{"writing on the right half removes the left", "日本\x1b[4Gx", "日 x"},
		{"erasing half removes both", "日本\x1b[2G\x1b[K", ""},
		{"deleting half removes both", "日本x\x1b[2G\x1b[P", " 本x"},
		{"inserting between halves removes both", "日本\x1b[2G\x1b[@", "   本"},
		{"a wide character pushed half out is gone", "01234567日\x1b[1G\x1b[@", " 01234567"},
		{"emoji", "👍\x1b[3Gx", "👍x"},
		{"a joined emoji is one", family + "\x1b[3Gx", family + "x"},
		{"a joined sign is one", "🧔\u200d♂\ufe0f\x1b[3Gx", "🧔\u200d♂\ufe0fx"},
		{"a skin tone belongs to its emoji", "👍🏽\x1b[3Gx", "👍🏽x"},
		{"a flag is one", "🇩🇪🇫🇷\x1b[5Gx", "🇩🇪🇫🇷x"},
		{"a sign drawn as emoji is wide", "⚠\ufe0fx\x1b[3Gy", "⚠\ufe0fy"},
		{"a sign drawn as text is narrow", "⚠x", "⚠x"},
		{"no-break spaces stay", "❯\u00a0", "❯\u00a0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := New(10, 4)
			s.Write([]byte(c.stream))
			check(t, s)
			if diff := cmp.Diff(c.want, s.Text()); diff != "" {
				t.Errorf("%q shows (-want +got):\n%s", c.stream, diff)
			}
		})
	}
}

func TestQueriesAreAnswered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, stream, want string }{
		{"cursor", "\x1b[3;5H\x1b[6n", "\x1b[3;5R"},
		{"cursor behind a full line", "0123456789\x1b[6n", "\x1b[1;10R"},
		{"cursor in a region", "\x1b[2;3r\x1b[?6h\x1b[2;1H\x1b[6n", "\x1b[2;1R"},
		{"cursor, extended", "\x1b[?6n", "\x1b[?1;1R"},
		{"status", "\x1b[5n", "\x1b[0n"},
		{"attributes", "\x1b[c\x1b[0c\x1bZ", "\x1b[?62;22c\x1b[?62;22c\x1b[?62;22c"},
		{"keyboard", "\x1b[?u", "\x1b[?0u"},
		{"name", "\x1b[>0q\x1b[>q", "\x1bP>|junctor\x1b\\\x1bP>|junctor\x1b\\"},
		{"colours", "\x1b]10;?\x1b\\\x1b]11;?\a", "\x1b]10;rgb:ffff/ffff/ffff\x1b\\\x1b]11;rgb:0000/0000/0000\a"},
		{"answers are not questions", "\x1b[1;1R\x1b[?62;22c\x1b[?0u", "\x1b[?0u"},
		{"what else has those letters", "\x1b[1c\x1b[7n\x1b[?1n\x1b[>1q\x1b[2 q\x1b]11;#ffffff\a", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got strings.Builder
			s := New(10, 4)
			s.Reply = func(b []byte) { got.Write(b) }
			s.Write([]byte(c.stream))
			if got.String() != c.want {
				t.Errorf("%q is answered %q, want %q", c.stream, got.String(), c.want)
			}
			New(10, 4).Write([]byte(c.stream)) // and a listener is not required
		})
	}
}

func TestCommandsReachTheReader(t *testing.T) {
	t.Parallel()
	type command struct {
		N    int
		Data string
	}
	long := strings.Repeat("x", MaxSequence)
	for _, c := range []struct {
		name, stream, title string
		want                []command
	}{
		{"title", "\x1b]0;✳ Claude Code\a", "✳ Claude Code", []command{{0, "✳ Claude Code"}}},
		{
			"titles with every byte of UTF-8", "\x1b]2;✜ \u079c \U0001F71C\x1b\\", "✜ \u079c \U0001F71C",
			[]command{{2, "✜ \u079c \U0001F71C"}},
		},
		{"title without controls", "\x1b]2;a\u0085b\x01c\xffd\a", "abc\uFFFDd", []command{{2, "a\u0085bc\xffd"}}},
		{"progress", "\x1b]9;4;3;\a", "", []command{{9, "4;3;"}}},
		{"prompts", "\x1b]133;A\a\x1b]133;D;0\a", "", []command{{133, "A"}, {133, "D;0"}}},
		{"notices", "\x1b]777;notify;T;body\a", "", []command{{777, "notify;T;body"}}},
		{"states", "\x1b]7501;state=idle:app=codex\x1b\\", "", []command{{7501, "state=idle:app=codex"}}},
		{"links", "\x1b]8;id=1;https://example.test/\a", "", []command{{8, "id=1;https://example.test/"}}},
		{"no data", "\x1b]104\a", "", []command{{104, ""}}},
		{"the longest", "\x1b]9;" + long[2:] + "\a", "", []command{{9, long[2:]}}},
		{"too long", "\x1b]9;" + long + "\a\x1b]9;x\a", "", []command{{9, "x"}}},
		{"not a number", "\x1b]L;x\a\x1b]\a\x1b];x\a\x1b]9x\a\x1b]99999999999999999999;x\a", "", nil},
		{"cut off", "\x1b]9;x\x18\x1b]9;y\x1b[m\x1b]9;z", "", nil},
		{"other strings", "\x1bP0;x\x1b\\\x1b_0;x\a\x1b\\", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []command
			s := New(10, 4)
			s.OSC = func(n int, data string) { got = append(got, command{n, data}) }
			s.Write([]byte(c.stream))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
			if s.Title() != c.title {
				t.Errorf("the title is %q, want %q", s.Title(), c.title)
			}
		})
	}
}

func TestModesAreKept(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 6, 25, 1000, 1002, 1003, 1004, 1006, 1049, 1047, 47, 2004, 2026, 2031} {
		s := New(10, 4)
		set := "\x1b[?" + strings.Replace("N;5000h", "N", strconv.Itoa(n), 1)
		s.Write([]byte(set))
		if !s.Mode(n) || s.Mode(5000) || s.Mode(-1) {
			t.Errorf("mode %d is not set by %q; want s.Mode(n), not s.Mode(5000), not s.Mode(-1)", n, set)
		}
		s.Write([]byte(strings.Replace(set, "h", "l", 1)))
		if s.Mode(n) {
			t.Errorf("mode %d stays; want not s.Mode(n)", n)
		}
		s.Write([]byte(set + "\x1bc"))
		if s.Mode(n) != (n == 25) {
			t.Errorf("mode %d after a reset: %t; want s.Mode(n) = (n == 25)", n, s.Mode(n))
		}
	}
}

func TestSynchronisedUpdatesAndTheCursorAreSeen(t *testing.T) {
	t.Parallel()
	s := New(10, 4)
	if _, _, visible := s.Cursor(); !visible || s.Updating() || s.Alternate() {
		t.Error("a new screen hides its cursor, updates or is the alternate one")
	}
	s.Write([]byte("\x1b[?2026h\x1b[?25lab"))
	if x, y, visible := s.Cursor(); x != 2 || y != 0 || visible || !s.Updating() {
		t.Errorf("cursor %d,%d visible %t, updating %t; want x = 2, y = 0, visible = false, s.Updating()", x, y, visible, s.Updating())
	}
	s.Write([]byte("\x1b[?2026l\x1b[?25h\x1b[?1049h"))
	if _, _, visible := s.Cursor(); !visible || s.Updating() || !s.Alternate() {
		t.Error("the update has ended, the cursor shows on the alternate screen")
	}
}

func TestAttributesAreKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sgr  string
		want Attr
	}{
		{"1", Bold},
		{"1;2;3;4;5;7;8;9", Bold | Dim | Italic | Underline | Blink | Reverse | Conceal | Strike},
		{"1;2;7;22", Reverse},
		{"7;27", 0},
		{"3;4;5;8;9;23;24;25;28;29", 0},
		{"7;0", 0},
		{"7;", 0},
		{"4:3", Underline},
		{"4;4:0", 0},
		{"38;5;7", 0},
		{"38;5;1;7", Reverse},
		{"38;2;7;7;7", 0},
		{"48;2;1;2;3;7", Reverse},
		{"38:2::7:7:7;1", Bold},
		{"58:5:7;48:2:7:7:7;7", Reverse},
		{"38;2", 0},
		{"38", 0},
		{"97;107;7", Reverse},
		{strings.Repeat("1;", 40) + "7", Bold},
	} {
		s := New(10, 4)
		s.Write([]byte("\x1b[" + c.sgr + "mx"))
		if got := s.Attr(0, 0); got != c.want {
			t.Errorf("SGR %s: %08b, want %08b", c.sgr, got, c.want)
		}
		if got := s.Inverse(0); got != (c.want&Reverse != 0) {
			t.Errorf("SGR %s: the row is inverse %t; want got = (c.want&Reverse != 0)", c.sgr, got)
		}
	}
	s := New(10, 4)
	s.Write([]byte("\x1b[7m "))
	if s.Inverse(0) || s.Inverse(-1) || s.Inverse(4) || s.Attr(10, 0) != 0 {
		t.Error("a blank or nothing is text in reverse video; want not s.Inverse(0), not s.Inverse(-1), not s.Inverse(4), " +
			"s.Attr(10, 0) = 0")
	}
}

func TestWhatLeavesTheTopIsKept(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, stream string
		want         []string
	}{
		{"lines", "1\r\n2\r\n3\r\n4\r\n5", []string{"1", "2"}},
		{"scrolling", "1\r\n2\x1b[2S", []string{"1", "2"}},
		{"a region at the top", "1\r\n2\r\n3\x1b[1;2r\x1b[2;1H\n", []string{"1"}},
		{"not of a region below", "1\r\n2\r\n3\x1b[2;3r\x1b[3;1H\n", []string{}},
		{"not deleted lines", "1\r\n2\x1b[H\x1b[M", []string{}},
		{"not of the alternate screen", "\x1b[?1049h1\r\n2\r\n3\r\n4", []string{}},
		{"not after it was erased", "1\r\n2\r\n3\r\n4\x1b[3J\r\n5", []string{"2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := New(10, 3)
			s.Write([]byte(c.stream))
			if diff := cmp.Diff(c.want, s.Scrollback()); diff != "" {
				t.Errorf("scrolled back (-want +got):\n%s", diff)
			}
		})
	}
}

func TestResizeKeepsTheTextItCan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, stream string
		cols, rows   int
		want         string
		back         []string
	}{
		{"wider and higher", "ab\r\ncd", 20, 9, "ab\ncd", []string{}},
		{"narrower", "abcdef", 3, 4, "abc", []string{}},
		{"narrower through a wide character", "ab日本", 3, 4, "ab", []string{}},
		{"lower, below the cursor is free", "1\r\n2", 10, 2, "1\n2", []string{}},
		{"lower, the top is scrolled back", "1\r\n2\r\n3\r\n4", 10, 2, "3\n4", []string{"1", "2"}},
		{"lower in the alternate screen", "1\r\n2\r\n3\r\n4\x1b[?1049hX", 10, 1, " X", []string{"1", "2", "3"}},
		{"the same", "ab", 10, 4, "ab", []string{}},
		{"nothing is one", "ab", 0, -5, "a", []string{}},
		{"too wide is the widest", "ab", 1 << 30, 4, "ab", []string{}},
		{"too high is the highest", "ab", 10, 1 << 30, "ab", []string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := New(10, 4)
			s.Write([]byte(c.stream))
			s.Resize(c.cols, c.rows)
			check(t, s)
			if s.Cols() != min(max(c.cols, 1), MaxSize) || s.Rows() != min(max(c.rows, 1), MaxSize) {
				t.Errorf("it has %d×%d; want s.Cols() = min(max(c.cols, 1), MaxSize), s.Rows() = min(max(c.rows, 1), MaxSize)",
					s.Cols(), s.Rows())
			}
			if diff := cmp.Diff(c.want, s.Text()); diff != "" {
				t.Errorf("shows (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.back, s.Scrollback()); diff != "" {
				t.Errorf("scrolled back (-want +got):\n%s", diff)
			}
			s.Write([]byte("\x1b[99;99Hx\ny\t日\x1b[?1049l\x1b[H日"))
			check(t, s)
		})
	}
}

func TestChangesAreCounted(t *testing.T) {
	t.Parallel()
	s := New(10, 4)
	for _, step := range []struct {
		name, stream string
		changes      bool
	}{
		{"text", "ab", true},
		{"a moved cursor", "\x1b[3;3H", true},
		{"a cursor that stays", "\x1b[3;3H", false},
		{"attributes to come", "\x1b[1;38;5;7m", false},
		{"a title", "\x1b]0;t\a", true},
		{"the same title", "\x1b]0;t\a", false},
		{"a hidden cursor", "\x1b[?25l", true},
		{"a cursor that is hidden already", "\x1b[?25l", false},
		{"a synchronised update", "\x1b[?2026h\x1b[?2026l", false},
		{"a query", "\x1b[6n\x1b[c", false},
		{"scrolling", "\x1b[S", true},
		{"erasing", "\x1b[H\x1b[J", true},
		{"a mark", "\x1b[He\u0301", true},
		{"the alternate screen", "\x1b[?1049h", true},
		{"it again", "\x1b[?1049h", false},
		{"half a sequence", "\x1b[", false},
		{"the rest of it", "2J", true},
	} {
		before := s.Changes()
		s.Write([]byte(step.stream))
		if got := s.Changes() > before; got != step.changes || s.Changes() < before {
			t.Errorf("%s: changed %t, want %t", step.name, got, step.changes)
		}
	}
	before := s.Changes()
	if s.Resize(20, 4); s.Changes() == before {
		t.Errorf("another size is not a change; want s.Changes() other than %v", before)
	}
}
