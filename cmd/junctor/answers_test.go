package main

import (
	"io"
	"strings"
	"testing"
)

func TestAnAnswerIsAWholeLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]struct {
		yes  bool
		rest string
	}{
		"y\nnext": {true, "next"}, "Yes \r\nnext": {true, "next"}, "yes": {true, ""}, "\nnext": {false, "next"}, "": {false, ""},
		"y echo more\nnext": {false, "next"}, "no thanks; echo more\nnext": {false, "next"}, "ye\nnext": {false, "next"},
	} {
		from := strings.NewReader(in)
		a := &app{stdin: from}
		yes := a.agrees()
		if rest, err := io.ReadAll(from); yes != want.yes || string(rest) != want.rest || err != nil {
			t.Errorf("%q: got %v, with %q left and %v, want %v and %q", in, yes, rest, err, want.yes, want.rest)
		}
	}
}
