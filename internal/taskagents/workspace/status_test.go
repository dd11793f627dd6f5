package workspace

import (
	"slices"
	"testing"
)

func TestTheEndOfCutOutputIsNotAPath(t *testing.T) {
	for out, want := range map[string][]string{"? one\x00? tw": {"one"}, "? one\x00": {"one"}, "? on": {}} {
		if got := parseStatus(string(complete([]byte(out)))).Untracked; !slices.Equal(got, want) {
			t.Errorf("the paths of %q are %q, want %q", out, got, want)
		}
	}
}
