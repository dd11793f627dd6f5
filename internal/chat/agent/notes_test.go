package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

// A forwarded message stays foreign text if another gateway carries the run.
func TestAMessageForAnotherGatewayKeepsItsTaint(t *testing.T) {
	t.Parallel()
	m, journal := silentModel{make(chan struct{}, 10)}, openJournal(t)
	gateway := func(name string) *agent.Engine {
		e := agent.New(agent.Config{
			Model: m, Path: instant{compile.New(catalogtest.New(t))}, Policy: free{}, Journal: journal, Leases: journal, Gateway: name,
			Tasks: noTasks{}, Deliver: func(context.Context, agent.Run, agent.Outcome) (int64, error) { return 1, nil },
			Budget: agent.Budget{ModelCalls: 10, ToolCalls: 10, Work: time.Hour},
		})
		t.Cleanup(e.Close)
		if err := e.Open(t.Context()); err != nil {
			t.Fatalf("Open: got %v, want no error", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); e.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-ended })
		return e
	}
	carries, other := gateway("a"), gateway("b")
	ann := capability.Principal{ID: "agent:ann", Role: capability.RoleAgent}
	f, err := carries.Send(t.Context(), agent.Message{Person: ann, Session: "s", Text: "go"})
	if err != nil {
		t.Fatalf("the first message: got %v, want no error", err)
	}
	<-m.asked
	if _, err := other.Send(t.Context(), agent.Message{Person: ann, Session: "s", Text: "forwarded", Key: "k", Tainted: true}); err != nil {
		t.Fatalf("the message through the other gateway: got %v, want no error", err)
	}
	list, err := journal.Records(t.Context(), f.Run)
	if err != nil {
		t.Fatalf("records: got %v, want no error", err)
	}
	if last := string(list[len(list)-1].Doc); !strings.Contains(last, "forwarded") || !strings.Contains(last, `"tainted":true`) {
		t.Errorf("the last record: got %s, want the message, tainted", last)
	}
}
