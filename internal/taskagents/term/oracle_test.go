package term

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hinshun/vt10x"
)

var keyboard = regexp.MustCompile(`\x1b\[[<>=?][0-9;]*[um]`)

// oracle shows the stream on another emulator. That one takes every CSI … u for
// "restore the cursor" and every CSI … m for attributes, also those of kitty's and of
// xterm's keyboard, which leaves old text on the screen of Gemini and of Pi: they are
// taken out before.
func oracle(cols, rows int, stream []byte) (text string, x, y int) {
	v := vt10x.New(vt10x.WithSize(cols, rows))
	v.Write(keyboard.ReplaceAll(stream, nil))
	lines := strings.Split(v.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	at := v.Cursor()
	return strings.TrimRight(strings.Join(lines, "\n"), "\n"), at.X, at.Y
}

func TestAnotherEmulatorShowsTheSameOfRealCLIs(t *testing.T) {
	t.Parallel()
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for _, end := range r.marks {
				compare(t, r.cols, r.rows, r.output[:end])
			}
		})
	}
}

// TestAnotherEmulatorShowsTheSameOfPrograms draws at random, as far as the other knows
// what a VT220 does. It does not know, and the sequences below avoid:
//   - characters that take no column or two, origin and insert mode, CSI b;
//   - that vertical moves stop at the scroll region: a program has one or the other;
//   - that erasing, inserting, deleting, ESC D and ESC M end a pending wrap, and saving
//     keeps it: the cursor is moved before them;
//   - that inserting and deleting lines go to the first column: it is there before;
//   - CSI 1J in the second row, where it leaves the first.
func TestAnotherEmulatorShowsTheSameOfPrograms(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for i := 0; i < 1000 && !t.Failed(); i++ {
		compare(t, 2+random.IntN(19), 6, []byte(plainProgram(random, 60)))
	}
}

func compare(t *testing.T, cols, rows int, stream []byte) {
	t.Helper()
	s := New(cols, rows)
	s.Write(stream)
	check(t, s)
	text, x, y := oracle(cols, rows, stream)
	if diff := cmp.Diff(text, s.Text()); diff != "" {
		t.Errorf("after …%q the screens differ (-other +ours):\n%s\nwant diff = \"\"", stream[max(0, len(stream)-300):], diff)
	}
	if x != s.cursor.x || y != s.cursor.y {
		t.Errorf("after …%q the cursor is at %d,%d, of the other at %d,%d; want x = %v, y = %v",
			stream[max(0, len(stream)-300):], s.cursor.x, s.cursor.y, x, y, s.cursor.x, s.cursor.y)
	}
}

func plainProgram(random *rand.Rand, n int) string {
	forms := []string{
		"\x1b[%dG\x1b[%d@", "\x1b[%dG\x1b[%dP", "\x1b[%dG\x1b[%dX", "\x1b[%dd\r\x1b[%dL", "\x1b[%dd\r\x1b[%dM",
		"\x1b[%dC\x1b[%dD", "\x1b[%dS\x1b[%dT", "\x1b[%d;%dH", "\x1b[%dI\x1b[%dZ", "\x1b[%dm\x1b[38;5;%dm",
	}
	text := []string{
		"a", "bc", "hello world", "é", "─", "\r", "\n", "\r\n", "\b", "\t", "\x1b[3G\x1bD", "\x1b[5G\x1bM", "\x1bE", "\x1b8", "\x1b[u",
		"\x1b[?25l", "\x1bH",
		"\x1b(0q\x1b(B", "\x1b[m", "\x1b[5G\x1b7", "\x1b[3G\x1b[s", "\x1b[4G\x1b[K", "\x1b[7G\x1b[1K", "\x1b[2G\x1b[2K", "\x1b[9G\x1b[J",
		"\x1b[1G\x1b[2J",
		"\x1b]0;title\a", "\x1bP1;2q\x1b\\", "\x1b[6n", "\x1b[1;2$x",
	}
	vertical := []string{"\x1b[%dA\x1b[%dB", "\x1b[%dE\x1b[%dF"}
	if random.IntN(2) == 0 {
		vertical = []string{"\x1b[1;%dr\x1b[%d;1H", "\x1b[2;%dr\x1b[%dd"}
	}
	var b strings.Builder
	for range n {
		switch k := random.IntN(10); {
		case k < 6:
			b.WriteString(text[random.IntN(len(text))])
		case k < 9:
			fmt.Fprintf(&b, forms[random.IntN(len(forms))], 1+random.IntN(7), 1+random.IntN(7))
		default:
			fmt.Fprintf(&b, vertical[random.IntN(len(vertical))], 3+random.IntN(4), 1+random.IntN(6))
		}
	}
	return b.String()
}
