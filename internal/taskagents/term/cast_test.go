package term

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// recording is what one CLI printed up to the mark "end".
type recording struct {
	name       string
	cols, rows int
	output     []byte
	marks      []int // where in output another state begins; the last is its end
}

func recordings(t testing.TB) []recording {
	t.Helper()
	files, err := filepath.Glob("testdata/casts/*.cast")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d recordings: %v; want no error, len(files) other than 0", len(files), err)
	}
	var out []recording
	for _, name := range files {
		out = append(out, load(t, name))
	}
	return out
}

func load(t testing.TB, name string) recording {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := recording{name: strings.TrimSuffix(filepath.Base(name), ".cast")}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for first := true; lines.Scan(); first = false {
		if first {
			var head struct{ Cols, Rows int }
			if err := json.Unmarshal(lines.Bytes(), &head); err != nil {
				t.Fatal(err)
			}
			r.cols, r.rows = head.Cols, head.Rows
			continue
		}
		var event [3]any
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		data := event[2].(string)
		switch event[1] {
		case "o":
			r.output = append(r.output, data...)
		case "m":
			if r.marks = append(r.marks, len(r.output)); data == "end" {
				return r
			}
		}
	}
	t.Fatalf("%s: no end", name)
	return r
}

// picture is all that shows, and what else a reader of the screen asks for.
func picture(s *Screen) string {
	var b strings.Builder
	x, y, visible := s.Cursor()
	fmt.Fprintf(&b, "title: %s\ncursor: %d,%d %t\nmodes:", s.Title(), x, y, visible)
	for n := range maxMode {
		if s.Mode(n) {
			fmt.Fprint(&b, " ", n)
		}
	}
	b.WriteString("\nreverse:")
	for y := range s.Rows() {
		if s.Inverse(y) {
			fmt.Fprint(&b, " ", y)
		}
	}
	b.WriteString("\n")
	if lines := s.Scrollback(); len(lines) > 0 {
		fmt.Fprintf(&b, "--- scrolled\n%s\n", strings.Join(lines, "\n"))
	}
	fmt.Fprintf(&b, "--- screen\n%s\n", s.Text())
	return b.String()
}

func TestScreensOfRealCLIsLookAsTheyDid(t *testing.T) {
	t.Parallel()
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			s := New(r.cols, r.rows)
			s.Write(r.output)
			check(t, s)
			got := picture(s)
			golden := filepath.Join("testdata/golden", r.name+".txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("another screen (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhereBytesAreCutDoesNotMatter(t *testing.T) {
	t.Parallel()
	for _, r := range recordings(t) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			whole := New(r.cols, r.rows)
			whole.Write(r.output)
			want := picture(whole)
			for _, longest := range []int{1, 2, 7, 100, 5000} {
				s := New(r.cols, r.rows)
				random := rand.New(rand.NewPCG(1, uint64(longest)))
				for rest := r.output; len(rest) > 0; {
					n := min(1+random.IntN(longest), len(rest))
					s.Write(rest[:n])
					rest = rest[n:]
				}
				if diff := cmp.Diff(want, picture(s)); diff != "" {
					t.Errorf("cut every 1 to %d bytes (-whole +cut):\n%s\nwant diff = \"\"", longest, diff)
				}
			}
		})
	}
}

// check holds what must be true of every screen.
func check(t testing.TB, s *Screen) {
	t.Helper()
	x, y, _ := s.Cursor()
	if x < 0 || x >= s.cols || y < 0 || y >= s.rows || s.top < 0 || s.bottom >= s.rows || s.top > s.bottom {
		t.Fatalf("cursor %d,%d region %d-%d on a screen of %d×%d; want x at least 0, x less than %v, y at least 0, y less than "+
			"%v, s.top at least 0, s.bottom less than %v, s.top at most %v", x, y, s.top, s.bottom, s.cols, s.rows, s.cols, s.rows,
			s.rows, s.bottom)
	}
	if s.cursor.origin && (y < s.top || y > s.bottom) {
		t.Fatalf("cursor in row %d is outside the region %d-%d it counts from; want not (s.cursor.origin && (y < s.top || y > s.bottom))",
			y, s.top, s.bottom)
	}
	if len(s.title) > MaxTitle || len(s.str) > MaxSequence || len(s.scrolled.lines) > MaxScrollback || len(s.tabs) != s.cols {
		t.Fatalf("a bound is broken: title %d, sequence %d, scrolled back %d, tabs %d; want len(s.title) at most %v, len(s.str) "+
			"at most %v, len(s.scrolled.lines) at most %v, len(s.tabs) = %v", len(s.title), len(s.str), len(s.scrolled.lines),
			len(s.tabs), MaxTitle, MaxSequence, MaxScrollback, s.cols)
	}
	for _, g := range []*grid{&s.main, &s.alt} {
		if len(g.lines) != s.rows || g.saved.x >= s.cols || g.saved.y >= s.rows {
			t.Fatalf("%d lines, saved cursor %d,%d; want len(g.lines) = %v, g.saved.x less than %v, g.saved.y less than %v",
				len(g.lines), g.saved.x, g.saved.y, s.rows, s.cols, s.rows)
		}
		seen := make(map[*line]bool)
		for y, l := range g.lines {
			if seen[l] || len(l.cells) != s.cols || l.used > s.cols {
				t.Fatalf("line %d: twice %t, %d cells, %d used", y, seen[l], len(l.cells), l.used)
			}
			seen[l] = true
			for x, c := range l.cells {
				switch {
				case x >= l.used && c != cell{}:
					t.Fatalf("cell %d,%d is behind the %d used ones and not blank", x, y, l.used)
				case len(c.more) > MaxMarks:
					t.Fatalf("cell %d,%d has %d bytes of marks", x, y, len(c.more))
				case c.part == lead && (x+1 == s.cols || l.cells[x+1].part != tail), c.part == tail && (x == 0 || l.cells[x-1].part != lead):
					t.Fatalf("cell %d,%d is half of a wide character", x, y)
				}
			}
		}
	}
}

func BenchmarkScreen(b *testing.B) {
	all := recordings(b)
	byCLI := make(map[string][]byte)
	for _, r := range all {
		cli, _, _ := strings.Cut(r.name, "-")
		byCLI[cli] = append(byCLI[cli], r.output...)
		byCLI["all"] = append(byCLI["all"], r.output...)
	}
	byCLI["lines"] = []byte(strings.Repeat("a line of a log file, such as a compiler prints\r\n", 2000))
	for _, name := range []string{"all", "claude", "codex", "gemini", "pi", "lines"} {
		b.Run(name, func(b *testing.B) {
			s := New(120, 40)
			b.SetBytes(int64(len(byCLI[name])))
			b.ReportAllocs()
			for b.Loop() {
				s.Write(byCLI[name])
			}
		})
	}
}
