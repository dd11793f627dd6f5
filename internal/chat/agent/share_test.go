package agent_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// silentModel answers nothing.
type silentModel struct{ asked chan struct{} }

func (m silentModel) Exchange(ctx context.Context, _ modelwire.Request, _ func(modelwire.Delta) error) (modelwire.Reply, error) {
	m.asked <- struct{}{}
	<-ctx.Done()
	return modelwire.Reply{}, ctx.Err()
}

// A person with many conversations does not hold up those of others.
func TestOnePersonLeavesPlacesToOthers(t *testing.T) {
	t.Parallel()
	m := silentModel{make(chan struct{}, 1000)}
	e := opened(t, agent.Config{
		Model: m, Path: instant{compile.New(catalogtest.New(t))}, Policy: free{},
		Budget: agent.Budget{ModelCalls: 10, ToolCalls: 10, Work: time.Hour},
	})
	if err := e.Open(t.Context()); err != nil {
		t.Fatalf("Open: got %v, want no error", err)
	}
	send := func(person, session string) {
		t.Helper()
		if _, err := e.Send(t.Context(), agent.Message{
			Person: capability.Principal{ID: person, Role: capability.RoleAgent}, Session: session, Text: "x",
		}); err != nil {
			t.Fatalf("a message of %s: got %v, want no error", person, err)
		}
	}
	const conversations = 70 // more than work at a time
	for i := range conversations {
		send("agent:busy", fmt.Sprint(i))
	}
	send("agent:other", "one")
	const want = 16 + 1
	for i := range want {
		select {
		case <-m.asked:
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d runs have begun, want %d: those of one person and the other's", i, conversations+1, want)
		}
	}
	select {
	case <-m.asked:
		t.Errorf("run %d has begun, want that it waits", want+1)
	default:
	}
}
