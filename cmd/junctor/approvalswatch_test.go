package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/junctor-run/junctor/internal/core/policy"
)

func TestWhatWasTypedBeforeAnApprovalWasShownDoesNotDecideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out, errs bytes.Buffer
		lines := make(chan string, 1)
		lines <- "always"
		w := &approvalWatch{app: &app{stdout: &out, stderr: &errs}, lines: lines}
		done := make(chan error, 1)
		go func() { done <- w.ask(ctx, policy.Approval{ID: "apr_1"}) }()
		synctest.Wait()
		lines <- "perhaps" // is asked again
		synctest.Wait()
		cancel()
		if err := <-done; err != nil || errs.Len() > 0 {
			t.Errorf("ask = %v, %q on standard error; want no decision sent", err, errs.String())
		}
		if got := strings.Count(out.String(), "[o]nce"); got != 2 {
			t.Errorf("the question was printed %d times, want 2:\n%s", got, out.String())
		}
	})
}

func TestDecisionsAreWholeWordsOrTheirFirstLetter(t *testing.T) {
	for line, want := range map[string]policy.Decision{
		"o": policy.DecideOnce, " Hour ": policy.DecideTimed, "always": policy.DecideAlways, "d": policy.DecideDeny, "": "",
	} {
		if got, known := decisionOf(line, false); got != want || !known {
			t.Errorf("decisionOf(%q) = %q, %v; want %q, true", line, got, known, want)
		}
	}
	for _, line := range []string{"y", "yes", "s", "on", "always!"} {
		if got, known := decisionOf(line, false); known {
			t.Errorf("decisionOf(%q) = %q, true; want it unknown", line, got)
		}
	}
	if got, known := decisionOf("s", true); got != policy.DecideSession || !known {
		t.Errorf("decisionOf(s) in a session = %q, %v; want session", got, known)
	}
}
