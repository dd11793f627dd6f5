package tasks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/core/tasks"
)

// waiting is a store in which one call waits for each of some nodes.
type waiting struct {
	tasks.HeldStore
	once map[string]chan tasks.HeldCall
}

func (w *waiting) WaitingNodes(context.Context) (nodes []string, err error) {
	for node := range w.once {
		nodes = append(nodes, node)
	}
	return nodes, nil
}

func (w *waiting) ClaimCall(_ context.Context, node string, _, _ time.Time) (tasks.HeldCall, bool, error) {
	select {
	case c := <-w.once[node]:
		return c, true, nil
	default:
		return tasks.HeldCall{}, false, nil
	}
}

func (w *waiting) EndCall(context.Context, tasks.HeldCall, string) (bool, error) { return true, nil }

func (w *waiting) SweepCalls(context.Context, time.Time, time.Time) error { return nil }

// TestNodesThatDoNotAnswerHoldUpTheirCallsOnly holds that held calls for other nodes are delivered beside calls
// that take their whole time.
func TestNodesThatDoNotAnswerHoldUpTheirCallsOnly(t *testing.T) {
	t.Parallel()
	const silent = 100
	w := &waiting{once: make(map[string]chan tasks.HeldCall)}
	for i := range silent + 1 {
		node := fmt.Sprintf("silent%d", i)
		if i == silent {
			node = "other"
		}
		w.once[node] = make(chan tasks.HeldCall, 1)
		w.once[node] <- tasks.HeldCall{ID: node, Node: node}
	}
	begun := make(chan string, silent+1)
	k := tasks.NewHeldKeeper(tasks.HeldConfig{
		Store: w, Present: func(string) bool { return true },
		Invoke: func(ctx context.Context, c tasks.HeldCall) (json.RawMessage, string, error) {
			begun <- c.Node
			if c.Node != "other" {
				<-ctx.Done()
			}
			return nil, "", nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	for range silent + 1 {
		select {
		case <-begun:
		case <-time.After(time.Minute):
			t.Fatal("got no further call within a minute, want one for each node")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v, want no error", err)
	}
}
