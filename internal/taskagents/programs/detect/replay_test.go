package detect

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/taskagents/programs/cast"
)

// recordings returns package term's recordings of real programs.
func recordings(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../../term/testdata/casts/*.cast")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d recordings: %v; want no error, len(files) other than 0", len(files), err)
	}
	return files
}

func load(t testing.TB, name string) (*cast.Recording, *File, Subject) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rec, err := cast.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	subject, err := GuessProgram(rec, name)
	if err != nil {
		t.Fatal(err)
	}
	file, remark := rules(t, subject)
	if remark != "" {
		t.Errorf(`%s: %s; want remark = ""`, name, remark)
	}
	return rec, file, subject
}

func rules(t testing.TB, s Subject) (*File, string) {
	t.Helper()
	files, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	file, remark, err := Pick(files, s.Framework, s.Version)
	if err != nil {
		t.Fatal(err)
	}
	return file, remark
}

type marked struct {
	t    float64
	word string
}

func marks(rec *cast.Recording) (out []marked) {
	for _, e := range rec.Events {
		if e.Kind == cast.Mark && e.Data != "end" {
			out = append(out, marked{e.At.Seconds(), e.Data})
		}
	}
	return out
}

func run(t testing.TB, rec *cast.Recording, file *File, version string) (steps []ReplayStep) {
	t.Helper()
	if err := Replay(rec, file, version, func(s ReplayStep) error { steps = append(steps, s); return nil }); err != nil {
		t.Fatal(err)
	}
	return steps
}

// check compares what was announced with the marks: the same states in the same order,
// each at its time, give or take the program's settle time and a second.
func check(t *testing.T, rec *cast.Recording, file *File, steps []ReplayStep) {
	t.Helper()
	var want, got []string
	all := marks(rec)
	for _, m := range all {
		want = append(want, m.word)
	}
	for _, s := range steps {
		got = append(got, s.To)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("marks and states differ (-mark +state):\n%s\n%+v\nwant diff = \"\"", diff, steps)
		return
	}
	allow := max(float64(file.ReadyMS)/1000, 1.5) + 1
	for i, m := range all {
		if d := steps[i].T - m.t; math.Abs(d) > allow {
			t.Errorf("%s is announced at %.3f s, its mark is at %.3f s; want math.Abs(d) at most %v", m.word, steps[i].T, m.t, allow)
		}
	}
	for _, s := range steps[1:] {
		if len(s.Evidence) == 0 {
			t.Errorf("%s has no evidence; want len(s.Evidence) other than 0", s.To)
		}
	}
}

func TestRecordingsReplayToTheirMarks(t *testing.T) {
	t.Parallel()
	for _, name := range recordings(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".cast"), func(t *testing.T) {
			t.Parallel()
			rec, file, subject := load(t, name)
			check(t, rec, file, run(t, rec, file, subject.Version))
		})
	}
}

// TestCutsDoNotMatter cuts the output anywhere, inside characters and sequences too.
func TestCutsDoNotMatter(t *testing.T) {
	t.Parallel()
	for _, name := range recordings(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".cast"), func(t *testing.T) {
			t.Parallel()
			rec, file, subject := load(t, name)
			whole := run(t, rec, file, subject.Version)
			for seed := range uint64(4) {
				cut := *rec
				cut.Events = chop(rec.Events, rand.New(rand.NewPCG(seed, 8)), 0)
				if diff := cmp.Diff(words(whole), words(run(t, &cut, file, subject.Version))); diff != "" {
					t.Errorf("seed %d: (-whole +cut)\n%s\nwant diff = \"\"", seed, diff)
				}
			}
		})
	}
}

// TestSlowPipesDoNotMatter lets the pieces of an output come up to 40 ms apart, as a
// busy machine would hand them over.
func TestSlowPipesDoNotMatter(t *testing.T) {
	t.Parallel()
	for _, name := range recordings(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".cast"), func(t *testing.T) {
			t.Parallel()
			rec, file, subject := load(t, name)
			for seed := range uint64(4) {
				late := *rec
				late.Events = chop(rec.Events, rand.New(rand.NewPCG(seed, 9)), 40*time.Millisecond)
				check(t, &late, file, run(t, &late, file, subject.Version))
			}
		})
	}
}

// TestTheScreenAloneSuffices takes the sequences away that not every terminal gets: the
// full settle times may leave a state out then, but nothing wrong is said, and the last
// state is the same.
func TestTheScreenAloneSuffices(t *testing.T) {
	t.Parallel()
	sequence := regexp.MustCompile("\x1b\\](0|2|9|133|777|7501);[^\x07\x1b]*(\x07|\x1b\\\\)")
	for _, name := range recordings(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".cast"), func(t *testing.T) {
			t.Parallel()
			rec, file, subject := load(t, name)
			for i, e := range rec.Events {
				if e.Kind == cast.Output {
					rec.Events[i].Data = sequence.ReplaceAllString(e.Data, "")
				}
			}
			all := marks(rec)
			steps := run(t, rec, file, subject.Version)
			if last := all[len(all)-1].word; steps[len(steps)-1].To != last {
				t.Errorf("the last state is %s and its mark %s; want steps[len(steps)-1].To = %v", steps[len(steps)-1].To, last, last)
			}
			for _, s := range steps {
				for len(all) > 0 && all[0].word != s.To {
					all = all[1:]
				}
				if len(all) == 0 {
					t.Fatalf("%s is not marked there: %+v; want len(all) other than 0", s.To, steps)
				}
				all = all[1:]
			}
		})
	}
}

func words(steps []ReplayStep) (out []string) {
	for _, s := range steps {
		out = append(out, s.From+" "+s.To+" "+s.Cause)
	}
	return out
}

func chop(events []cast.Event, r *rand.Rand, apart time.Duration) (out []cast.Event) {
	for i, e := range events {
		end := e.At
		if i+1 < len(events) {
			end = events[i+1].At
		}
		for e.Kind == cast.Output && len(e.Data) > 1 && r.IntN(8) > 0 {
			n := 1 + r.IntN(len(e.Data)-1)
			out = append(out, cast.Event{At: e.At, Kind: e.Kind, Data: e.Data[:n]})
			e.Data = e.Data[n:]
			if apart > 0 {
				e.At = min(end, e.At+time.Duration(r.Int64N(int64(apart))))
			}
		}
		out = append(out, e)
	}
	return slices.Clip(out)
}
