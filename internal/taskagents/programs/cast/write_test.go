package cast_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/taskagents/programs/cast"
)

// file is one in memory.
type file struct {
	bytes.Buffer
	room   int // -1: any
	closed bool
}

func (f *file) Write(p []byte) (int, error) {
	if f.room >= 0 && f.Len()+len(p) > f.room {
		return 0, errors.New("no space is left")
	}
	return f.Buffer.Write(p)
}

func (f *file) Close() error {
	f.closed = true
	return nil
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	f := &file{room: -1}
	began := time.Unix(1000, 0)
	w := cast.NewWriter(f, began, 120, 40, "claude 2.1.197", "a note", cast.MaxFile)
	const shown = "\x1b[1m✳ grüß\"e\\ 🙂\x1b[0m"
	for i := range len(shown) { // cut everywhere
		w.Add(began.Add(time.Second), cast.Output, []byte(shown[i:i+1]))
	}
	w.Add(began.Add(1500*time.Millisecond), cast.Input, []byte("ls\r"))
	w.Add(began.Add(time.Second), cast.Mark, []byte("busy")) // the clock was set back
	w.Add(began.Add(2*time.Second), cast.Resize, []byte("100x30"))
	w.Add(began.Add(3*time.Second), cast.Output, []byte{'a', 0xff, 'b'})
	if err := w.Close(); err != nil || !f.closed {
		t.Fatalf("%v; want no error, f.closed = true", err)
	}
	size := f.Len()
	w.Add(began.Add(4*time.Second), cast.Output, []byte("late"))
	if f.Len() != size {
		t.Errorf("it takes more after its end; want f.Len() = %v", size)
	}
	rec, err := cast.Read(&f.Buffer)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Cols != 120 || rec.Rows != 40 || rec.CLI != "claude 2.1.197" || rec.Note != "a note" {
		t.Errorf(`%+v; want rec.Cols = 120, rec.Rows = 40, rec.CLI = "claude 2.1.197", rec.Note = "a note"`, rec)
	}
	var printed strings.Builder
	var rest []cast.Event
	for _, e := range rec.Events {
		if e.Kind == cast.Output && e.At == time.Second {
			printed.WriteString(e.Data)
			continue
		}
		rest = append(rest, e)
	}
	if printed.String() != shown {
		t.Errorf("it printed %q; want printed.String() = %v", printed.String(), shown)
	}
	want := []cast.Event{
		{At: 1500 * time.Millisecond, Kind: cast.Input, Data: "ls\r"},
		{At: 1500 * time.Millisecond, Kind: cast.Mark, Data: "busy"},
		{At: 2 * time.Second, Kind: cast.Resize, Data: "100x30"},
		{At: 3 * time.Second, Kind: cast.Output, Data: "a\uFFFDb"},
	}
	if d := cmp.Diff(want, rest); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
}

func TestARecordingThatIsFullEnds(t *testing.T) {
	const limit = 4096
	for name, c := range map[string]struct {
		room  int
		fails bool
	}{"by its limit": {-1, false}, "by its file": {1000, true}} {
		t.Run(name, func(t *testing.T) {
			f := &file{room: c.room}
			began := time.Unix(1000, 0)
			w := cast.NewWriter(f, began, 80, 24, "shell", "", limit)
			for i := range 1000 {
				w.Add(began.Add(time.Duration(i)*time.Second), cast.Output, []byte("a line of output\r\n"))
			}
			if err := w.Close(); (err != nil) != c.fails {
				t.Errorf("%v; want (err != nil) = %v", err, c.fails)
			}
			if f.Len() > limit {
				t.Errorf("it has %d bytes; want f.Len() at most %v", f.Len(), limit)
			}
			rec, err := cast.Read(&f.Buffer)
			if err != nil || len(rec.Events) < 10 {
				t.Fatalf("err = %v, want nil; rec = %+v, want len(rec.Events) at least 10", err, rec)
			}
			if last := rec.Events[len(rec.Events)-1]; !c.fails && (last.Kind != cast.Mark || last.Data != "end") {
				t.Errorf(`its last event is %+v; want not (!c.fails && (last.Kind != cast.Mark || last.Data != "end"))`, last)
			}
		})
	}
}
