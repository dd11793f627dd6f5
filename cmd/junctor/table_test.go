package main

import "testing"

// What agents and strangers say is shown without steering the terminal.
func TestTextOfStrangersCannotSteerTheTerminal(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"\n one\ntwo\n", "one\ntwo"},
		{"red \x1b[31mtext\x07.", "red  [31mtext ."},
		{"over\rwritten\nnext\u009b2J", "over written\nnext 2J"},
	} {
		if got := plainLines(c.text); got != c.want {
			t.Errorf("%q is shown as %q; want got = %v", c.text, got, c.want)
		}
	}
}
