package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

var errKilled = errors.New("the process was killed")

// world is all that outlives the process of an engine: its journal, the governed path with its
// approvals, and the conversation. The process dies at one of the points at which the engine uses it.
type world struct {
	agent.Journal
	free
	instant

	mu        sync.Mutex
	passed    int // points
	at        int // the point at which the process dies; 0: never
	dead      chan struct{}
	states    map[string]string // of calls, by their keys: begun or made
	effects   int
	unknown   bool // a call was interrupted
	approvals map[string]policy.Approval
	messages  map[string]string
}

// point is passed before and after each use. It fails once the process is dead.
func (w *world) point() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed++
	if w.passed == w.at {
		close(w.dead)
	}
	if w.at > 0 && w.passed >= w.at {
		return errKilled
	}
	return nil
}

// around does something between two points.
func (w *world) around(do func() error) error {
	if err := w.point(); err != nil {
		return err
	}
	err := do()
	return errors.Join(w.point(), err)
}

func (w *world) Begin(ctx context.Context, r agent.Run, records ...agent.Record) (other agent.Run, ok bool, err error) {
	err = w.around(func() (err error) {
		other, ok, err = w.Journal.Begin(ctx, r, records...)
		return err
	})
	return other, ok, err
}

func (w *world) Save(ctx context.Context, r agent.Run, used agent.Used, records ...agent.Record) error {
	return w.around(func() error { return w.Journal.Save(ctx, r, used, records...) })
}

func (w *world) deliver(_ context.Context, r agent.Run, o agent.Outcome) (int64, error) {
	return 1, w.around(func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.messages[r.ID] == "" {
			w.messages[r.ID] = o.Text
		}
		return nil
	})
}

// Invoke reads at once. A write needs an approval, and is made at most once for each key.
func (w *world) Invoke(_ context.Context, inv capability.Invocation) (reply invoke.Reply, err error) {
	reply = invoke.Reply{Invocation: "run_1", State: invoke.StateCompleted, Capability: "mcp/s/write", Result: []byte(`{"ok":true}`)}
	key := inv.IdempotencyKey
	if key == "" {
		return reply, w.around(func() error { return nil })
	}
	err = w.around(func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch id := "apr_" + key; {
		case w.states[key] == "made":
		case w.states[key] == "begun":
			w.unknown = true
			return capability.Errorf(capability.CodeConflict, "invoke", "it was interrupted").With(invoke.ReasonInterrupted, "")
		case inv.Approval == "":
			if _, ok := w.approvals[id]; !ok {
				w.approvals[id] = policy.Approval{ID: id, State: policy.ApprovalPending}
			}
			e := capability.Errorf(capability.CodeApprovalRequired, "invoke", "it waits")
			e.Details = map[string]any{"approval": id}
			return e
		case w.approvals[inv.Approval].State != policy.ApprovalApproved:
			return capability.Errorf(capability.CodeDenied, "invoke", "it is not approved")
		default:
			w.states[key] = "begun"
		}
		return nil
	})
	if err != nil {
		return reply, err
	}
	err = w.around(func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.states[key] == "begun" {
			w.effects++
		}
		return nil
	})
	if err != nil {
		return reply, err
	}
	return reply, w.around(func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.states[key] = "made"
		return nil
	})
}

func (w *world) Approval(_ context.Context, id string) (policy.Approval, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.approvals[id], nil
}

func (w *world) Decided(ctx context.Context, id string) (policy.Approval, error) {
	return w.Approval(ctx, id)
}

func (w *world) Approvals(_ context.Context, _ policy.ApprovalState, after string, _ int) (list []policy.Approval, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.approvals {
		if a.State == policy.ApprovalPending && after == "" {
			list = append(list, a)
		}
	}
	return list, nil
}

// Exchange asks for two reads and a write, then for a read, and reports the results.
func (w *world) Exchange(_ context.Context, req modelwire.Request, emit func(modelwire.Delta) error) (reply modelwire.Reply, err error) {
	err = w.around(func() error {
		var results []string
		for _, m := range req.Messages {
			for _, b := range m.Blocks {
				if b.Kind == modelwire.Result {
					results = append(results, b.Text)
				}
			}
		}
		call := func(id, name string) modelwire.Block {
			return modelwire.Block{Kind: modelwire.Call, ID: id, Name: name, Input: `{}`}
		}
		var blocks []modelwire.Block
		switch len(results) {
		case 0:
			blocks = []modelwire.Block{{Kind: modelwire.Text, Text: "I look."}, call("1", "look"), call("2", "look"), call("3", "write")}
		case 3:
			blocks = []modelwire.Block{call("4", "look")}
		default:
			blocks = []modelwire.Block{{Kind: modelwire.Text, Text: "Result: " + strings.Join(results, "; ")}}
		}
		reply = modelwire.Reply{Message: modelwire.Message{Role: modelwire.Assistant, Blocks: blocks}, Stop: modelwire.StopEnd}
		if len(results) <= 3 {
			reply.Stop = modelwire.StopCalls
		}
		return emit(modelwire.Delta{Text: "…"})
	})
	return reply, err
}

// live starts an engine, which continues what is left, and acts for the person until the run ends or the
// process dies. It returns the end of the run, if it was reached.
func (w *world) live(t *testing.T, session string) (end *agent.Outcome) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	e := agent.New(agent.Config{
		Model: w, Path: w, Policy: w, Journal: w, Tasks: noTasks{}, Gateway: "g", Deliver: w.deliver,
		Budget: agent.Budget{ModelCalls: 60, ToolCalls: 60, Work: time.Minute},
	})
	var work sync.WaitGroup
	defer func() {
		cancel()
		e.Close()
		work.Wait()
	}()
	if err := e.Open(ctx); err != nil {
		t.Fatalf("open: got %v, want no error", err)
	}
	work.Go(func() { e.Run(ctx) })
	work.Go(func() {
		select {
		case <-w.dead:
			cancel()
		case <-ctx.Done():
		}
	})
	person := capability.Principal{ID: "admin:a", Role: capability.RoleAdmin}
	runs, _, err := w.Runs(t.Context(), agent.Query{Session: session, Limit: 2})
	if err != nil || len(runs) > 1 {
		t.Fatalf("runs: got %d and %v, want at most one", len(runs), err)
	}
	if len(runs) == 0 {
		f, err := e.Send(ctx, agent.Message{Person: person, Session: session, Text: "go", Turns: []agent.Turn{{Text: "go"}}})
		if err != nil {
			return nil
		}
		f.Close()
		if runs, _, err = w.Runs(t.Context(), agent.Query{Session: session, Limit: 2}); err != nil || len(runs) != 1 {
			t.Fatalf("runs: got %d and %v, want one", len(runs), err)
		}
	}
	events, err := e.Events(ctx, person, runs[0].ID, "")
	if err != nil {
		if ctx.Err() == nil {
			t.Fatalf("events: got %v, want no error", err)
		}
		return nil
	}
	for ev := range events {
		switch ev.Type {
		case "park":
			for _, id := range ev.Outcome.Approvals {
				w.mu.Lock()
				w.approvals[id] = policy.Approval{ID: id, State: policy.ApprovalApproved}
				w.mu.Unlock()
				e.Decided(id)
			}
		case "end":
			end = ev.Outcome
		}
	}
	return end
}

// TestARunSurvivesTheEndOfItsProcessAtEachPoint ends the process before and after each record, call,
// answer of the model and reply, starts another one, and counts the effects.
func TestARunSurvivesTheEndOfItsProcessAtEachPoint(t *testing.T) {
	t.Parallel()
	compiler := toolCatalog(t, map[string]capability.Effect{"look": capability.EffectRead, "write": capability.EffectWrite})
	journal := openJournal(t)
	points := 0
	for at := 1; ; at++ {
		session := fmt.Sprint("s", at)
		w := &world{
			Journal: journal, instant: instant{compiler}, at: at, dead: make(chan struct{}),
			states: make(map[string]string), approvals: make(map[string]policy.Approval), messages: make(map[string]string),
		}
		end := w.live(t, session)
		died := false
		select {
		case <-w.dead:
			died = true
			w.mu.Lock()
			w.at, w.dead = 0, make(chan struct{})
			w.mu.Unlock()
			end = w.live(t, session)
		default:
		}
		text := ""
		for _, m := range w.messages {
			text = m
		}
		told := strings.Contains(text, "outcome is unknown")
		if end == nil || end.State != agent.Completed || len(w.messages) != 1 || len(w.approvals) != 1 ||
			told != w.unknown || w.effects != 1 && (w.effects != 0 || !told) {
			t.Errorf("killed at point %d: got the end %+v, %d effects, %d approvals, replies %q; want it completed, 1, 1 and one reply",
				at, end, w.effects, len(w.approvals), w.messages)
		}
		if !died {
			break
		}
		points++
	}
	if points < 50 {
		t.Errorf("points: got %d, want at least 50", points)
	}
	t.Logf("%d points", points)
}
