package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// answering is a path that answers calls with a function.
type answering struct {
	instant
	do func(inv capability.Invocation) (string, error)
}

func (p answering) Invoke(_ context.Context, inv capability.Invocation) (invoke.Reply, error) {
	result, err := p.do(inv)
	return invoke.Reply{Invocation: "run_1", State: invoke.StateCompleted, Result: json.RawMessage(result)}, err
}

// recorder is a model that records its requests, and answers each with the next text; the last one
// remains.
type recorder struct {
	mu       sync.Mutex
	requests []modelwire.Request
	answers  []string
}

func (m *recorder) Exchange(_ context.Context, req modelwire.Request, _ func(modelwire.Delta) error) (modelwire.Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, req)
	text := m.answers[min(len(m.requests), len(m.answers))-1]
	return modelwire.Reply{Stop: modelwire.StopEnd, Message: modelwire.Message{
		Role: modelwire.Assistant, Blocks: []modelwire.Block{{Kind: modelwire.Text, Text: text}},
	}}, nil
}

func budget() agent.Budget { return agent.Budget{ModelCalls: 8, ToolCalls: 8, Work: time.Minute} }

// engineCatalog is a catalog whose slot context-engine is held by a module.
func engineCatalog(t *testing.T) *compile.Compiler {
	t.Helper()
	c := catalogtest.New(t)
	m := capability.Module{Extension: "lossless", ID: "lossless", Origin: "extension", Contributions: []capability.Contribution{{
		ID: "engine", Kind: "capability.context-engine", Effect: capability.EffectRead,
		Provider:    capability.NewProviderKey("context-engine", "lossless", "default"),
		Arbitration: &capability.Arbitration{Slot: catalog.SlotContextEngine, SelectorID: "builtin"},
	}}}
	if _, _, err := c.ReplaceAll([]capability.Batch{{Source: "x", Modules: []capability.Module{m}}}); err != nil {
		t.Fatalf("fill the catalog: got %v, want no error", err)
	}
	return compile.New(c)
}

func TestTheContextEngineReplacesTheConversation(t *testing.T) {
	for answer, want := range map[string]string{
		`{"messages":[{"role":"user","text":"short"},{"role":"assistant","text":"yes"},{"role":"user","text":"go"}]}`: "short|yes|go",
		`{"messages":[{"role":"assistant","text":"cut"},{"role":"user","text":"go on"}]}`:                             "go on",
		`{"messages":[{"role":"user","text":"go"},{"role":"assistant","text":"yes"}]}`:                                "",
		`{"messages":[]}`: "",
		`7`:               "",
		`{"messages":[{"role":"user","text":"` + strings.Repeat("x", 300<<10) + `"}]}`: "",
	} {
		model := &recorder{answers: []string{"done"}}
		var sent string
		e := opened(t, agent.Config{Model: model, Policy: free{}, Budget: budget(), Path: answering{
			instant{engineCatalog(t)}, func(inv capability.Invocation) (string, error) {
				sent = string(inv.Input)
				return answer, nil
			},
		}})
		o := ended(t, e, "go")
		if !strings.Contains(sent, `{"role":"user","text":"go"}`) {
			t.Errorf("the engine received %s, want the conversation", sent)
		}
		got := ""
		if len(model.requests) > 0 {
			var texts []string
			for _, m := range model.requests[0].Messages {
				texts = append(texts, m.Text())
			}
			got = strings.Join(texts, "|")
		}
		if got != want || (want == "") != (o.State == agent.Failed) || want != "" && !o.Tainted {
			t.Errorf("%.60s: got %q, %s and tainted %v, want %q, tainted", answer, got, o.State, o.Tainted, want)
		}
	}
}

// ended sends a message and returns the outcome of its run.
func ended(t testing.TB, e *agent.Engine, text string) agent.Outcome {
	t.Helper()
	f, err := e.Send(t.Context(), agent.Message{
		Person: capability.Principal{ID: "admin:a", Role: capability.RoleAdmin}, Session: "s", Text: text, Turns: []agent.Turn{{Text: text}},
	})
	if err != nil {
		t.Fatalf("send: got %v, want no error", err)
	}
	defer f.Close()
	for {
		ev, err := f.Next(t.Context())
		if err != nil {
			t.Fatalf("next: got %v, want no error", err)
		}
		if ev.Type == "end" {
			return *ev.Outcome
		}
	}
}

// Context has a limit of bytes for each source and for all, and a marker that differs from run to run.
func TestContextIsBounded(t *testing.T) {
	c := catalogtest.New(t)
	var modules []capability.Module
	for i := range 12 {
		id := fmt.Sprintf("m%02d", i)
		modules = append(modules, capability.Module{
			Extension: "remote." + id, ID: id, Origin: "endpoint", Manifest: json.RawMessage(`{"id":"` + id + `","name":"m","providers":[{"name":"P` + id + `"}]}`),
			Contributions: []capability.Contribution{{
				ID: "provider.P" + id, Kind: "capability.context-augmenter", Effect: capability.EffectRead,
				Provider: capability.NewProviderKey("ext", "endpoint", "far"), Member: capability.Member{Module: id, Kind: "provider", Name: "P" + id},
			}},
		})
	}
	if _, _, err := c.ReplaceAll([]capability.Batch{{Source: "x", Modules: modules}}); err != nil {
		t.Fatalf("fill the catalog: got %v, want no error", err)
	}
	model := &recorder{answers: []string{"done"}}
	long, err := json.Marshal(map[string]string{"text": strings.Repeat("é", 5000) + "[end of provider"})
	if err != nil {
		t.Fatalf("marshal: got %v, want no error", err)
	}
	e := opened(t, agent.Config{Model: model, Policy: free{}, Budget: budget(), Path: answering{
		instant{compile.New(c)}, func(capability.Invocation) (string, error) { return string(long), nil },
	}})
	ended(t, e, "go")
	ended(t, e, "go")
	markers := make(map[string]bool)
	for _, req := range model.requests {
		size, message := 0, req.Messages[len(req.Messages)-1]
		for _, b := range message.Blocks[:len(message.Blocks)-1] {
			size += strings.Count(b.Text, "é") * 2
			if n := strings.Count(b.Text, "é") * 2; n > 4<<10 {
				t.Errorf("one source has %d bytes, want at most 4 KiB", n)
			}
			_, rest, _ := strings.Cut(b.Text, ", data ")
			marker, _, _ := strings.Cut(rest, ":")
			markers[marker] = true
		}
		if size > 16<<10 || size < 15<<10 || message.Blocks[len(message.Blocks)-1].Text != "go" {
			t.Errorf("the context has %d bytes, and the message ends with %q, want up to 16 KiB, and the person's text", size,
				message.Blocks[len(message.Blocks)-1].Text)
		}
	}
	if len(markers) != 2 {
		t.Errorf("markers of two runs: got %v, want two", markers)
	}
}
