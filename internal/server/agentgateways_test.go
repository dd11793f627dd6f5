package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
)

// takeTimeout is how long the tests wait until another gateway has a run: the lease has to end first.
const takeTimeout = 90 * time.Second

// pair is two gateways with one store and one model, and a person, ann, with a client of each.
type pair struct {
	a, b       *node
	annA, annB *client.Client
	token      string // ann's
}

func newPair(t *testing.T, url string, model *scriptedModel) (p pair) {
	t.Helper()
	p.a, p.b = gateway(t, url, model.env()...), gateway(t, url, model.env()...)
	endpoint := spawn(t, "endpoint", nil, "127.0.0.1:0", "trial")
	p.a.connect(t, "trial", endpoint.first, true)
	var made made
	p.a.must(t, http.MethodPost, "/api/v1/tokens", map[string]any{"role": "operator", "name": "ann"}, &made)
	p.token = made.Token
	p.annA, p.annB = p.a.client(t, made.Token), p.b.client(t, made.Token)
	eventually(t, "the second gateway has the endpoint and the token", func() bool {
		ready := p.b.endpoints(t)["trial"].State == "ready"
		return ready && p.annB.Do(t.Context(), http.MethodGet, "/api/v1/status", nil, nil) == nil
	})
	return p
}

// sendTo sends a message of ann's in another goroutine.
func sendTo(t *testing.T, c *client.Client, session, text string) <-chan agentReply {
	t.Helper()
	out := make(chan agentReply, 1)
	go func() {
		var r agentReply
		_ = c.Do(t.Context(), http.MethodPost, "/api/v1/chat/messages", map[string]any{"session": session, "text": text}, &r)
		out <- r
	}()
	return out
}

// runIn waits until ann's session has a run in one of the states, and returns it.
func runIn(t *testing.T, c *client.Client, session string, states ...string) (run agentRun) {
	t.Helper()
	eventuallyWithin(t, takeTimeout, fmt.Sprintf("the session %s has a run that is %v", session, states), func() bool {
		var list struct{ Runs []agentRun }
		if err := c.Do(t.Context(), http.MethodGet, "/api/v1/agent/runs?session="+session, nil, &list); err != nil {
			t.Fatalf("runs: got %v, want no error", err)
		}
		if len(list.Runs) > 0 {
			run = list.Runs[0]
		}
		return slices.Contains(states, run.State)
	})
	return run
}

// taskState returns the state of a run's task.
func taskState(t *testing.T, c *client.Client, id string) string {
	t.Helper()
	var out struct{ Task struct{ State string } }
	if err := c.Do(t.Context(), http.MethodGet, "/api/v1/tasks/"+id, nil, &out); err != nil {
		t.Fatalf("task: got %v, want no error", err)
	}
	return out.Task.State
}

// received is what a follower of a run received.
type received struct {
	text string
	ids  []string
	end  bool
}

// listen follows a run at a gateway until it ends.
func listen(t *testing.T, n *node, token, run string) <-chan received {
	t.Helper()
	out := make(chan received, 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/api/v1/agent/runs/"+run+"/events", nil)
	if err != nil {
		t.Fatalf("request: got %v, want no error", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	go func() {
		var h received
		defer func() { out <- h }()
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return
		}
		defer res.Body.Close()
		steps := make(map[int64]string)
		var order []int64
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				h.ids = append(h.ids, id)
			}
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			var ev struct {
				Type, Text string
				Step       int64
			}
			if !ok || json.Unmarshal([]byte(data), &ev) != nil {
				continue
			}
			switch ev.Type {
			case "text":
				if !slices.Contains(order, ev.Step) {
					order = append(order, ev.Step)
				}
				steps[ev.Step] += ev.Text
			case "text_reset":
				delete(steps, ev.Step)
			case "end":
				h.end = true
			}
		}
		for _, step := range order {
			h.text += steps[step]
		}
	}()
	return out
}

// replies returns the replies of a session that are results, and all of its last one.
func (n *node) replies(t *testing.T, c *client.Client, session string) (count int, last string) {
	t.Helper()
	var out struct{ Messages []message }
	if err := c.Do(t.Context(), http.MethodGet, "/api/v1/chat/sessions/"+session+"/messages", nil, &out); err != nil {
		t.Fatalf("history: got %v, want no error", err)
	}
	for _, m := range out.Messages {
		if m.Role == "assistant" && strings.Contains(m.Text, "Result: ") {
			count++
			last = m.Text
		}
	}
	return count, last
}

// A gateway that dies with a run loses nothing: the other one takes the run, makes each call once, and
// those who follow the run there receive the rest.
func TestAnotherGatewayTakesTheRunsOfOneThatDied(t *testing.T) {
	t.Parallel()
	postgres := pgtest.Start(t)
	// at is the point of the death: while the model is asked for the first or second time, or while the
	// run waits for the approval.
	for _, at := range []string{"1", "waiting", "2"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "count")
			reached, leave := make(chan struct{}), make(chan struct{})
			var once sync.Once
			answer := counts(file)
			model := newScriptedModel(t, func(n int, r modelRequest) modelAnswer {
				if fmt.Sprint(n) == at {
					once.Do(func() { close(reached) })
					<-leave
				}
				return answer(n, r)
			})
			p := newPair(t, postgres.Database(t), model)
			said := sendTo(t, p.annA, "s1", "count")
			run := runIn(t, p.annA, "s1", "working", "waiting")
			follower := listen(t, p.b, p.token, run.ID)
			approve := func() {
				waits := runIn(t, p.annB, "s1", "waiting")
				p.b.decide(t, waits.Approval, "once")
			}
			switch at {
			case "waiting":
				runIn(t, p.annB, "s1", "waiting")
			case "2":
				approve()
				<-reached
			default:
				<-reached
			}
			p.a.kill()
			close(leave)
			<-said // it failed, or had the answer that the run waits
			if at != "2" {
				approve()
			}
			if got := runIn(t, p.annB, "s1", "completed", "failed", "cancelled"); got.ID != run.ID || got.State != "completed" {
				t.Errorf("the run: got %+v, want %s completed", got, run.ID)
			}
			count, last := p.b.replies(t, p.annB, "s1")
			if got := lines(file); got != 1 || count != 1 {
				t.Errorf("the call's effect and its replies: got %d and %d, want 1 and 1", got, count)
			}
			h := <-follower
			if !h.end || h.text != last || !slices.Equal(slices.Compact(slices.Clone(h.ids)), h.ids) {
				t.Errorf("the follower heard %+v, want the reply %q once, and the end", h, last)
			}
			if got := taskState(t, p.annB, run.ID); got != "completed" {
				t.Errorf("the task of the run: got %q, want completed", got)
			}
			p.b.verify(t)
		})
	}
}

// A gateway that was stopped while another took its run writes nothing into it when it continues.
func TestAGatewayThatReturnsDoesNotWriteIntoARunThatWasTaken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "count")
	reached, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	answer := counts(file)
	model := newScriptedModel(t, func(n int, r modelRequest) modelAnswer {
		if n == 1 {
			once.Do(func() { close(reached) })
			<-leave
			return modelAnswer{text: "Result: of the gateway that was stopped"}
		}
		return answer(n, r)
	})
	p := newPair(t, pgtest.Start(t).Database(t), model)
	said := sendTo(t, p.annA, "s1", "count")
	<-reached
	run := runIn(t, p.annA, "s1", "working")
	follower := listen(t, p.a, p.token, run.ID)
	if err := p.a.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("stop: got %v, want no error", err)
	}
	waits := runIn(t, p.annB, "s1", "waiting")
	close(leave)
	if err := p.a.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("continue: got %v, want no error", err)
	}
	// The first gateway has the answer of the model now, and must not store it. Its reader receives what
	// the other gateway does.
	if r := <-said; r.Run != run.ID || r.Type != "confirmation" {
		t.Errorf("the reply at the first gateway: got %+v, want that the run %s waits", r, run.ID)
	}
	p.a.decide(t, waits.Approval, "once")
	if got := runIn(t, p.annA, "s1", "completed", "failed", "cancelled"); got.ID != run.ID || got.State != "completed" {
		t.Errorf("the run: got %+v, want %s completed", got, run.ID)
	}
	count, last := p.a.replies(t, p.annA, "s1")
	if h := <-follower; lines(file) != 1 || count != 1 || strings.Contains(last, "was stopped") || !h.end || h.text != last {
		t.Errorf("effects %d, replies %d with %q, and %+v at the first gateway; want one of each, of the second gateway", lines(file), count, last, h)
	}
	// It carries new runs.
	said = sendTo(t, p.annA, "s2", "count")
	again := runIn(t, p.annA, "s2", "waiting")
	p.a.decide(t, again.Approval, "once")
	<-said
	if got := runIn(t, p.annA, "s2", "completed", "failed"); got.State != "completed" || lines(file) != 2 {
		t.Errorf("a new run of the first gateway: got %+v with %d effects, want it completed with the second", got, lines(file))
	}
}

// What a person does at one gateway reaches the run that the other one carries.
func TestARunIsAnsweredAtAnyGateway(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "count")
	answer := counts(file)
	model := newScriptedModel(t, func(n int, r modelRequest) modelAnswer {
		a := answer(n, r)
		if r.results() > 0 {
			for _, m := range r.Messages {
				if s, _ := m.Content.(string); m.Role == "user" && strings.Contains(s, "and greet") {
					a.text += " Greetings."
				}
			}
		}
		return a
	})
	p := newPair(t, pgtest.Start(t).Database(t), model)

	// A message in the conversation goes to the run, which then waits for the same approval; approving it
	// at the other gateway continues it.
	<-sendTo(t, p.annA, "s1", "count")
	run := runIn(t, p.annA, "s1", "waiting")
	r := <-sendTo(t, p.annB, "s1", "and greet")
	if r.Run != run.ID || r.Type != "confirmation" {
		t.Errorf("a message at the other gateway: got %+v, want the confirmation of the run %s", r, run.ID)
	}
	p.b.decide(t, run.Approval, "once")
	if got := runIn(t, p.annB, "s1", "completed", "failed", "cancelled"); got.ID != run.ID || got.State != "completed" {
		t.Errorf("the run: got %+v, want %s completed", got, run.ID)
	}
	if count, last := p.b.replies(t, p.annB, "s1"); count != 1 || lines(file) != 1 || !strings.Contains(last, "Greetings.") {
		t.Errorf("got %d replies, the last %q, and %d effects; want one with the greeting, and one", count, last, lines(file))
	}

	// Each of three ways to cancel it at the other gateway.
	for session, cancel := range map[string]func(run string) error{
		"by its id": func(run string) error {
			return p.annB.Do(t.Context(), http.MethodPost, "/api/v1/agent/runs/"+run+"/cancel", nil, nil)
		},
		"as a task": func(run string) error {
			return p.annB.Do(t.Context(), http.MethodPost, "/api/v1/tasks/"+run+"/cancel", nil, nil)
		},
		"in the conversation": func(string) error {
			return p.annB.Do(t.Context(), http.MethodPost, "/api/v1/chat/messages", map[string]any{"session": "in-the-conversation", "text": "/stop"}, nil)
		},
	} {
		session = strings.ReplaceAll(session, " ", "-")
		<-sendTo(t, p.annA, session, "count")
		run := runIn(t, p.annA, session, "waiting")
		if err := cancel(run.ID); err != nil {
			t.Errorf("cancel it %s: got %v, want no error", session, err)
		}
		if got := runIn(t, p.annB, session, "completed", "failed", "cancelled"); got.ID != run.ID || got.State != "cancelled" {
			t.Errorf("the run cancelled %s: got %+v, want %s cancelled", session, got, run.ID)
		}
		eventually(t, "its task is cancelled", func() bool { return taskState(t, p.annB, run.ID) == "cancelled" })
	}
	if lines(file) != 1 {
		t.Errorf("effects: got %d, want only that of the first run", lines(file))
	}
}
