package agent_test

import (
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/agent"
)

// A run that waits takes messages of its person, but not without end.
func TestAWaitingRunTakesNotAnyNumberOfMessages(t *testing.T) {
	t.Parallel()
	journal := openJournal(t)
	now := time.Now().UTC()
	if _, _, err := journal.Begin(t.Context(), agent.Run{
		ID: "tsk_1", Person: "admin:a", Session: "s", Gateway: "g", State: agent.Waiting, Approvals: []string{"apr_1"},
		Created: now, Updated: now, Seq: 990,
	}); err != nil {
		t.Fatalf("save: got %v, want no error", err)
	}
	e := opened(t, agent.Config{Journal: journal, Policy: free{}})
	if err := e.Open(t.Context()); err != nil {
		t.Fatalf("open: got %v, want no error", err)
	}
	taken := 0
	for range 20 {
		f, err := e.Send(t.Context(), agent.Message{
			Person: capability.Principal{ID: "admin:a", Role: capability.RoleAdmin}, Session: "s", Text: "more",
		})
		if err != nil {
			if capability.CodeOf(err) != capability.CodeOverloaded {
				t.Errorf("a message beyond the limit: got %v, want overloaded", err)
			}
			continue
		}
		f.Close()
		taken++
	}
	if taken != 10 {
		t.Errorf("messages taken: got %d, want 10", taken)
	}
}
