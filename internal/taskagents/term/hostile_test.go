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
	long := func(s string) string { return strings.Repeat(s, 50_000/len(s)) }
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
		f.Add([]byte(program(random, 20)), seed)
		f.Add([]byte(plainProgram(random, 10)), seed)
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
			t.Fatalf("%q in one piece:\n%s\nin pieces:\n%s\nwant a = %v", stream, a, b, b)
		}
		if got.String() != want.String() {
			t.Fatalf("%q is answered %q in one piece, %q in pieces; want got.String() = want.String()",
				stream, want.String(), got.String())
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

// program writes n random things of all that a screen knows.
func program(random *rand.Rand, n int) string {
	things := []string{
		"a", "bc", "hello world", "é", "─", "日", "本語", "e\u0301", family, "🇩🇪", "⚠\ufe0f", "👍🏽", "\xff", "\xe2\x9c",
		"\u0085",
		"\r", "\n", "\b", "\t", "\x0e", "\x0f", "\x18", "\x1b", "\x1b7", "\x1b8", "\x1bD", "\x1bE", "\x1bH", "\x1bM", "\x1bc", "\x1b(0", "\x1b(B",
		"\x1b[m", "\x1b[1;7m", "\x1b[4:0m", "\x1b[38;2;1;2;3m", "\x1b[4h", "\x1b[4l", "\x1b[20h", "\x1b[!p", "\x1b[6n", "\x1b[r", "\x1b[3g",
		"\x1b]0;t\a", "\x1b]8;;u\x1b\\", "\x1b]11;?\a", "\x1bPq\x1b\\", "\x1b[>4;2m", "\x1b[>1u", "\x1b[<u", "\x1b[?u",
	}
	modes := []int{1, 6, 7, 25, 47, 1047, 1048, 1049, 2004, 2026}
	counted := "@ABCDEFGIJKLMPSTXZbd"
	var b strings.Builder
	for range n {
		switch k := random.IntN(10); {
		case k < 6:
			b.WriteString(things[random.IntN(len(things))])
		case k < 8:
			fmt.Fprintf(&b, "\x1b[%d%c", random.IntN(6), counted[random.IntN(len(counted))])
		case k == 8:
			fmt.Fprintf(&b, "\x1b[%d;%d%c", random.IntN(9), random.IntN(20), "Hr"[random.IntN(2)])
		default:
			fmt.Fprintf(&b, "\x1b[?%d%c", modes[random.IntN(len(modes))], "hl"[random.IntN(2)])
		}
	}
	return b.String()
}
