package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// TestTheAgentSurvivesKill9 kills the server at each point of a run, starts it again, approves what
// waits, and counts the effect at the endpoint.
func TestTheAgentSurvivesKill9(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// at is the point: while the model is asked for the first or second time, or while the run
		// waits for the approval.
		at string
	}{
		"the model is asked": {"1"}, "it waits for an approval": {"waiting"}, "the model is asked after the call": {"2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, file := t.TempDir(), filepath.Join(t.TempDir(), "count")
			reached, leave := make(chan struct{}), make(chan struct{})
			var once sync.Once
			answer := counts(file)
			model := newScriptedModel(t, func(n int, r modelRequest) modelAnswer {
				if fmt.Sprint(n) == c.at {
					once.Do(func() { close(reached) })
					<-leave
				}
				return answer(n, r)
			})
			endpoint := spawn(t, "endpoint", nil, "127.0.0.1:0", "trial")
			n := serve(t, home, model.env()...)
			n.connect(t, "trial", endpoint.first, true)
			said := make(chan error, 1)
			go func() {
				said <- n.admin.Do(t.Context(), http.MethodPost, "/api/v1/chat/messages", map[string]any{"session": "s1", "text": "count"}, nil)
			}()
			waits := func() agentRun {
				var list struct{ Runs []agentRun }
				if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/agent/runs", nil, &list); err != nil {
					t.Fatalf("runs: got %v, want no error", err)
				}
				if len(list.Runs) == 0 {
					return agentRun{}
				}
				return list.Runs[0]
			}
			approve := func() (run agentRun) {
				eventually(t, "the run waits", func() bool { run = waits(); return run.State == "waiting" })
				n.decide(t, run.Approval, "once")
				return run
			}
			switch c.at {
			case "waiting":
				eventually(t, "the run waits", func() bool { return waits().State == "waiting" })
			case "2":
				approve()
				<-reached
			default:
				<-reached
			}
			n.kill()
			close(leave)
			<-said // it failed, or had the answer that the run waits
			n = serve(t, home, model.env()...)
			run := waits()
			if c.at != "2" {
				run = approve()
			}
			if got := n.ended(t, run.ID); got.State != "completed" {
				t.Errorf("the run: got %+v, want it completed", got)
			}
			replies := 0
			for _, m := range n.history(t, "s1") {
				if m.Role == "assistant" && strings.Contains(m.Text, "Result: ") {
					replies++
				}
			}
			if got := lines(file); got != 1 || replies != 1 {
				t.Errorf("the call's effect and its replies: got %d and %d, want 1 and 1: %+v", got, replies, n.history(t, "s1"))
			}
			n.verify(t)
		})
	}
}

// A call that was under way when the server was killed is not made again.
func TestACallOfTheAgentThatWasInterruptedIsNotRepeated(t *testing.T) {
	t.Parallel()
	home, mark := t.TempDir(), filepath.Join(t.TempDir(), "called")
	model := newScriptedModel(t, func(_ int, r modelRequest) modelAnswer {
		if r.results() > 0 {
			return modelAnswer{text: "Result: " + r.last()}
		}
		for _, tool := range r.Tools {
			if strings.Contains(strings.ToLower(tool.Function.Name), "hang") {
				return modelAnswer{calls: []toolCall{{tool.Function.Name, fmt.Sprintf(`{"file":%q}`, mark)}}}
			}
		}
		return modelAnswer{text: "HANG is not offered"}
	})
	endpoint := spawn(t, "endpoint", nil, "127.0.0.1:0", "trial")
	n := serve(t, home, model.env()...)
	n.connect(t, "trial", endpoint.first, true)
	r := n.tell(t, "s1", "hang")
	n.decide(t, n.agentRun(t, r.Run).Approval, "once")
	eventually(t, "the endpoint is called", func() bool { return exists(mark) })
	n.kill()
	if err := os.Remove(mark); err != nil {
		t.Fatalf("remove: got %v, want no error", err)
	}
	n = serve(t, home, model.env()...)
	if got := n.ended(t, r.Run); got.State != "completed" || exists(mark) {
		t.Errorf("the run: got %+v and called again %v, want it completed without a second call", got, exists(mark))
	}
	history := n.history(t, "s1")
	if last := history[len(history)-1].Text; !strings.Contains(last, "its outcome is unknown") {
		t.Errorf("the reply: got %q, want it to have that the outcome is unknown", last)
	}
}

// runReader collects the text of a run, as a client does that returns with the id of its last event.
type runReader struct {
	last  string
	steps []int64
	texts map[int64]string
}

// read follows the run until it ends or the server does.
func (r *runReader) read(ctx context.Context, n *node, id string) {
	path := "/api/v1/agent/runs/" + id + "/events?after=" + r.last
	for line, err := range n.admin.Lines(ctx, http.MethodGet, path, nil) {
		var ev struct {
			ID, Type, Text string
			Step           int64
		}
		if err != nil || json.Unmarshal(line, &ev) != nil {
			return
		}
		r.last = ev.ID
		switch ev.Type {
		case "text":
			if !slices.Contains(r.steps, ev.Step) {
				r.steps = append(r.steps, ev.Step)
			}
			r.texts[ev.Step] += ev.Text
		case "text_reset":
			r.texts[ev.Step] = ""
		}
	}
}

func (r *runReader) text() (text string) {
	for _, step := range r.steps {
		text += r.texts[step]
	}
	return text
}

func TestKill9AtAnyInstantLosesNothingOfTheAgent(t *testing.T) { agentKills(t, 20) }

// agentKills kills the server at random instants of a run, in which the model reads, calls an endpoint
// and reports, and counts the effect at the endpoint. A client that follows the run returns after each kill,
// and has the whole text.
func agentKills(t *testing.T, rounds int) {
	t.Helper()
	home, _ := withFile(t)
	count := filepath.Join(t.TempDir(), "count")
	model := newScriptedModel(t, func(_ int, r modelRequest) modelAnswer {
		file := ""
		for _, m := range r.Messages {
			if s, _ := m.Content.(string); m.Role == "user" && strings.HasPrefix(s, "count in ") {
				file, _, _ = strings.Cut(strings.TrimPrefix(s, "count in "), "\n")
			}
		}
		switch r.results() {
		case 0:
			return modelAnswer{text: "I look at three places. ", calls: []toolCall{
				{"fs_readText", `{"path":"in.txt"}`}, {"fs_list", `{}`}, {"fs_readText", `{"path":"in.txt","maxBytes":2}`},
			}}
		case 3:
			return counts(file)(0, modelRequest{Tools: r.Tools})
		}
		return modelAnswer{text: "Result: " + r.last()}
	})
	endpoint := spawn(t, "endpoint", nil, "127.0.0.1:0", "trial")
	n := serve(t, home, model.env()...)
	n.connect(t, "trial", endpoint.first, true)
	unknown := 0
	for round := range rounds {
		file, session := fmt.Sprintf("%s-%d", count, round), fmt.Sprintf("s%d", round)
		said := make(chan error, 1)
		go func(n *node) {
			said <- n.admin.Do(t.Context(), http.MethodPost, "/api/v1/chat/messages",
				map[string]any{"session": session, "text": "count in " + file}, nil)
		}(n)
		find := func() (run agentRun) {
			var list struct{ Runs []agentRun }
			if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/agent/runs?session="+session, nil, &list); err == nil && len(list.Runs) > 0 {
				run = list.Runs[0]
			}
			return run
		}
		eventually(t, "the run has begun", func() bool { return find().ID != "" })
		id := find().ID
		reader, left := &runReader{texts: make(map[int64]string)}, make(chan struct{})
		go func(n *node) {
			reader.read(t.Context(), n, id)
			close(left)
		}(n)
		if round%2 == 1 { // kill it after the approval
			eventually(t, "the run waits", func() bool { return find().State == "waiting" })
			n.decide(t, find().Approval, "once")
		}
		timer := time.NewTimer(time.Duration(rand.IntN(40)) * time.Millisecond)
		<-timer.C
		n.kill()
		<-said
		<-left
		n = serve(t, home, model.env()...)
		eventually(t, "the run waits or has ended", func() bool { s := find().State; return s != "" && s != "working" })
		if run := find(); run.State == "waiting" { // it may have been decided before
			err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/approvals/"+run.Approval, map[string]string{"decision": "once"}, nil)
			if code := capability.CodeOf(err); err != nil && code != capability.CodeConflict {
				t.Errorf("round %d: approve: got %v, want no error", round, err)
			}
		}
		if got := n.ended(t, id); got.State != "completed" {
			t.Errorf("round %d: got %+v, want it completed", round, got)
		}
		history := n.history(t, session)
		last, replies := history[len(history)-1].Text, 0
		for _, m := range history {
			if m.Role == "assistant" && strings.Contains(m.Text, "Result: ") {
				replies++
			}
		}
		if reader.read(t.Context(), n, id); reader.text() != last {
			t.Errorf("round %d: a client that returned: got the text %q, want %q", round, reader.text(), last)
		}
		interrupted := strings.Contains(last, "outcome is unknown")
		if interrupted {
			unknown++
		}
		if got := lines(file); replies != 1 || got != 1 && (got != 0 || !interrupted) {
			t.Errorf("round %d: got %d effects and %d replies with %q, want 1 and 1", round, got, replies, last)
		}
	}
	t.Logf("%d rounds, %d with an outcome that is unknown", rounds, unknown)
	n.verify(t)
}
