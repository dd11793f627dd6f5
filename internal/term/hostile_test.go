package term

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestNoInputIsTooMuch writes what only an attacker would, and holds the bounds.
func TestNoInputIsTooMuch(t *testing.T) {
	t.Parallel()
	long := func(s string) string { return strings.Repeat(s, 200_000/len(s)) }
	for _, c := range []struct{ name, stream string }{
		{"a title without end", "\x1b]0;" + long("x")},
		{"a long title", "\x1b]0;" + strings.Repeat("✳", MaxSequence/3-1) + "\a"},
		{"many commands", long("\x1b]0;\x1b]8;;x\x1b\\")},
		{"a string without end", "\x1bP" + long("x")},
		{"a sequence without end", "\x1b[" + long("1;")},
		{"a parameter without end", "\x1b[" + long("9") + "A\x1b[" + long("9") + "S"},
		{"colons", "\x1b[38" + long(":2") + "m"},
		{"marks on one cell", "e" + long("\u0301")},
		{"joined without end", long("👨\u200d")},
		{"flags without end", long("🇩")},
		{"marks on every cell", long("e" + strings.Repeat("\u0301", 30))},
		{"huge counts", long("\x1b[65535S\x1b[65535T\x1b[65535L\x1b[65535M\x1b[65535@\x1b[65535P\x1b[65535X\x1b[65535I\x1b[65535Z")},
		{"huge moves", long("\x1b[65535A\x1b[65535B\x1b[65535C\x1b[65535D\x1b[65535;65535H\x1b[65535G\x1b[65535d\x1b[65535E\x1b[65535F")},
		{"repeats", "日" + long("\x1b[65535b")},
		{"line feeds", long("\n")},
		{"regions and origins", long("\x1b[2;3r\x1b[?6h\x1b7\x1b[r\x1b8\x1b[9;9H\x1b[5;2r\n\x1bM")},
		{"modes", long("\x1b[?65535h\x1b[?4095h\x1b[?0h\x1b[4h日x\x1b[4l")},
		{"resets", long("\x1bcx\x1b[!p日\x1b[?1049h")},
		{"escapes", long("\x1b")},
		{"NUL and DEL", long("\x00\x7f")},
		{"cut characters", long("\xf0\x9f\x91")},
		{"continuations", long("\x9c\x9b1A\x90")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range [][2]int{{1, 1}, {2, 1}, {1, 2}, {3, 2}, {120, 40}} {
				s := New(size[0], size[1])
				s.Write([]byte(c.stream))
				check(t, s)
				s.Resize(7, 3)
				s.Write([]byte(c.stream[:1000]))
				check(t, s)
			}
		})
	}
}

// FuzzScreen holds that no bytes break a screen, and that it does not matter where they
// are cut.
func FuzzScreen(f *testing.F) {
	for _, r := range recordings(f) {
		for from := 0; from < len(r.output); from += 4000 { // short inputs mutate better
			f.Add(r.output[from:min(from+400, len(r.output))], uint64(from))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for seed := range uint64(50) {
		f.Add([]byte(program(random, 20, true)), seed)
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		cols, rows := 1+random.IntN(30), 1+random.IntN(10)
		whole, cut := New(cols, rows), New(cols, rows)
		var got, want strings.Builder
		listen(whole, &want)
		listen(cut, &got)
		whole.Write(stream)
		check(t, whole)
		for rest := stream; len(rest) > 0; {
			n := 1 + random.IntN(min(len(rest), 9))
			cut.Write(rest[:n])
			rest = rest[n:]
		}
		if a, b := picture(whole), picture(cut); a != b {
			t.Fatalf("%q in one piece:\n%s\nin pieces:\n%s", stream, a, b)
		}
		if got.String() != want.String() {
			t.Fatalf("%q is answered %q in one piece, %q in pieces", stream, want.String(), got.String())
		}
		whole.Resize(1+random.IntN(30), 1+random.IntN(10))
		check(t, whole)
		whole.Write(stream)
		check(t, whole)
	})
}

func listen(s *Screen, to *strings.Builder) {
	s.Reply = func(b []byte) { to.Write(b) }
	s.OSC = func(n int, data string) { fmt.Fprintf(to, "%d;%s\n", n, data) }
}

// program writes n random things; wide ones with characters of any width, and all else
// that the oracle of the differential test does not know or gets wrong.
func program(random *rand.Rand, n int, wide bool) string {
	plain := []string{
		"a", "bc", "hello world", "é", "─", "\r", "\n", "\r\n", "\b", "\t", "\x1b7", "\x1b8", "\x1bD", "\x1bM", "\x1bE",
		"\x1b[m", "\x1b[1;7m", "\x1b[38;2;1;2;3m", "\x1b[K", "\x1b[2K", "\x1b[J", "\x1b[2J", "\x1b[?25l", "\x1b[?25h", "\x1b(B", "\x1bH",
	}
	counted := "@ABCDEFGIJKLMPSTXZd"
	others := []string{"日", "本語", "e\u0301", family, "🇩🇪", "⚠\ufe0f", "\xff", "\x1b[?1049h", "\x1b[?1049l", "\x1b[4h", "\x1b[4l", "\x1b[?7l", "\x1b[?7h", "\x1b[?6h", "\x1b[?6l", "\x1b[!p", "\x1bc", "\x1b]0;t\a", "\x1b[6n", "\x1b[3b", "\x1b(0"}
	var b strings.Builder
	for range n {
		switch k := random.IntN(10); {
		case k < 5:
			b.WriteString(plain[random.IntN(len(plain))])
		case k < 7:
			fmt.Fprintf(&b, "\x1b[%d%c", 1+random.IntN(5), counted[random.IntN(len(counted))])
		case k == 7:
			fmt.Fprintf(&b, "\x1b[%d;%dH", 1+random.IntN(9), 1+random.IntN(20))
		case k == 8:
			top := 1 + random.IntN(4)
			fmt.Fprintf(&b, "\x1b[%d;%dr", top, top+1+random.IntN(4))
		case wide:
			b.WriteString(others[random.IntN(len(others))])
		}
	}
	return b.String()
}
