package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/llm"
	"github.com/junctor-run/junctor/protocol/modelwire"
	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-test-0123456789abcdef"

// service is a model service on loopback that answers as it is told and keeps
// what it was asked.
type service struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	heads  []http.Header
	paths  []string
}

func serve(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.bodies, s.heads, s.paths = append(s.bodies, string(body)), append(s.heads, r.Header), append(s.paths, r.URL.Path)
		n := len(s.bodies)
		s.mu.Unlock()
		answer(n, w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// asked returns the bodies of the requests so far. A client that gave up on a
// request does not wait for the service to note it.
func (s *service) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bodies)
}

func immediately(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func (s *service) client(t *testing.T, cfg llm.Config) *llm.Model {
	t.Helper()
	if cfg.Form == "" {
		cfg.Form = modelwire.OpenAIChat
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = s.URL + "/v1"
	}
	cfg.Model = "tiny-1"
	cfg.Key = func() (secret.Value, error) { return secret.New(key), nil }
	if cfg.Wait == nil {
		cfg.Wait = immediately
	}
	c, err := llm.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return llm.NewModel(nil, c)
}

func write(w http.ResponseWriter, kind, body string) {
	w.Header().Set("Content-Type", kind)
	io.WriteString(w, body)
}

const (
	openAIBody = `{"id":"c1","object":"chat.completion","created":1,"model":"tiny-1-2026","choices":[{"index":0,"message":{"role":"assistant","content":"hello é"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}`

	openAIStream = `: keep alive

data: {"id":"c1","object":"chat.completion.chunk","model":"tiny-1-2026","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"c1","choices":[{"index":0,"delta":{"content":"hel"},"finish_reason":null}]}

data: {"id":"c1","choices":[{"index":0,"delta":{"content":"lo é"},"finish_reason":null}]}

data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"id":"c1","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}

data: [DONE]

`

	anthropicBody = `{"id":"m1","type":"message","role":"assistant","model":"tiny-1-2026","content":[{"type":"text","text":"hel"},{"type":"text","text":"lo é"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":7,"output_tokens":2}}`

	anthropicStream = `event: message_start
data: {"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"tiny-1-2026","content":[],"stop_reason":null,"usage":{"input_tokens":7,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hel"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo é"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}

event: message_stop
data: {"type":"message_stop"}

`
)

func TestBothWireForms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind           modelwire.Form
		path           string
		whole, stream  string
		asked, flowing string
	}{
		{
			modelwire.OpenAIChat, "/v1/chat/completions", openAIBody, openAIStream,
			`{"model":"tiny-1","max_tokens":2048,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
			`{"model":"tiny-1","max_tokens":10,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"},{"role":"user","content":"hu"}]}`,
		},
		{
			modelwire.AnthropicMessages, "/v1/messages", anthropicBody, anthropicStream,
			`{"model":"tiny-1","max_tokens":2048,"system":"be brief","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`,
			`{"model":"tiny-1","max_tokens":10,"stream":true,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"},{"role":"user","content":"hu"}]}`,
		},
	} {
		s := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
			if n == 1 {
				write(w, "application/json", c.whole)
			} else {
				write(w, "text/event-stream; charset=utf-8", c.stream)
			}
		})
		client := s.client(t, llm.Config{Form: c.kind})
		text, tokens, err := client.Complete(t.Context(), "be brief", "a", "b")
		if text != "hello é" || tokens != 9 || err != nil {
			t.Errorf(`%s: %q %d %v; want text = "hello é", tokens = 9, no error`, c.kind, text, tokens, err)
		}
		var pieces []string
		got, err := client.Ask(t.Context(), llm.Request{
			MaxTokens: 10,
			Turns:     []llm.Turn{{modelwire.User, []string{"hi"}}, {modelwire.Assistant, []string{"ho"}}, {modelwire.User, []string{"hu"}}},
		}, func(p string) error { pieces = append(pieces, p); return nil })
		if want := (llm.Reply{Text: "hello é", Model: "tiny-1-2026", In: 7, Out: 2}); got != want || err != nil ||
			strings.Join(pieces, "|") != "hel|lo é" {
			t.Errorf(`%s: %+v %q %v; want got = %v, no error, strings.Join(pieces, "|") = "hel|lo é"`, c.kind, got, pieces, err, want)
		}
		if s.asked()[0] != c.asked || s.asked()[1] != c.flowing || s.paths[0] != c.path {
			t.Errorf("%s %s:\n%s\n%s\nwant s.bodies[0] = %v, s.bodies[1] = %v, s.paths[0] = %v",
				c.kind, s.paths[0], s.asked()[0], s.asked()[1], c.asked, c.flowing, c.path)
		}
		h := s.heads[0]
		if c.kind == modelwire.OpenAIChat && (h.Get("Authorization") != "Bearer "+key || h.Get("x-api-key") != "") {
			t.Errorf("%s: header = %v, want Authorization with the key and no x-api-key", c.kind, h)
		}
		if c.kind == modelwire.AnthropicMessages && (h.Get("x-api-key") != key || h.Get("anthropic-version") != "2023-06-01" ||
			h.Get("Authorization") != "") {
			t.Errorf("%s: header = %v, want x-api-key with the key, anthropic-version and no Authorization", c.kind, h)
		}
	}
}

func TestFailuresHaveCodesAndNoKeys(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		401: "unavailable model_credentials 1", 403: "unavailable model_credentials 1", 404: "unavailable model_unknown 1",
		400: "failed model_refused 1", 413: "too_large  1", 429: "overloaded rate_limited 3", 500: "unavailable  3", 529: "unavailable  3",
		302: "failed model_refused 1",
	} {
		s := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Location", "http://192.0.2.1/")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":{"message":"Incorrect key %s, other sk-proj-abcdefghij, Authorization: Bearer xyz"}}`, key)
		})
		_, _, err := s.client(t, llm.Config{}).Complete(t.Context(), "", "x")
		e := capability.AsError(err)
		if got := fmt.Sprintf("%s %s %d", e.Code, e.Reason, len(s.asked())); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
		if all := fmt.Sprintf("%v %+v %v", err, e, errors.Unwrap(e)); strings.Contains(all, key) || strings.Contains(all, "sk-proj") ||
			strings.Contains(all, "xyz") {
			t.Errorf(`%d tells a key: %s; want all without %v, all without "sk-proj", all without "xyz"`, status, all, key)
		}
		if status == 429 && e.RetryAfter != 7*time.Second {
			t.Errorf("e.RetryAfter = %v, want !(status == 429 && e.RetryAfter != 7*time.Second)", e.RetryAfter)
		}
	}
}

func TestAttemptsAreMadeAgainWhereThatHelps(t *testing.T) {
	t.Parallel()
	var pauses []time.Duration
	s := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		switch n {
		case 1:
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			panic(http.ErrAbortHandler)
		default:
			write(w, "application/json", openAIBody)
		}
	})
	c := s.client(t, llm.Config{Wait: func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil }})
	if text, _, err := c.Complete(t.Context(), "", "x"); text != "hello é" || err != nil {
		t.Errorf(`c.Complete(t.Context(), "", "x") = %v, err = %v, want text == "hello é" && err == nil`, text, err)
	}
	if fmt.Sprint(pauses) != "[3s 1s]" {
		t.Errorf(`pauses = %v, want fmt.Sprint(pauses) == "[3s 1s]"`, pauses)
	}

	s = serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	if _, _, err := s.client(t, llm.Config{}).Complete(t.Context(), "", "x"); capability.CodeOf(err) != capability.CodeOverloaded ||
		len(s.asked()) != 1 {
		t.Errorf("an hour is not waited for: %v %v; want capability.CodeOf(err) = capability.CodeOverloaded, len(s.bodies) = 1",
			err, len(s.asked()))
	}

	s = serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"error":{"message":"Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}}`)
			return
		}
		write(w, "application/json", openAIBody)
	})
	if _, _, err := s.client(t, llm.Config{}).Complete(t.Context(), "", "x"); err != nil ||
		!strings.Contains(s.asked()[1], `"max_completion_tokens":2048`) || strings.Contains(s.asked()[1], `"max_tokens"`) {
		t.Errorf("bodies = %s, error %v, want the second to have max_completion_tokens instead of max_tokens", s.asked(), err)
	}
}

func TestStreamsThatBreak(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind   modelwire.Form
		stream string
		want   string // code, requests
	}{
		"nothing came":         {modelwire.OpenAIChat, ": hm\n\n", "unavailable 3"},
		"broken after a piece": {modelwire.OpenAIChat, `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n", "unavailable 1"},
		"no JSON":              {modelwire.OpenAIChat, "data: nonsense\n\n", "failed 1"},
		"an error in it":       {modelwire.OpenAIChat, `data: {"error":{"message":"` + key + `"}}` + "\n\n", "unavailable 3"},
		"an error of Anthropic": {
			modelwire.AnthropicMessages, `data: {"type":"error","error":{"type":"overloaded_error","message":"` + key + `"}}` + "\n\n",
			"unavailable 3",
		},
		"no end of Anthropic": {
			modelwire.AnthropicMessages, `data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}` + "\n\n",
			"unavailable 1",
		},
		"a line without end": {modelwire.OpenAIChat, "data: " + strings.Repeat("x", 1<<20+1), "failed 1"},
		"refused": {
			modelwire.OpenAIChat, `data: {"choices":[{"delta":{},"finish_reason":"content_filter"}]}` + "\n\ndata: [DONE]\n\n",
			"failed 1",
		},
	} {
		s := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { write(w, "text/event-stream", c.stream) })
		_, err := s.client(t, llm.Config{Form: c.kind}).Ask(t.Context(), llm.Request{Turns: []llm.Turn{{modelwire.User, []string{"x"}}}},
			func(string) error { return nil })
		if got := fmt.Sprintf("%s %d", capability.CodeOf(err), len(s.asked())); got != c.want ||
			strings.Contains(fmt.Sprintf("%+v %v", err, errors.Unwrap(err)), key) {
			t.Errorf("%s: %s, want %s (%v)", name, got, c.want, err)
		}
	}
	stop := errors.New("the reader has gone")
	s := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { write(w, "text/event-stream", openAIStream) })
	if _, err := s.client(t, llm.Config{}).Ask(t.Context(), llm.Request{Turns: []llm.Turn{{modelwire.User, []string{"x"}}}},
		func(string) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v; want err is %v", err, stop)
	}
	s = serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { write(w, "application/json", openAIBody) })
	got, err := s.client(t, llm.Config{}).Ask(t.Context(), llm.Request{Turns: []llm.Turn{{modelwire.User, []string{"x"}}}},
		func(string) error { return nil })
	if got.Text != "hello é" || err != nil {
		t.Errorf(`a service that does not stream: %v %v; want got.Text = "hello é", no error`, got, err)
	}
}

func TestEverythingIsBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		switch n {
		case 1:
			write(w, "application/json", openAIBody)
		case 2:
			write(w, "text/event-stream", openAIStream)
		case 3:
			write(w, "application/json", strings.Replace(openAIBody, `"stop"`, `"length"`, 1))
		case 4:
			write(w, "application/json", `{"choices":[]}`)
		default:
			<-r.Context().Done()
		}
	})
	c := s.client(t, llm.Config{MaxText: 7})
	ask := llm.Request{Turns: []llm.Turn{{modelwire.User, []string{"x"}}}}
	for _, emit := range []func(string) error{nil, func(string) error { return nil }} {
		if got, err := c.Ask(t.Context(), ask, emit); got.Text != "hello " || !got.Truncated || err != nil {
			t.Errorf(`c.Ask(t.Context(), ask, emit) = %v, err = %v, want got.Text == "hello " && got.Truncated && err == nil`, got, err)
		}
	}
	if got, err := c.Ask(t.Context(), ask, nil); !got.Truncated || err != nil {
		t.Errorf("c.Ask(t.Context(), ask, nil) = %v, err = %v, want got.Truncated && err == nil", got, err)
	}
	if _, err := c.Ask(t.Context(), ask, nil); capability.AsError(err).Reason != "output_parse_error" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "output_parse_error"`, err)
	}
	short := s.client(t, llm.Config{MaxText: 7, Timeout: 200 * time.Millisecond})
	if _, err := short.Ask(t.Context(), ask, nil); capability.CodeOf(err) != capability.CodeTimeout {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTimeout", err)
	}
	if _, _, err := c.Complete(t.Context(), strings.Repeat("x", llm.MaxPrompt), "y"); capability.CodeOf(err) != capability.CodeTooLarge {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTooLarge", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := c.Complete(ctx, "", "y"); capability.CodeOf(err) != capability.CodeCancelled {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeCancelled", err)
	}
	for _, cfg := range []llm.Config{
		{Form: "x", BaseURL: "https://a", Model: "m"},
		{Form: modelwire.OpenAIChat, BaseURL: "https://a"},
		{Form: modelwire.OpenAIChat, BaseURL: "http://example.com/v1", Model: "m"},
		{Form: modelwire.OpenAIChat, BaseURL: "https://u:p@a/v1", Model: "m"},
		{Form: modelwire.OpenAIChat, BaseURL: "https://a/v1?k=v", Model: "m"},
		{Form: modelwire.OpenAIChat, BaseURL: "ftp://a", Model: "m"},
		{Form: modelwire.OpenAIChat, BaseURL: "", Model: "m"},
	} {
		if _, err := llm.New(cfg); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("cfg.BaseURL = %v, err = %v, want capability.CodeOf(err) == capability.CodeInvalidInput", cfg.BaseURL, err)
		}
	}
	unread, err := llm.New(llm.Config{
		Form: modelwire.AnthropicMessages, BaseURL: "https://a/v1/", Model: "m",
		Key: func() (secret.Value, error) { return secret.Value{}, errors.New("no file") },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := llm.NewModel(nil, unread).Complete(t.Context(), "", "y"); capability.AsError(err).Reason != "model_credentials" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "model_credentials"`, err)
	}
}
