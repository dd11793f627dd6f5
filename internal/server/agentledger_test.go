package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/platform/approvalhook"
	"github.com/junctor-run/junctor/secret"
)

// turnLedger is what an endpoint recorded of one message, and what became of the message. The files in
// testdata/ledgers hold lists of these.
type turnLedger struct {
	Name string `json:"name"`
	Room string `json:"room"` // dm, group, mention or named
	Text string `json:"text"`
	// Calls are the calls in their order: method, item, and the names of the arguments.
	Calls    []string `json:"calls"`
	Decision string   `json:"decision"` // RESPOND, IGNORE or STOP; "" without a plan
	Replied  bool     `json:"replied"`
	// Plan is the plan after all response-handler evaluators; absent after a preempt.
	Plan json.RawMessage `json:"plan,omitempty"`
}

func ledgerFile(t *testing.T, name string, to any) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		t.Fatalf("read %s: got %v, want no error", name, err)
	}
}

// stageOf returns the stage of a call; unordered reports whether elizaOS makes the calls of it at the same
// time.
func stageOf(call string) (stage string, unordered bool) {
	method, _, _ := strings.Cut(call, " ")
	switch {
	case strings.HasPrefix(method, "event."), strings.HasPrefix(method, "action."):
		return method, false
	case method == "provider.get":
		return "state", true
	case strings.HasSuffix(method, "FieldEvaluator.shouldRun"):
		return "fields wanted", true
	case strings.HasPrefix(method, "responseHandlerFieldEvaluator."):
		return "fields", false
	case strings.HasPrefix(method, "responseHandlerEvaluator."):
		return "response handlers", false
	case method == "evaluator.shouldRun":
		return "evaluators wanted", true
	}
	return "evaluators", false
}

// byStage returns calls with those of a stage that has no order sorted.
func byStage(calls []string) []string {
	calls = slices.Clone(calls)
	for i := 0; i < len(calls); {
		stage, unordered := stageOf(calls[i])
		n := i + 1
		for n < len(calls) {
			if next, _ := stageOf(calls[n]); next != stage {
				break
			}
			n++
		}
		if unordered {
			slices.Sort(calls[i:n])
		}
		i = n
	}
	return calls
}

// compareLedgers compares recorded ledgers with the expected ones, stage by stage.
func compareLedgers(t *testing.T, want, got []turnLedger) {
	t.Helper()
	normal := func(list []turnLedger) []turnLedger {
		out := make([]turnLedger, len(list))
		for i, l := range list {
			var plan any
			_ = json.Unmarshal(l.Plan, &plan)
			l.Plan, _ = json.Marshal(plan)
			l.Calls = byStage(l.Calls)
			out[i] = l
		}
		return out
	}
	if d := cmp.Diff(normal(want), normal(got)); d != "" {
		t.Errorf("the ledgers differ from want (-want +got):\n%s", d)
	}
}

// TestTheOriginalKeepsTheSameLedgers compares the ledgers that a recorder inside elizaOS wrote with the
// expected ones, but for the differences that testdata/ledgers lists. ELIZA_LEDGERS names the file; how it
// is made is in testdata/ledgers/README.md.
func TestTheOriginalKeepsTheSameLedgers(t *testing.T) {
	t.Parallel()
	file := os.Getenv("ELIZA_LEDGERS")
	if file == "" {
		t.Skip("ELIZA_LEDGERS names no file; testdata/ledgers/README.md describes how elizaOS records one")
	}
	var want, got []turnLedger
	var differences []struct {
		Room  string   // of the messages; "": of all
		Skip  bool     // the messages are not compared
		Calls []string // beginnings of calls that only one side makes
		Why   string
	}
	ledgerFile(t, filepath.Join("testdata", "ledgers", "expected.json"), &want)
	ledgerFile(t, file, &got)
	ledgerFile(t, filepath.Join("testdata", "ledgers", "differences.json"), &differences)
	for _, d := range differences {
		for _, list := range []*[]turnLedger{&want, &got} {
			*list = slices.DeleteFunc(*list, func(l turnLedger) bool { return d.Skip && l.Room == d.Room })
			for i := range *list {
				if l := &(*list)[i]; d.Room == "" || d.Room == l.Room {
					l.Calls = slices.DeleteFunc(l.Calls, func(call string) bool {
						return slices.ContainsFunc(d.Calls, func(begin string) bool { return strings.HasPrefix(call, begin) })
					})
				}
			}
		}
	}
	compareLedgers(t, want, got)
}

// recorder is an endpoint that records its calls as they arrive.
type recorder struct {
	mu    sync.Mutex
	calls []string
	plan  json.RawMessage
	after bool // the evaluators are done
}

// take returns what was recorded since the last take.
func (r *recorder) take() (calls []string, plan json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls, plan = r.calls, r.plan
	r.calls, r.plan, r.after = nil, nil, false
	return calls, plan
}

// arguments returns the names of the arguments of a call, and of the members of its context.
func arguments(params map[string]json.RawMessage) string {
	var names []string
	for name, value := range params {
		var members map[string]json.RawMessage
		if name == "context" && json.Unmarshal(value, &members) == nil {
			for member := range members {
				names = append(names, name+"."+member)
			}
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// record adds a call in the form of a ledger.
func (r *recorder) record(body []byte) {
	var call struct {
		Method string
		Params map[string]json.RawMessage
	}
	if json.Unmarshal(body, &call) != nil || call.Method == "plugin.modules.list" || strings.HasPrefix(call.Method, "plugin.lifecycle.") {
		return
	}
	text := func(name string) (s string) {
		_ = json.Unmarshal(call.Params[name], &s)
		return s
	}
	method := strings.TrimPrefix(call.Method, "plugin.")
	item := ""
	for _, name := range []string{"evaluator", "field", "provider", "action", "eventName"} {
		if item == "" {
			item = text(name)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, method+" "+item+" "+arguments(call.Params))
	if item == "witness" {
		var about struct{ MessageHandler json.RawMessage }
		if json.Unmarshal(call.Params["context"], &about) == nil {
			r.plan = about.MessageHandler
		}
	}
	r.after = r.after || method == "evaluator.process"
}

func (r *recorder) ServeHTTP(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.record(body)
		req.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, req)
	}
}

// ledgerModule is the module of the ledgers. What it does depends on words of the message, as
// testdata/ledgers/README.md describes.
func ledgerModule() host.Module {
	about := func(raw json.RawMessage) string {
		var c struct{ Message struct{ Text string } }
		_ = json.Unmarshal(raw, &c)
		return c.Message.Text
	}
	act := func(name string, err error) host.Action {
		return host.Action{
			Name: name, Description: "Looks " + name + " up in the ledger.", Parameters: json.RawMessage(`{"type":"object"}`),
			Handle: func(context.Context, json.RawMessage, json.RawMessage) (host.ActionResult, error) {
				return host.ActionResult{Text: "found"}, err
			},
		}
	}
	first, last := 10.0, 200.0
	return host.Module{
		ID: "ledger", Name: "@you/ledger",
		Actions: []host.Action{act("LOOKUP", nil), act("LOOKUP_AGAIN", nil), act("LOOKUP_BROKEN", errors.New("the shelf is empty"))},
		Providers: []host.Provider{{Name: "WEATHER", Get: func(context.Context, json.RawMessage) (host.ProviderResult, error) {
			return host.ProviderResult{Text: "it rains"}, nil
		}}},
		FieldEvaluators: []host.FieldEvaluator{{
			Name: "mood", Description: "The mood of the message.", Priority: &first, Schema: json.RawMessage(`{"type":"string"}`),
			ShouldRun: func(_ context.Context, c host.FieldCall) (bool, error) {
				return !strings.Contains(about(c.Context), "moodless"), nil
			},
			Parse: func(_ context.Context, c host.FieldCall) (any, bool, error) {
				return strings.Trim(string(c.Value), `"`), string(c.Value) != `"?"`, nil
			},
			Handle: func(_ context.Context, c host.FieldCall) (host.FieldEffect, error) {
				mode := strings.Trim(string(c.Value), `"`)
				switch mode {
				case "ignore", "ack-and-stop":
					return host.FieldEffect{Preempt: &host.Preempt{Mode: mode, Reason: "the mood"}}, nil
				case "direct-reply":
					return host.FieldEffect{
						Patch: map[string]any{"replyText": "As it is."}, Preempt: &host.Preempt{Mode: mode, Reason: "the mood"},
					}, nil
				}
				return host.FieldEffect{}, nil
			},
		}},
		ResponseEvaluators: []host.ResponseEvaluator{
			{
				Name: "judge", Priority: &first,
				ShouldRun: func(_ context.Context, c json.RawMessage) (bool, error) {
					return strings.Contains(about(c), "judge"), nil
				},
				Evaluate: func(_ context.Context, c json.RawMessage) (any, error) {
					switch s := about(c); {
					case strings.Contains(s, "silence"):
						return map[string]any{"processMessage": "STOP"}, nil
					case strings.Contains(s, "pass"):
						return map[string]any{"processMessage": "IGNORE"}, nil
					}
					return map[string]any{"requiresTool": true}, nil
				},
			},
			{
				Name: "witness", Priority: &last,
				ShouldRun: func(context.Context, json.RawMessage) (bool, error) { return false, nil },
				Evaluate:  func(context.Context, json.RawMessage) (any, error) { return nil, nil },
			},
		},
		Evaluators: []host.Evaluator{{
			Name: "facts", Description: "Facts.", Prompt: "List the facts.", Schema: json.RawMessage(`{"type":"array"}`),
			ShouldRun: func(context.Context, host.EvaluatorCall) (bool, error) { return true, nil },
			Prepare:   func(context.Context, host.EvaluatorCall) (any, error) { return map[string]any{"known": 1}, nil },
			Process:   func(context.Context, host.EvaluatorCall) (any, error) { return map[string]any{}, nil },
		}},
		Events: []host.Event{{Name: "MESSAGE_RECEIVED", Handle: func(context.Context, json.RawMessage) (bool, error) { return true, nil }}},
	}
}

// ledgerModel is the scripted model of the ledgers: its first answer and its calls follow from words of
// the message.
func ledgerModel(t *testing.T) *scriptedModel {
	t.Helper()
	said := func(r modelRequest) (text string) {
		for _, m := range r.Messages {
			if m.Role == "user" {
				text += fmt.Sprint(m.Content)
			}
		}
		return text
	}
	first := func(r modelRequest) string {
		text, mood := said(r), "calm"
		for _, mode := range []string{"ignore", "ack-and-stop", "direct-reply"} {
			if strings.Contains(text, "preempt "+mode) {
				mood = mode
			}
		}
		if strings.Contains(text, "mumble") {
			mood = "?"
		}
		tool := strings.Contains(text, "look up")
		reply := "Fine."
		if tool {
			reply = ""
		}
		out, _ := json.Marshal(map[string]any{"shouldRespond": "RESPOND", "contexts": []string{}, "requiresTool": tool, "replyText": reply, "mood": mood})
		return string(out)
	}
	return stages(t, first, `{"facts":[]}`, func(r modelRequest) modelAnswer {
		var want []string
		switch text := said(r); {
		case strings.Contains(text, "look up both"):
			want = []string{"LOOKUP", "LOOKUP_AGAIN"}
		case strings.Contains(text, "look up in vain"):
			want = []string{"LOOKUP_BROKEN"}
		default:
			want = []string{"LOOKUP"}
		}
		done := r.results()
		if done >= len(want) {
			return modelAnswer{text: "Looked up."}
		}
		for _, tool := range r.Tools {
			if tool.Function.Name == want[done] {
				return modelAnswer{calls: []toolCall{{tool.Function.Name, `{}`}}}
			}
		}
		t.Errorf("the tool %s is not offered among %+v", want[done], r.Tools)
		return modelAnswer{text: "?"}
	})
}

// TestATurnKeepsTheLedgersOfElizaOS sends the messages of testdata/ledgers and compares what the endpoint
// recorded with what the published rules of elizaOS lead to.
func TestATurnKeepsTheLedgersOfElizaOS(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir(), ledgerModel(t).env()...)
	e, err := host.NewEndpoint(ledgerModule())
	if err != nil {
		t.Fatalf("the endpoint: got %v, want no error", err)
	}
	var rec recorder
	far := httptest.NewServer(rec.ServeHTTP(e.Handler(secret.Value{})))
	t.Cleanup(far.Close)
	n.connect(t, "far", far.URL, false)
	hook := newReceiver(t)
	const key = "a key of 32 bytes that both know"
	n.storeSecret(t, "room-key", key)
	n.must(t, http.MethodPost, "/api/v1/channels", map[string]any{"kind": "webhook", "account": "room", "secret": "room-key", "url": hook.URL}, nil)
	n.must(t, http.MethodPost, "/api/v1/channels/webhook/room/people", map[string]string{"role": "operator", "user": "ann"}, nil)
	post := func(l turnLedger, session string) int {
		t.Helper()
		body, _ := json.Marshal(map[string]any{
			"type": "message", "conversation": session, "user": map[string]string{"id": "ann"}, "text": l.Text,
			"group": l.Room != "dm", "mention": l.Room == "mention",
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+"/api/v1/channels/webhook/room/messages",
			bytes.NewReader(body))
		if err != nil {
			t.Fatalf("request: got %v, want no error", err)
		}
		approvalhook.Sign(req.Header, secret.New(key), session, time.Now(), body)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("post: got %v, want no error", err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	var want, got []turnLedger
	ledgerFile(t, filepath.Join("testdata", "ledgers", "expected.json"), &want)
	open := func() (list []agentRun) {
		var out struct{ Runs []agentRun }
		n.must(t, http.MethodGet, "/api/v1/agent/runs?limit=100", nil, &out)
		return out.Runs
	}
	replied := func() bool { return hook.count("Fine.")+hook.count("Looked up.")+hook.count("As it is.") > 0 }
	rec.take()
	for i, l := range want {
		session := fmt.Sprintf("c%d", i)
		before := len(open())
		eventually(t, "the message is taken", func() bool { return post(l, session) == http.StatusOK })
		out := turnLedger{Name: l.Name, Room: l.Room, Text: l.Text}
		if l.Room == "dm" || l.Room == "mention" {
			eventually(t, l.Name+" has ended", func() bool {
				list := open()
				if len(list) == before {
					return false
				}
				if run := list[0]; run.State == "waiting" {
					_ = n.admin.Do(t.Context(), http.MethodPost, "/api/v1/approvals/"+run.Approval, map[string]string{"decision": "once"}, nil)
				}
				rec.mu.Lock()
				defer rec.mu.Unlock()
				return list[0].State == "completed" && rec.after
			})
		}
		var plan struct{ ProcessMessage string }
		out.Calls, out.Plan = rec.take()
		_ = json.Unmarshal(out.Plan, &plan)
		out.Decision = plan.ProcessMessage
		if out.Calls == nil {
			out.Calls = []string{}
		}
		if l.Replied {
			eventually(t, l.Name+" is answered", replied)
		}
		out.Replied = replied()
		hook.mu.Lock()
		hook.sent = nil
		hook.mu.Unlock()
		got = append(got, out)
	}
	if file := os.Getenv("LEDGERS_OUT"); file != "" {
		data, err := json.MarshalIndent(got, "", "\t")
		if err == nil {
			err = os.WriteFile(file, data, 0o600)
		}
		if err != nil {
			t.Fatalf("LEDGERS_OUT: got %v, want no error", err)
		}
	}
	compareLedgers(t, want, got)
	if len(want) != 50 {
		t.Errorf("messages: got %d, want 50", len(want))
	}
	n.verify(t)
}
