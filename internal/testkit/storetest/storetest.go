// Package storetest is what every store must pass. An implementation of the
// core's store interfaces calls [Run] from its tests; a package with tables of
// its own on the shared handle may use the helpers' style but brings its tests.
//
// The suite checks promises, not tables: what is found again, which wrong state
// is refused with which code, and that of many callers at once exactly as many
// succeed as may.
package storetest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/nodes/admission"
)

// Stores are views of one fresh database. A nil member is not tested.
type Stores struct {
	Policy   policy.Store
	Outcomes invoke.OutcomeStore
	Index    audit.Index
	Nodes    admission.Store
	Held     tasks.HeldStore
}

// Run tests the stores that open makes; each test gets its own.
func Run(t *testing.T, open func(t *testing.T) Stores) {
	with := func(name string, test func(*testing.T, Stores)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
	s := open(t)
	if s.Policy != nil {
		with("tokens come back, oldest first", tokensComeBack)
		with("token names are free after revocation or expiry", tokenNames)
		with("tokens are prolonged until they are revoked", tokensAreProlonged)
		with("one of many creates a token", tokenRace)
		with("an approval is asked once for a binding", approvalAskedOnce)
		with("an approval keeps its view, and its input while it is pending", approvalViews)
		with("open approvals are bounded, listed by page and found when denied", approvalsBounded)
		with("an approval is decided once", approvalDecidedOnce)
		with("an approved once fits its binding and is spent once", approvalConsumedOnce)
		with("a spent once can be given back in its time", approvalReturned)
		with("approvals about other content are superseded", approvalsSuperseded)
		with("approvals of a program that went on end", approvalsEnd)
		with("approvals expire", approvalsExpire)
		with("grants come back and are revoked once", grantsComeBack)
		with("a grant is used as often as it may", grantUses)
	}
	if s.Nodes != nil {
		with("a node's id and key are claimed once", nodesClaimed)
		with("one of many claims a node's id", nodeRace)
	}
	if s.Held != nil {
		with("held calls are delivered in order and forgotten", heldCallsDelivered)
		with("one of many claims a held call", heldCallClaimedOnce)
	}
	if s.Outcomes != nil {
		with("an idempotency key is claimed once", outcomeClaimedOnce)
		with("an outcome is repeated", outcomeRepeated)
		with("old outcomes are forgotten", outcomesForgotten)
	}
	if s.Index != nil {
		with("the index finds what queries match", indexFinds)
		with("the index keeps its position and the first checkpoints", indexKeeps)
	}
}

func day(n int) time.Time { return time.Date(2026, 3, 1+n, 10, 0, 0, 123456000, time.UTC) }

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func code(t testing.TB, err error, want capability.Code) {
	t.Helper()
	if got := capability.CodeOf(err); got != want {
		t.Fatalf("error %v has code %q, want %q", err, got, want)
	}
}

func same[T any](t testing.TB, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("diff (-want +got):\n%s", d)
	}
}

// winners runs f n times at once and counts how often it is true.
func winners(t *testing.T, n int, f func(i int) (bool, error)) int {
	t.Helper()
	type verdict struct {
		won bool
		err error
	}
	verdicts := make(chan verdict)
	start := make(chan struct{})
	for i := range n {
		go func() {
			<-start
			won, err := f(i)
			verdicts <- verdict{won, err}
		}()
	}
	close(start)
	count := 0
	for range n {
		v := <-verdicts
		if v.err != nil {
			t.Errorf("v.err = %v, want nil", v.err)
		}
		if v.won {
			count++
		}
	}
	return count
}
