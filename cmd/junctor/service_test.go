package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheUnitOfSetupIsThatOfTheRelease(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("../../release/junctor.user.service")
	if err != nil {
		t.Fatalf("reading the unit: %v", err)
	}
	if d := cmp.Diff(string(want), serviceUnit("%h/.local/bin/junctor", "")); d != "" {
		t.Errorf("the unit (-release +setup):\n%s", d)
	}
}
