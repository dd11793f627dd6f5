package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

func TestAnInterruptEndsAQuestion(t *testing.T) {
	t.Parallel()
	silent, write := io.Pipe()
	t.Cleanup(func() { _ = write.Close() })
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	a := &app{stdin: silent, stderr: io.Discard}
	if a.agrees(ctx) {
		t.Error("agrees after an interrupt: got true, want false")
	}
	if _, err := a.ask(ctx, "Go on? "); capability.CodeOf(err) != capability.CodeCancelled {
		t.Errorf("ask after an interrupt: got %v, want cancelled", err)
	}
}

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
		yes := a.agrees(t.Context())
		if rest, err := io.ReadAll(from); yes != want.yes || string(rest) != want.rest || err != nil {
			t.Errorf("%q: got %v, with %q left and %v, want %v and %q", in, yes, rest, err, want.yes, want.rest)
		}
	}
}
