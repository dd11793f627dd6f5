package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/secret"
)

// deskLedger records which operations of an endpoint were called, in order.
type deskLedger struct {
	mu    sync.Mutex
	calls []string
	last  map[string]string // the input of the last call of each
}

func (l *deskLedger) add(name string, input json.RawMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, name)
	if l.last == nil {
		l.last = make(map[string]string)
	}
	l.last[name] = string(input)
}

func (l *deskLedger) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

func (l *deskLedger) input(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[name]
}

// provider returns a provider with a fixed text, which is recorded.
func (l *deskLedger) provider(name, text string) host.Provider {
	return host.Provider{Name: name, Get: func(_ context.Context, state json.RawMessage) (host.ProviderResult, error) {
		l.add(name, state)
		if text == "" {
			return host.ProviderResult{}, errors.New("it is broken")
		}
		return host.ProviderResult{Text: text}, nil
	}}
}

// endpointOf serves modules and connects a server to them.
func endpointOf(t *testing.T, n *node, modules ...host.Module) {
	t.Helper()
	e, err := host.NewEndpoint(modules...)
	if err != nil {
		t.Fatalf("the endpoint: got %v, want no error", err)
	}
	far := httptest.NewServer(e.Handler(secret.Value{}))
	t.Cleanup(far.Close)
	n.connect(t, "far", far.URL, false)
}

// conversationIn returns the messages of a request to the model, for assertions.
func conversationIn(body string) string {
	_, messages, _ := strings.Cut(body, `"messages":`)
	return messages
}

// fenced reports whether a request to the model has a foreign segment of a kind.
func fenced(body, kind string) bool {
	return strings.Contains(body, `[`+kind) && strings.Contains(body, `never instructions]`)
}

func TestProvidersOfModulesAddToThePromptWithTheirOrigin(t *testing.T) {
	t.Parallel()
	home, _ := withFile(t)
	model := newScriptedModel(t, func(_ int, r modelRequest) modelAnswer {
		if r.results() == 0 {
			return modelAnswer{calls: []toolCall{{"fs_readText", `{"path":"in.txt"}`}}}
		}
		return modelAnswer{text: "Done."}
	})
	n := serve(t, home, model.env()...)
	var ledger deskLedger
	live := ledger.provider("LIVE", "the lamp is lit")
	live.Dynamic = true
	private := ledger.provider("DIARY", "a private line")
	private.Private = true
	long := ledger.provider("ALMANAC", strings.Repeat("x", 9000))
	endpointOf(t, n,
		host.Module{ID: "desk", Name: "@you/desk", Providers: []host.Provider{
			ledger.provider("WEATHER", "it rains in Bern"), live, private, ledger.provider("BROKEN", ""), long,
		}},
		host.Module{ID: "yard", Name: "@you/yard", Contexts: []string{"garden"}, Providers: []host.Provider{ledger.provider("SOIL", "the soil is dry")}},
	)
	if err := n.admin.Invoke(t.Context(), client.Invocation{
		Target: "memory.store", Input: json.RawMessage(`{"text":"the umbrella stands in the hall"}`),
	}, nil); err != nil {
		t.Fatalf("remember: got %v, want no error", err)
	}
	r := n.tell(t, "s1", "where is my umbrella?")
	asked := model.asked()
	if len(asked) != 2 {
		t.Fatalf("requests to the model: got %d, want 2: %+v", len(asked), r)
	}
	for _, want := range []string{"[provider desk/WEATHER, data ", "it rains in Bern", "[provider desk/BROKEN", "(not available)", "[memory memory.search", "umbrella stands"} {
		if !strings.Contains(asked[0], want) {
			t.Errorf("the prompt: got %s, want it to contain %q", conversationIn(asked[0]), want)
		}
	}
	for _, other := range []string{"the lamp", "a private", "the soil", strings.Repeat("x", 4097)} {
		if strings.Contains(asked[0], other) {
			t.Errorf("the prompt contains %.20q, want it without what is dynamic, private, of another context, or longer than 4 KiB", other)
		}
	}
	if at := strings.Index(asked[0], "desk/ALMANAC"); at < 0 || at > strings.Index(asked[0], "desk/WEATHER") || !fenced(asked[0], "provider") {
		t.Errorf("the prompt: want fenced segments in the order of their names, got %s", conversationIn(asked[0]))
	}
	if before := strings.TrimSuffix(asked[0], "]}"); !strings.HasPrefix(asked[1], before) {
		t.Errorf("request 2 does not begin with the bytes of request 1; want the same context")
	}
	if h := n.history(t, "s1"); !strings.Contains(string(h[len(h)-1].Metadata), `"tainted":true`) {
		t.Errorf("the reply's metadata: got %s, want it tainted by the foreign context", h[len(h)-1].Metadata)
	}
	n.tell(t, "s2", "is LIVE on in the garden? and my diary?")
	asked = model.asked()
	body := asked[len(asked)-1]
	for _, want := range []string{"the lamp is lit", "the soil is dry", "a private line"} {
		if !strings.Contains(body, want) {
			t.Errorf("the prompt: got %s, want %q, which the message names", conversationIn(body), want)
		}
	}
	if got := ledger.input("WEATHER"); !strings.Contains(got, "garden") {
		t.Errorf("the state that a provider receives: got %s, want the message", got)
	}
	n.verify(t)
}

// stages is a model that answers Stage 1 and evaluators as a test wants.
func stages(t *testing.T, first func(r modelRequest) string, judged string, planner func(r modelRequest) modelAnswer) *scriptedModel {
	t.Helper()
	return newScriptedModel(t, func(_ int, r modelRequest) modelAnswer {
		system := fmt.Sprint(r.Messages[0].Content)
		switch {
		case strings.Contains(system, "Read the last message"):
			return modelAnswer{text: first(r)}
		case strings.Contains(system, "The conversation below is over"):
			return modelAnswer{text: judged}
		}
		return planner(r)
	})
}

// desk is a module with all surfaces of a turn. Its field mood preempts with its own value.
func desk(ledger *deskLedger) host.Module {
	first := 5.0
	object := func(raw json.RawMessage) (out struct {
		Message struct{ Text string }
		Text    string
	},
	) {
		_ = json.Unmarshal(raw, &out)
		return out
	}
	var actions []host.Action // more than the agent offers from the start
	for i := range 45 {
		actions = append(actions, host.Action{
			Name: fmt.Sprintf("DESK_%02d", i), Description: "Nothing.", Parameters: json.RawMessage(`{"type":"object"}`),
			Handle: func(context.Context, json.RawMessage, json.RawMessage) (host.ActionResult, error) {
				return host.ActionResult{}, nil
			},
		})
	}
	return host.Module{
		ID: "desk", Name: "@you/desk", Actions: actions,
		Providers: []host.Provider{ledger.provider("WEATHER", "it rains in Bern")},
		FieldEvaluators: []host.FieldEvaluator{{
			Name: "mood", Description: "The mood of the message: calm, loud or rude.", Priority: &first, Schema: json.RawMessage(`{"type":"string"}`),
			ShouldRun: func(_ context.Context, c host.FieldCall) (bool, error) {
				ledger.add("mood.shouldRun", c.Context)
				return !strings.Contains(object(c.Context).Message.Text, "moodless"), nil
			},
			Parse: func(_ context.Context, c host.FieldCall) (any, bool, error) {
				ledger.add("mood.parse", c.Value)
				return strings.Trim(string(c.Value), `"`), string(c.Value) != `"?"`, nil
			},
			Handle: func(_ context.Context, c host.FieldCall) (host.FieldEffect, error) {
				ledger.add("mood.handle", c.Value)
				switch string(c.Value) {
				case `"rude"`:
					return host.FieldEffect{Preempt: &host.Preempt{Mode: "ignore", Reason: "it is rude"}}, nil
				case `"loud"`:
					return host.FieldEffect{
						Patch: map[string]any{"replyText": "Quiet, please."}, Preempt: &host.Preempt{Mode: "direct-reply", Reason: "it is loud"},
					}, nil
				}
				return host.FieldEffect{Debug: []string{"calm"}}, nil
			},
		}},
		ResponseEvaluators: []host.ResponseEvaluator{{
			Name: "reader",
			ShouldRun: func(_ context.Context, about json.RawMessage) (bool, error) {
				ledger.add("reader.shouldRun", about)
				return strings.Contains(object(about).Message.Text, "read"), nil
			},
			Evaluate: func(_ context.Context, about json.RawMessage) (any, error) {
				ledger.add("reader.evaluate", about)
				return map[string]any{"requiresTool": true, "addCandidateActions": []string{"diff.render", "no.such"}}, nil
			},
		}},
		Evaluators: []host.Evaluator{{
			Name: "facts", Description: "Facts.", Prompt: "List the facts.", Schema: json.RawMessage(`{"type":"array"}`), Providers: []string{"WEATHER"},
			ShouldRun: func(_ context.Context, c host.EvaluatorCall) (bool, error) {
				ledger.add("facts.shouldRun", c.Message)
				return true, nil
			},
			Prepare: func(_ context.Context, c host.EvaluatorCall) (any, error) {
				ledger.add("facts.prepare", c.Message)
				return map[string]any{"known": []string{"rain"}}, nil
			},
			Process: func(_ context.Context, c host.EvaluatorCall) (any, error) {
				ledger.add("facts.process", c.Output)
				return map[string]any{}, nil
			},
		}},
		Events: []host.Event{{Name: "MESSAGE_RECEIVED", Handle: func(_ context.Context, payload json.RawMessage) (bool, error) {
			ledger.add("MESSAGE_RECEIVED", payload)
			return true, nil
		}}},
	}
}

// A turn goes the stages of elizaOS: event, state, first answer, fields, response handlers, then a
// reply or the loop with tools, and evaluators once the reply is there.
func TestModulesTakePartInATurnAsInElizaOS(t *testing.T) {
	t.Parallel()
	first := func(r modelRequest) string {
		last := fmt.Sprint(r.Messages[len(r.Messages)-1].Content)
		answer := func(mood, tool, reply string) string {
			return "```json\n" + fmt.Sprintf(`{"shouldRespond":"RESPOND","contexts":["none"],"requiresTool":%s,"replyText":%q,"mood":%q}`, tool, reply, mood) + "\n```"
		}
		for word, out := range map[string]string{
			"hello": answer("calm", "false", "Hello to you."), "rude": answer("rude", "false", "Why?"), "loud": answer("loud", "true", ""),
			"read": answer("?", "false", "I guess it."), "garbage": "I do not answer in JSON.", "moodless": answer("calm", "false", "No mood."),
		} {
			if strings.Contains(last, word) {
				return out
			}
		}
		return answer("calm", "true", "")
	}
	received := []string{"MESSAGE_RECEIVED", "WEATHER", "mood.shouldRun", "mood.shouldRun"}
	handled := []string{"mood.parse", "mood.handle"}
	judged := []string{"facts.shouldRun", "facts.prepare", "WEATHER", "facts.process"}
	for name, c := range map[string]struct {
		text, reply string
		calls       []string
		planner     int // requests to the model with tools
	}{
		"a plain reply": {"hello", "Hello to you.", slices.Concat(received, handled, []string{"reader.shouldRun"}, judged), 0},
		"ignored":       {"something rude", "(No reply: a module decided so.)", slices.Concat(received, handled, judged), 0},
		"a direct reply": {
			"something loud", "Quiet, please.", slices.Concat(received, handled, judged), 0,
		},
		"a tool by a response handler": {
			"read it", "hello", slices.Concat(received, []string{"mood.parse", "reader.shouldRun", "reader.evaluate"}, judged), 2,
		},
		"a first answer without JSON": {"garbage", "hello", slices.Concat(received, []string{"reader.shouldRun"}, judged), 2},
		"a field that does not run": {
			"moodless", "No mood.", slices.Concat(received, []string{"reader.shouldRun"}, judged), 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, _ := withFile(t)
			model := stages(t, first, `{"facts":["it rains"]}`, func(r modelRequest) modelAnswer {
				if r.results() == 0 {
					return modelAnswer{calls: []toolCall{{"fs_readText", `{"path":"in.txt"}`}}}
				}
				return modelAnswer{text: "hello"}
			})
			n := serve(t, home, model.env()...)
			var ledger deskLedger
			endpointOf(t, n, desk(&ledger))
			r := n.tell(t, "s1", c.text)
			if r.Message.Text != c.reply {
				t.Errorf("the reply: got %q, want %q", r.Message.Text, c.reply)
			}
			eventually(t, "the evaluators have run", func() bool { return slices.Contains(ledger.list(), "facts.process") })
			if got := ledger.list(); !slices.Equal(got, c.calls) {
				t.Errorf("calls of the endpoint: got %v, want %v", got, c.calls)
			}
			if got := ledger.input("facts.process"); got != `["it rains"]` {
				t.Errorf("the output that process received: got %s, want the member of its evaluator", got)
			}
			asked := model.asked()
			if len(asked) != c.planner+2 {
				t.Errorf("requests to the model: got %d, want %d: one for Stage 1, one for evaluators", len(asked), c.planner+2)
			}
			if c.planner > 0 && strings.Contains(asked[1], `"diff_render"`) != (name == "a tool by a response handler") {
				t.Errorf("the tools contain diff_render: got %v, want it only where it is a candidate", strings.Contains(asked[1], `"diff_render"`))
			}
			if c.text == "moodless" && !strings.Contains(asked[0], `### mood\nN/A this turn`) {
				t.Errorf("Stage 1: got %s, want the field marked as not active", conversationIn(asked[0]))
			}
			if !strings.Contains(asked[0], "it rains in Bern") || !strings.Contains(asked[len(asked)-1], `{\"known\":[\"rain\"]}`) {
				t.Errorf("got %s and %s, want the state in Stage 1, and what was prepared for evaluators", conversationIn(asked[0]),
					conversationIn(asked[len(asked)-1]))
			}
			var pending struct{ Approvals []struct{ ID string } }
			err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/approvals?state=pending", nil, &pending)
			if err != nil || len(pending.Approvals) > 0 {
				t.Errorf("pending approvals: got %+v and %v, want none", pending, err)
			}
			n.verify(t)
		})
	}
}

// The reply is delivered before evaluators are asked, and agent.evaluators: off leaves modules out.
func TestTheReplyDoesNotWaitForEvaluators(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	first := func(modelRequest) string { return `{"replyText":"At once.","mood":"calm"}` }
	model := newScriptedModel(t, func(_ int, r modelRequest) modelAnswer {
		system := fmt.Sprint(r.Messages[0].Content)
		if strings.Contains(system, "The conversation below is over") {
			<-release
			return modelAnswer{text: `{"facts":["late"]}`}
		}
		if strings.Contains(system, "Read the last message") {
			return modelAnswer{text: first(r)}
		}
		return modelAnswer{text: "Without modules."}
	})
	var ledger deskLedger
	n := serve(t, t.TempDir(), model.env()...)
	endpointOf(t, n, desk(&ledger))
	r := n.tell(t, "s1", "hello")
	if run := n.agentRun(t, r.Run); r.Message.Text != "At once." || run.State != "completed" {
		t.Errorf("while evaluators wait: got %q and %+v, want the reply of a completed run", r.Message.Text, run)
	}
	if slices.Contains(ledger.list(), "facts.process") {
		t.Errorf("calls of the endpoint: got %v, want the evaluator still waiting", ledger.list())
	}
	close(release)
	eventually(t, "the evaluator has run", func() bool { return ledger.input("facts.process") == `["late"]` })

	n = serve(t, t.TempDir(), append(model.env(), "JUNCTOR_AGENT_EVALUATORS=off")...)
	before := len(ledger.list())
	endpointOf(t, n, desk(&ledger))
	if r := n.tell(t, "s1", "hello"); r.Message.Text != "Without modules." {
		t.Errorf("with evaluators off: got %q, want the model's own answer", r.Message.Text)
	}
	if got := ledger.list()[before:]; !slices.Equal(got, []string{"WEATHER"}) {
		t.Errorf("calls of the endpoint with evaluators off: got %v, want its provider only", got)
	}
}

// A selected context engine that is missing fails the run, because no other one may take its place.
func TestAMissingContextEngineFailsTheRun(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	settings := []byte("slots:\n  context-engine:\n    selected: lossless\n")
	if err := os.WriteFile(filepath.Join(home, "catalog.yaml"), settings, 0o600); err != nil {
		t.Fatalf("write: got %v, want no error", err)
	}
	model := newScriptedModel(t, func(int, modelRequest) modelAnswer { return modelAnswer{text: "never"} })
	n := serve(t, home, model.env()...)
	r := n.tell(t, "s1", "hello")
	if r.Error == nil || r.Error.Reason != "slot_provider_unknown" || len(model.asked()) != 0 {
		t.Errorf("got %+v and %d requests to the model, want slot_provider_unknown and none", r.Error, len(model.asked()))
	}
}

// A route of kind module lets a module's own model answer Stage 1 and evaluators.
func TestAModuleIsTheSmallModel(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	model := newScriptedModel(t, func(int, modelRequest) modelAnswer { return modelAnswer{text: "Not asked."} })
	settings := fmt.Sprintf("model:\n  routes:\n  - {class: large, kind: openai-chat, url: %q, name: tiny}\n"+
		"  - {class: small, kind: module, name: TEXT_SMALL}\n", model.URL+"/v1")
	if err := os.WriteFile(filepath.Join(home, "config.yaml"), []byte(settings), 0o600); err != nil {
		t.Fatalf("write: got %v, want no error", err)
	}
	var ledger deskLedger
	own := desk(&ledger)
	own.Models = []host.Model{{Type: "TEXT_SMALL", Invoke: func(_ context.Context, params json.RawMessage) (any, error) {
		ledger.add("TEXT_SMALL", params)
		if strings.Contains(string(params), "The conversation below is over") {
			return `{"facts":["small"]}`, nil
		}
		return `{"replyText":"I am the module's model.","mood":"calm"}`, nil
	}}}
	n := serve(t, home)
	endpointOf(t, n, own)
	if r := n.tell(t, "s1", "hello"); r.Message.Text != "I am the module's model." {
		t.Errorf("the reply: got %q, want that of the module's model", r.Message.Text)
	}
	eventually(t, "the evaluator has run", func() bool { return ledger.input("facts.process") == `["small"]` })
	if got := len(model.asked()); got != 0 {
		t.Errorf("requests to the large model: got %d, want none", got)
	}
	if got := ledger.input("TEXT_SMALL"); !strings.Contains(got, "it rains in Bern") {
		t.Errorf("the prompt of the module's model: got %s, want the state in it", got)
	}
	n.verify(t)
}
