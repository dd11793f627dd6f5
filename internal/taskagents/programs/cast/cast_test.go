package cast

import (
	"strings"
	"testing"
	"time"
)

const head = `{"version":1,"cols":80,"rows":24,"cli":"Codex 0.1","extra":true}` + "\n"

func TestRead(t *testing.T) {
	t.Parallel()
	rec, err := Read(strings.NewReader(head + `[0,"m","starting"]` + "\n\n" + `[1.5, "o", "a\u001b[1mé"]` + "\n" + `[2,"r","100x30"]` +
		"\n" + `[2e0,"i","\r"]`))
	if err != nil {
		t.Fatal(err)
	}
	if rec.Cols != 80 || rec.CLI != "Codex 0.1" || len(rec.Events) != 4 ||
		rec.Events[1] != (Event{1500 * time.Millisecond, Output, "a\x1b[1mé"}) {
		t.Errorf(`%+v; want rec.Cols = 80, rec.CLI = "Codex 0.1", len(rec.Events) = 4, rec.Events[1] = (Event{1500 * `+
			`time.Millisecond, Output, "a\x1b[1mé"})`, rec)
	}
	rec, err = Read(strings.NewReader(`{"version":2,"width":100,"height":30,"title":"t"}`))
	if err != nil || rec.Cols != 100 || rec.Rows != 30 || rec.Note != "t" {
		t.Errorf(`%+v %v; want no error, rec.Cols = 100, rec.Rows = 30, rec.Note = "t"`, rec, err)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"", "is empty"},
		{"nonsense", "line 1"},
		{`{"version":7,"cols":80,"rows":24}`, "version is 7"},
		{`{"version":1,"cols":0,"rows":24}`, "size of the terminal"},
		{`{"version":1,"cols":80,"rows":2400}`, "size of the terminal"},
		{head + `[1,"o"]`, "line 2"},
		{head + `{"t":1}`, "line 2"},
		{head + `[1,"o","x","y"]`, "line 2"},
		{head + `["1","o","x"]`, "number of seconds"},
		{head + `[-1,"o","x"]`, "number of seconds"},
		{head + `[1e99,"o","x"]`, "number of seconds"},
		{head + `[1,"o",3]`, "two strings"},
		{head + `[1,"z","x"]`, "kind must be"},
		{head + `[1,"r","x"]`, "120x40"},
		{head + `[1,"o","x"] 3`, "not JSON"},
		{head + `[2,"o","x"]` + "\n" + `[1,"o","x"]`, "line 3"},
		{head + `[1,"o","` + strings.Repeat("x", MaxLine) + `"]`, "4 MiB"},
	} {
		if _, err := Read(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q: %v", c.want, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(head + `[0,"o","x"]` + "\n" + `[1,"r","10x10"]`))
	f.Add([]byte(`{"version":2,"width":1,"height":1}` + "\n[]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := Read(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		last := time.Duration(0)
		for _, e := range rec.Events {
			if e.At < last {
				t.Fatalf("time runs backwards; got e.At = %v; want e.At at least %v", e.At, last)
			}
			last = e.At
		}
	})
}
