package a2a_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	provider "github.com/junctor-run/junctor/internal/upstreams/a2a"
)

// The SDK's server leaves the queue of a task that was cancelled behind at times: it is the
// other side here, not ours.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/a2aproject/a2a-go/v2/a2asrv/eventqueue.newInMemoryEventBroker.func1"))
}

// executor does what the message says; the SDK's server is around it.
type executor struct {
	cancelled chan struct{}
	working   chan struct{}
	mu        sync.Mutex
	skills    []any
	finish    chan struct{}
}

func (e *executor) Execute(ctx context.Context, x *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		e.mu.Lock()
		e.skills = append(e.skills, x.Message.Metadata["skillId"])
		e.mu.Unlock()
		say := func(state a2a.TaskState, text string) bool {
			return yield(a2a.NewStatusUpdateEvent(x, state, a2a.NewMessageForTask(a2a.MessageRoleAgent, x, a2a.NewTextPart(text))), nil)
		}
		text := x.Message.Parts[0].Text()
		if x.StoredTask == nil && text != "plain" && !yield(a2a.NewSubmittedTask(x, x.Message), nil) {
			return
		}
		switch {
		case text == "plain":
			yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("hello")), nil)
		case x.StoredTask != nil:
			yield(a2a.NewArtifactEvent(x, a2a.NewTextPart("you said "+text)), nil)
			yield(a2a.NewStatusUpdateEvent(x, a2a.TaskStateCompleted, nil), nil)
		case text == "ask":
			say(a2a.TaskStateInputRequired, "which one?")
		case text == "auth":
			say(a2a.TaskStateAuthRequired, "log in first")
		case text == "fail":
			say(a2a.TaskStateFailed, "the disk is full")
		case text == "wait":
			say(a2a.TaskStateWorking, "on it")
			select {
			case <-ctx.Done():
			case <-e.cancelled:
			case <-e.finish:
				say(a2a.TaskStateCompleted, "finished")
			}
		default:
			say(a2a.TaskStateWorking, "half way")
			yield(a2a.NewArtifactEvent(x, a2a.NewDataPart(map[string]any{"big": int64(9007199254740993)}), a2a.NewTextPart("done"),
				a2a.NewFileURLPart("https://example.com/x", "text/plain")), nil)
			yield(a2a.NewStatusUpdateEvent(x, a2a.TaskStateCompleted, nil), nil)
		}
	}
}

func (e *executor) Cancel(_ context.Context, x *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		close(e.cancelled)
		yield(a2a.NewStatusUpdateEvent(x, a2a.TaskStateCanceled, nil), nil)
	}
}

// remote is an agent of the official SDK, and ours of it.
func remote(t *testing.T, change func(*a2a.AgentCard), tune func(*provider.Config)) (*provider.Agent, *executor) {
	t.Helper()
	e := &executor{cancelled: make(chan struct{}), working: make(chan struct{}, 8), finish: make(chan struct{})}
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	card := &a2a.AgentCard{
		Name: "remote", Version: "1", Description: "an agent", Capabilities: a2a.AgentCapabilities{Streaming: true},
		SupportedInterfaces: []*a2a.AgentInterface{{
			URL: server.URL + "/rpc", ProtocolBinding: a2a.TransportProtocolJSONRPC,
			ProtocolVersion: "1.0",
		}},
		Skills: []a2a.AgentSkill{{ID: "do it", Name: "Do it", Description: "does it", Tags: []string{"x"}}, {ID: ""}},
	}
	for _, i := range card.SupportedInterfaces {
		i.Tenant = "t1"
	}
	if change != nil {
		change(card)
	}
	mux.Handle("/.well-known/agent-card.json", a2asrv.NewStaticAgentCardHandler(card))
	guarded := func(h http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("A2A-Version") != "1.0" || r.Header.Get("Authorization") != "Bearer secret" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		}
	}
	handler := a2asrv.NewHandler(e)
	mux.HandleFunc("/rpc", guarded(a2asrv.NewJSONRPCHandler(handler)))
	mux.HandleFunc("/rest/", guarded(http.StripPrefix("/rest", a2asrv.NewTenantRESTHandler("/{*}", handler))))
	cfg := provider.Config{
		Name: "far", Card: server.URL, Local: true,
		Header: func(context.Context) (http.Header, error) {
			return http.Header{"Authorization": {"Bearer secret"}}, nil
		},
	}
	if tune != nil {
		tune(&cfg)
	}
	a, err := provider.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = a.Close()
		server.CloseClientConnections()
		server.Close()
	})
	return a, e
}

func rest(card *a2a.AgentCard) {
	i := card.SupportedInterfaces[0]
	i.ProtocolBinding, i.URL = a2a.TransportProtocolHTTPJSON, strings.Replace(i.URL, "/rpc", "/rest", 1)
}

// connected is the definition of the one skill.
func connected(t *testing.T, a *provider.Agent) json.RawMessage {
	t.Helper()
	card, err := a.Connect(t.Context())
	if err != nil || len(card.Definitions) != 1 || card.Name != "remote" {
		t.Fatalf(`%+v %v; want no error, len(card.Definitions) = 1, card.Name = "remote"`, card, err)
	}
	return card.Definitions[0]
}

func request(d json.RawMessage, message string) provider.Request {
	in, _ := json.Marshal(map[string]string{"message": message})
	return provider.Request{Definition: d, Arguments: in}
}

func TestSkillsAreCalled(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*a2a.AgentCard){
		"streaming": nil,
		"asking":    func(c *a2a.AgentCard) { c.Capabilities.Streaming = false },
		"rest":      rest,
		"rest, asking": func(c *a2a.AgentCard) {
			rest(c)
			c.Capabilities.Streaming = false
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, e := remote(t, change, nil)
			d := connected(t, a)
			var tool struct {
				Name        string `json:"name"`
				Title       string `json:"title"`
				Description string `json:"description"`
			}
			if err := jsonx.Unmarshal(d, &tool); err != nil || tool.Name != "agent_far_do_it" || tool.Title != "Do it" ||
				tool.Description != "does it" {
				t.Errorf(`%s %v; want no error, tool.Name = "agent_far_do_it", tool.Title = "Do it", tool.Description = "does it"`,
					d, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			var progress []string
			r := request(d, "go")
			r.Progress = func(c capability.Chunk) { progress = append(progress, c.Message) }
			kept := ""
			r.Keep = func(id string) { kept += id }
			res, id, err := a.Call(ctx, r)
			if err != nil || !strings.Contains(string(res), `"structuredContent":{"big":9007199254740993}`) ||
				!strings.Contains(string(res), `{"text":"done","type":"text"}`) || id == "" || kept != id {
				t.Errorf(`%s %q %q %v; want no error, string(res) with "\"structuredContent\":{\"big\":9007199254740993}", `+
					`string(res) with "{\"text\":\"done\",\"type\":\"text\"}", id other than "", kept = %v`, res, id, kept, err, id)
			}
			if !strings.Contains(name, "asking") && strings.Join(progress, " ") != "half way" {
				t.Errorf("progress = %q, want half way", progress)
			}
			res, _, err = a.Call(ctx, request(d, "plain"))
			if err != nil || !strings.Contains(string(res), "hello") {
				t.Errorf(`%s %v; want no error, string(res) with "hello"`, res, err)
			}
			res, _, err = a.Call(ctx, request(d, "fail"))
			if err != nil || !strings.Contains(string(res), `"text":"the disk is full"`) || !strings.Contains(string(res), `"isError":true`) {
				t.Errorf(`%s %v; want no error, string(res) with "\"text\":\"the disk is full\"", string(res) with "\"isError\":true"`,
					res, err)
			}
			if _, _, err = a.Call(ctx, request(d, "auth")); capability.CodeOf(err) != capability.CodeApprovalRequired ||
				capability.AsError(err).Reason != provider.ReasonAuthRequired {
				t.Errorf("%v; want capability.CodeOf(err) = capability.CodeApprovalRequired, capability.AsError(err).Reason = "+
					"provider.ReasonAuthRequired", err)
			}
			e.mu.Lock()
			if e.skills[0] != "do it" {
				t.Errorf(`e.skills[0] = %v, want "do it"`, e.skills[0])
			}
			e.mu.Unlock()
		})
	}
}

func TestQuestionsReachTheCaller(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{"action":"accept","content":{"answer":"that"}}`: "you said that",
		`{"action":"decline"}`:                            "",
	} {
		a, _ := remote(t, nil, nil)
		var asked capability.Question
		r := request(connected(t, a), "ask")
		r.Idle = 20 * time.Second
		r.Ask = func(_ context.Context, q capability.Question) (json.RawMessage, error) {
			asked = q
			return json.RawMessage(answer), nil
		}
		res, _, err := a.Call(t.Context(), r)
		if asked.Method != "elicitation/create" || !strings.Contains(string(asked.Params), "which one?") {
			t.Errorf(`%+v; want asked.Method = "elicitation/create", string(asked.Params) with "which one?"`, asked)
		}
		if want != "" && (err != nil || !strings.Contains(string(res), want)) || want == "" &&
			(err == nil || capability.AsError(err).Reason != "declined") {
			t.Errorf(`%s: %s %v; want not (want != "" && (err != nil || !strings.Contains(string(res), want))), not (want == "" `+
				`&& (err == nil || capability.AsError(err).Reason != "declined"))`, answer, res, err)
		}
	}
	a, _ := remote(t, nil, nil)
	if _, _, err := a.Call(t.Context(), request(connected(t, a), "ask")); capability.AsError(err).Reason != capability.ReasonInputRequired ||
		capability.CodeOf(err) != capability.CodeFailed {
		t.Errorf("%v; want capability.AsError(err).Reason = capability.ReasonInputRequired, capability.CodeOf(err) = capability.CodeFailed",
			err)
	}
}

func TestACallThatIsWithdrawnCancelsTheTask(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*a2a.AgentCard)
		idle   time.Duration
		want   capability.Code
	}{
		"by the caller":       {nil, 0, capability.CodeCancelled},
		"by the caller, rest": {rest, 0, capability.CodeCancelled},
		"by its silence":      {nil, 200 * time.Millisecond, capability.CodeTimeout},
	} {
		a, e := remote(t, tt.change, nil)
		r := request(connected(t, a), "wait")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if r.Idle = tt.idle; r.Idle == 0 {
			r.Progress = func(capability.Chunk) { cancel() }
		}
		if _, _, err := a.Call(ctx, r); capability.CodeOf(err) != tt.want {
			t.Errorf("%s: %v; want capability.CodeOf(err) = %v", name, err, tt.want)
		}
		select {
		case <-e.cancelled:
		case <-time.After(time.Minute):
			t.Errorf("%s: the agent was not told", name)
		}
	}
}

func TestWhatIsKeptIsGoneOnWith(t *testing.T) {
	t.Parallel()
	a, e := remote(t, nil, nil)
	d := connected(t, a)
	r := request(d, "wait")
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	kept := ""
	r.Keep = func(id string) { kept = id }
	r.Progress = func(capability.Chunk) { stop(capability.ErrStopping) }
	if _, id, err := a.Call(ctx, r); err == nil || id != kept || kept == "" {
		t.Fatalf(`a.Call(ctx, r): err = %v, want an error; id = %q, want %q; kept = %q, want other than ""`, err, id, kept, kept)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-e.cancelled:
		t.Fatal("the task was cancelled with the server")
	default:
	}
	b := again(t, a)
	r = request(d, "wait")
	r.Resume = kept
	r.Progress = func(c capability.Chunk) {
		if c.Message == "on it" {
			close(e.finish)
		}
	}
	res, id, err := b.Call(t.Context(), r)
	if err != nil || id != kept || !strings.Contains(string(res), "finished") {
		t.Errorf(`%s %q %v; want no error, id = %v, string(res) with "finished"`, res, id, err, kept)
	}
	r.Resume, r.Progress = "unknown", nil
	if _, _, err := b.Call(t.Context(), r); capability.CodeOf(err) != capability.CodeFailed {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeFailed", err)
	}
	if len(e.skills) != 1 {
		t.Errorf("something was sent anew: %v; want len(e.skills) = 1", e.skills)
	}
}

// again is the agent as a later process meets it.
func again(t *testing.T, a *provider.Agent) *provider.Agent {
	t.Helper()
	b, err := provider.New(a.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestCardsThatAreNotTaken(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*a2a.AgentCard)
		reason string
	}{
		"another version": {func(c *a2a.AgentCard) { c.SupportedInterfaces[0].ProtocolVersion = "0.2" }, "unsupported_version"},
		"inside":          {func(c *a2a.AgentCard) { c.SupportedInterfaces[0].URL = "http://10.0.0.1/" }, "unsupported_version"},
		"another port":    {func(c *a2a.AgentCard) { c.SupportedInterfaces[0].URL = "http://127.0.0.1:1/" }, "unsupported_version"},
		"another origin":  {func(c *a2a.AgentCard) { c.SupportedInterfaces[0].URL = "https://example.com/" }, "other_origin"},
		"too many skills": {func(c *a2a.AgentCard) { c.Skills = make([]a2a.AgentSkill, provider.MaxSkills+1) }, "too_many_skills"},
		"too large":       {func(c *a2a.AgentCard) { c.Description = strings.Repeat("x", provider.MaxCard) }, "output_limit"},
	} {
		a, _ := remote(t, tt.change, nil)
		if _, err := a.Connect(t.Context()); err == nil || capability.AsError(err).Reason != tt.reason {
			t.Errorf("%s: %v; want an error, capability.AsError(err).Reason = %v", name, err, tt.reason)
		}
	}
	a, _ := remote(t, nil, nil)
	cfg := a.Config()
	cfg.Local = false
	if _, err := provider.New(cfg); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("plain http was taken: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
	cfg.Card = strings.Replace(cfg.Card, "http:", "https:", 1)
	guarded, err := provider.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer guarded.Close()
	if _, err := guarded.Connect(t.Context()); capability.AsError(err).Reason != "address_denied" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "address_denied"`, err)
	}
}

// TestACallGoesWhereItsDefinitionSays: what the card says by now moves no call.
func TestACallGoesWhereItsDefinitionSays(t *testing.T) {
	t.Parallel()
	a, _ := remote(t, nil, nil)
	d := connected(t, a)
	moved := strings.Replace(string(d), "/rpc", "/elsewhere", 1)
	if _, _, err := a.Call(t.Context(), request(json.RawMessage(moved), "go")); capability.CodeOf(err) != capability.CodeFailed {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeFailed", err)
	}
	moved = strings.Replace(string(d), "http://127.0.0.1", "http://10.0.0.1", 1)
	if _, _, err := a.Call(t.Context(), request(json.RawMessage(moved), "go")); capability.AsError(err).Reason != "address_denied" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "address_denied"`, err)
	}
}

func TestACardIsReadAgainOverHTTP(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked, status := 0, http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Cache-Control", "public, max-age=90")
		if r.Header.Get("If-None-Match") == `"1"` && status == http.StatusOK {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"name":"x","supportedInterfaces":[{"url":"http://` + r.Host +
			`/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"skills":[{"id":"a"}]}`))
	}))
	defer server.Close()
	lost := make(chan error, 4)
	a, err := provider.New(provider.Config{Name: "x", Card: server.URL + "/card", Local: true, Down: func(err error) { lost <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	card, err := a.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first is that of Connect
		var more provider.Card
		if more, err = a.Card(t.Context()); err != nil || len(more.Definitions) != 1 ||
			string(more.Definitions[0]) != string(card.Definitions[0]) || more.TTL != 90*time.Second {
			t.Errorf("Card = %d definitions %s, TTL %v, %v; want those of Connect, %s, and TTL 1m30s", len(more.Definitions), more.Definitions,
				more.TTL, err, card.Definitions)
		}
	}
	mu.Lock()
	if asked != 3 {
		t.Errorf("asked = %v, want 3", asked)
	}
	status = http.StatusServiceUnavailable
	mu.Unlock()
	for range 2 {
		if _, err := a.Card(t.Context()); capability.CodeOf(err) != capability.CodeUnavailable {
			t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
		}
	}
	if len(lost) != 1 {
		t.Errorf("the loss was not reported once: %v; want len(lost) = 1", len(lost))
	}
}

func TestSignaturesOfCards(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public := func(k *ecdsa.PrivateKey, id string) []byte {
		doc, err := json.Marshal(jose.JSONWebKey{Key: k.Public(), KeyID: id, Algorithm: "ES256"})
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	signed := func(alter func(map[string]any)) *provider.Agent {
		var mux http.ServeMux
		server := httptest.NewServer(&mux)
		t.Cleanup(server.Close)
		card := map[string]any{
			"name": "signed", "description": "", "capabilities": map[string]any{"streaming": true, "extensions": []any{}},
			"supportedInterfaces": []any{map[string]any{"url": server.URL + "/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}},
			"skills":              []any{map[string]any{"id": "a", "name": "A"}},
		}
		bare := map[string]any{
			"name": "signed", "capabilities": map[string]any{"streaming": true},
			"supportedInterfaces": card["supportedInterfaces"], "skills": card["skills"],
		}
		payload, err := json.Marshal(bare) // sorted, and plain enough to be canonical
		if err != nil {
			t.Fatal(err)
		}
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		jws, err := signer.Sign(payload)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := jws.DetachedCompactSerialize()
		protected, signature, _ := strings.Cut(text, "..")
		card["signatures"] = []any{
			map[string]any{"protected": "e30", "signature": "AA"},
			map[string]any{"protected": protected, "signature": signature},
		}
		if alter != nil {
			alter(card)
		}
		mux.HandleFunc("/card", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(card) })
		a, err := provider.New(provider.Config{
			Name: "x", Card: server.URL + "/card", Local: true,
			Keys: [][]byte{public(other, "o"), public(key, "k")},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Close() })
		return a
	}
	if card, err := signed(nil).Connect(t.Context()); err != nil || card.Name != "signed" || len(card.Definitions) != 1 {
		t.Errorf(`%+v %v; want no error, card.Name = "signed", len(card.Definitions) = 1`, card, err)
	}
	for name, alter := range map[string]func(map[string]any){
		"altered":       func(c map[string]any) { c["name"] = "forged" },
		"another skill": func(c map[string]any) { c["skills"] = []any{map[string]any{"id": "b"}} },
		"without any":   func(c map[string]any) { delete(c, "signatures") },
		"of nobody":     func(c map[string]any) { c["signatures"] = c["signatures"].([]any)[:1] },
		"none as a word": func(c map[string]any) {
			c["signatures"] = []any{map[string]any{"protected": "eyJhbGciOiJub25lIn0", "signature": ""}}
		},
	} {
		if _, err := signed(alter).Connect(t.Context()); capability.AsError(err).Reason != provider.ReasonSignature {
			t.Errorf("%s: %v; want capability.AsError(err).Reason = provider.ReasonSignature", name, err)
		}
	}
	// An unsigned member is not read: here the address of A2A v0.3.
	a := signed(func(c map[string]any) { c["url"], c["protocolVersion"] = "https://forged.example/", "0.3.0" })
	if card, err := a.Connect(t.Context()); err == nil && strings.Contains(string(card.Definitions[0]), "forged") {
		t.Errorf(`%s; want not (err == nil && strings.Contains(string(card.Definitions[0]), "forged"))`, card.Definitions)
	}
	private, err := json.Marshal(jose.JSONWebKey{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{string(private), `{"kty":"oct","k":"AAAA"}`, `{}`, `x`} {
		if _, err := provider.New(provider.Config{
			Name: "x", Card: "http://127.0.0.1:1/card", Local: true,
			Keys: [][]byte{[]byte(bad)},
		}); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", bad, err)
		}
	}
}

// TestOlderAgents talks A2A v0.3 to a fake whose answers are the examples of the standard.
func TestOlderAgents(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var said []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`{"name":"old","protocolVersion":"0.3.0","url":"http://` + r.Host +
				`/","capabilities":{"streaming":true},"skills":[{"id":"a"}]}`))
			return
		}
		var in struct {
			Method string
			Params jsonx.Raw
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Header.Get("A2A-Version") != "0.3" {
			t.Errorf(`json.NewDecoder(r.Body).Decode(&in) = %v, want nil; r.Header.Get("A2A-Version") = %q, want "0.3"`,
				err, r.Header.Get("A2A-Version"))
		}
		mu.Lock()
		said = append(said, in.Method+" "+string(in.Params))
		n := len(said)
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		send := func(doc string) { _, _ = w.Write([]byte(`data: {"jsonrpc":"2.0","id":"1","result":` + doc + "}\n\n")) }
		if n == 1 {
			send(`{"kind":"task","id":"t","contextId":"c","status":{"state":"working"}}`)
			send(`{"kind":"status-update","taskId":"t","contextId":"c","final":true,"status":{"state":"input-required","message":{"kind":"message","role":"agent","messageId":"m","parts":[{"kind":"text","text":"where?"}]}}}`)
			return
		}
		// The task as it was when it asked comes first, as the official SDK for JavaScript wants it.
		send(`{"kind":"task","id":"t","contextId":"c","status":{"state":"input-required","message":{"kind":"message","role":"agent","messageId":"m","parts":[{"kind":"text","text":"where?"}]}}}`)
		send(`{"kind":"artifact-update","taskId":"t","contextId":"c","artifact":{"artifactId":"a","parts":[{"kind":"text","text":"do"}]}}`)
		send(`{"kind":"artifact-update","taskId":"t","contextId":"c","artifact":{"artifactId":"b","parts":[{"kind":"text","text":"half \ud83d"},{"kind":"data","data":{"half":"\ud83d"}}]}}`)
		send(`{"kind":"artifact-update","taskId":"t","contextId":"c","append":true,"artifact":{"artifactId":"a","parts":[{"kind":"text","text":"ne"},{"kind":"file","file":{"uri":"https://x.example/y","mimeType":"text/plain"}}]}}`)
		send(`{"kind":"unknown"}`)
		send(`{"kind":"status-update","taskId":"t","contextId":"c","final":true,"status":{"state":"completed"}}`)
	}))
	defer server.Close()
	a, err := provider.New(provider.Config{Name: "x", Card: server.URL, Local: true})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	card, err := a.Connect(t.Context())
	if err != nil || card.Protocol != "0.3" {
		t.Fatalf(`%+v %v; want no error, card.Protocol = "0.3"`, card, err)
	}
	r := provider.Request{Definition: card.Definitions[0], Arguments: json.RawMessage(
		`{"message":"go","data":{"n":9007199254740993},"files":[{"bytes":"AA==","name":"f"}]}`)}
	r.Ask = func(context.Context, capability.Question) (json.RawMessage, error) {
		return json.RawMessage(`{"action":"accept","content":{"answer":"there"}}`), nil
	}
	res, id, err := a.Call(t.Context(), r)
	if err != nil || id != "t" || !strings.Contains(string(res),
		`{"text":"done","type":"text"},{"mimeType":"text/plain","name":"https://x.example/y"`) {
		t.Errorf(`%s %v; want no error, id = "t", string(res) with `+
			`"{\"text\":\"done\",\"type\":\"text\"},{\"mimeType\":\"text/plain\",\"name\":\"https://x.example/y\""`, res, err)
	}
	if !strings.Contains(string(res), `"structuredContent":{"half":"\ud83d"}`) || !strings.Contains(string(res), "half \uFFFD") {
		t.Errorf(`%s; want string(res) with "\"structuredContent\":{\"half\":\"\\ud83d\"}", string(res) with "half \uFFFD"`, res)
	}
	all := strings.Join(said, "\n")
	for _, want := range []string{
		`message/stream {"message":{"kind":"message"`, `"role":"user"`, `{"kind":"text","text":"go"}`,
		`{"kind":"data","data":{"n":9007199254740993}}`, `{"kind":"file","file":{"bytes":"AA==","name":"f"}}`, `"taskId":"t"`, `"text":"there"`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in %s; want all with %v", want, all, want)
		}
	}
}

func TestAnAgentThatIsAwayWasNotSentAnything(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusNotFound)
	}))
	lost := make(chan error, 1)
	a, err := provider.New(provider.Config{Name: "x", Card: server.URL, Local: true, Down: func(err error) { lost <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	d := `{"name":"agent_x_a","_meta":{"junctor/a2a":{"interface":{"url":"` + server.URL +
		`/","protocolBinding":"JSONRPC","protocolVersion":"1.0"},"skill":{"id":"a"}}}}`
	if _, _, err := a.Call(t.Context(), request(json.RawMessage(d), "x")); capability.CodeOf(err) != capability.CodeFailed {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeFailed", err)
	}
	server.Close()
	if _, _, err := a.Call(t.Context(), request(json.RawMessage(d), "x")); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
	}
	select {
	case err := <-lost:
		if err == nil {
			t.Error("no reason; want an error")
		}
	default:
		t.Error("the loss was not reported")
	}
}
