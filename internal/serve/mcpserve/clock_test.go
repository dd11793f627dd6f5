package mcpserve

import (
	"fmt"
	"testing"
	"time"
)

// TestUsedStateStaysUsedWhenTheClockJumps uses a state, makes the server forget it while the clock is an hour
// ahead, and sets the clock back.
func TestUsedStateStaysUsedWhenTheClockJumps(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := newStateSealer([]byte("key"), func() time.Time { return now })
	sealed := s.Seal(requestState{Kind: stateConsent, Who: "w", Call: "c", Of: "apr_1"})
	other := s.Seal(requestState{Kind: stateConsent, Who: "w", Call: "c", Of: "apr_2"})
	for _, state := range [][]byte{sealed, other} {
		if _, ok := s.Open(state, "w", "c"); !ok {
			t.Fatalf("Open(new state): got false, want true")
		}
	}
	now = now.Add(time.Hour)
	for i := range maxStates - 1 { // the last one needs the room of those that have expired
		if _, ok := s.Open(s.Seal(requestState{Kind: stateRelayed, Who: "w", Call: fmt.Sprint(i)}), "w", fmt.Sprint(i)); !ok {
			t.Fatalf("Open(state %d an hour later): got false, want true", i)
		}
	}
	now = now.Add(-time.Hour)
	if _, ok := s.Open(sealed, "w", "c"); ok {
		t.Errorf("Open(used state, after the clock was set back): got true, want false")
	}
	if _, ok := s.Open(s.Seal(requestState{Kind: stateConsent, Who: "x", Call: "c"}), "x", "c"); !ok {
		t.Errorf("Open(new state, after the clock was set back): got false, want true")
	}
	now = now.Add(-24 * time.Hour)
	if _, ok := s.Open(s.Seal(requestState{Kind: stateConsent, Who: "y", Call: "c"}), "y", "c"); !ok {
		t.Errorf("Open(new state, a day before): got false, want true")
	}
}
