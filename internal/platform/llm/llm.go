// Package llm asks a language model: any service that speaks OpenAI's chat
// completions (OpenAI, Ollama, vLLM, OpenRouter, Gemini's compatible door) or
// Anthropic's messages. It is one client over two small wire forms. Those who use
// a model declare a one-method interface of their own, which [Client.Complete]
// fits, and are wired to it by the server.
//
// Everything is bounded: prompt, answer, time, calls at once, retries. The key
// goes into one request header, to the configured host only (redirects are not
// followed), and is cut out of whatever the service says back before that becomes
// an error's cause.
package llm

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

const op = "llm"

// Kind is a wire form.
type Kind string

// The wire forms.
const (
	OpenAI    Kind = "openai"    // POST <base>/chat/completions
	Anthropic Kind = "anthropic" // POST <base>/v1/messages
)

// Defaults and limits.
const (
	DefaultTimeout   = 60 * time.Second
	DefaultMaxTokens = 2048
	MaxPrompt        = 1 << 20 // bytes of a request's texts
	DefaultMaxText   = 256 << 10
	maxBody          = 8 << 20 // bytes of an answer with everything around its text
	maxErrorBody     = 16 << 10
	maxAttempts      = 3
	maxRetryDelay    = 20 * time.Second // a service that asks for more is asked again by the caller, if at all
)

// Config states which model is asked, and how.
type Config struct {
	Kind    Kind
	BaseURL string // with /v1 for OpenAI's form; http is for loopback only
	Model   string
	// Key is asked for at every call, so that a replaced one is used at once. nil
	// sends none.
	Key       func() (secret.Value, error)
	MaxTokens int           // of an answer; 0 is DefaultMaxTokens
	MaxText   int           // bytes of an answer, cut beyond; 0 is DefaultMaxText
	Timeout   time.Duration // of a call with its retries; 0 is DefaultTimeout
	AtOnce    int           // calls at once, others wait; 0 is 4
	// Transport carries the requests; nil is one of our own.
	Transport http.RoundTripper
	// Wait pauses between attempts; nil waits by the clock.
	Wait func(ctx context.Context, d time.Duration) error
}

// Client asks one model. It is safe for concurrent use.
type Client struct {
	cfg    Config
	url    string
	http   *http.Client
	places chan struct{}
	// newTokens remembers that the service wants the newer name of a member.
	newTokens atomic.Bool
}

// New checks the configuration; a fault is invalid_input.
func New(cfg Config) (*Client, error) {
	invalid := func(format string, args ...any) (*Client, error) {
		return nil, capability.Errorf(capability.CodeInvalidInput, op, format, args...).With("invalid_args",
			"correct the llm section of the configuration")
	}
	if cfg.Kind != OpenAI && cfg.Kind != Anthropic {
		return invalid("the kind of a model service is %s or %s", OpenAI, Anthropic)
	}
	if cfg.Model == "" {
		return invalid("no model is named")
	}
	u, err := url.Parse(cfg.BaseURL)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return invalid("the base URL of the model service is an https URL without user, query and fragment")
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return invalid("the base URL of the model service must be https: the key and the texts would be readable on the way")
	}
	path := "/chat/completions"
	if cfg.Kind == Anthropic {
		path = "/v1/messages"
	}
	base := strings.TrimRight(cfg.BaseURL, "/")
	if cfg.Kind == Anthropic {
		base = strings.TrimSuffix(base, "/v1")
	}
	if cfg.MaxTokens <= 0 {
		cfg.MaxTokens = DefaultMaxTokens
	}
	if cfg.MaxText <= 0 {
		cfg.MaxText = DefaultMaxText
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.AtOnce <= 0 {
		cfg.AtOnce = 4
	}
	if cfg.Wait == nil {
		cfg.Wait = wait
	}
	if cfg.Transport == nil {
		dialer := &net.Dialer{Timeout: 10 * time.Second}
		cfg.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: cfg.AtOnce, IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
		}
	}
	return &Client{
		cfg: cfg, url: base + path, places: make(chan struct{}, cfg.AtOnce),
		http: &http.Client{Transport: cfg.Transport, CheckRedirect: func(*http.Request,
			[]*http.Request,
		) error {
			return http.ErrUseLastResponse
		}},
	}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Model is the configured model's name.
func (c *Client) Model() string { return c.cfg.Model }

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Roles of turns.
const (
	User      = "user"
	Assistant = "assistant"
)

// Turn is one message of a conversation; its parts stay apart on the wire.
type Turn struct {
	Role  string
	Parts []string
}

// Request is what a model is asked.
type Request struct {
	System    string
	Turns     []Turn // begins with a user's
	MaxTokens int    // 0: as configured; never more than that
}

// Reply is what it answers.
type Reply struct {
	Text      string
	Model     string // as the service calls it
	In, Out   int    // tokens, 0 where the service does not say
	Truncated bool   // the answer ended at a limit, the service's or ours
}

// Complete asks for one answer to a prompt of several parts, which the model sees
// as parts of one message, and states how many tokens it cost. See [Client.Ask] for
// the errors.
func (c *Client) Complete(ctx context.Context, system string, parts ...string) (text string, tokens int, err error) {
	r, err := c.Ask(ctx, Request{System: system, Turns: []Turn{{User, parts}}}, nil)
	return r.Text, r.In + r.Out, err
}

// Ask asks the model. With emit the answer is streamed: emit gets each piece as
// it comes, in order, and its error ends the call. An attempt that failed before
// anything was emitted is made again, up to three times, where that can help.
//
// Errors: too_large (a prompt beyond [MaxPrompt]), overloaded (with the pause
// that the service asks for), unavailable (unreachable, broken, or a key that is
// not accepted), failed (reason model_refused: the service does not want the
// request; output_parse_error: it answered something else), timeout, cancelled.
// What the service says is in the cause alone, without the key.
func (c *Client) Ask(ctx context.Context, req Request, emit func(piece string) error) (Reply, error) {
	size := len(req.System)
	for _, t := range req.Turns {
		for _, p := range t.Parts {
			size += len(p)
		}
	}
	if size > MaxPrompt {
		return Reply{}, capability.Errorf(capability.CodeTooLarge, op, "the texts for the model have %d bytes; %d are the most", size, MaxPrompt)
	}
	if req.MaxTokens <= 0 || req.MaxTokens > c.cfg.MaxTokens {
		req.MaxTokens = c.cfg.MaxTokens
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-ctx.Done():
		return Reply{}, capability.AsError(ctx.Err())
	}
	var key secret.Value
	if c.cfg.Key != nil {
		var err error
		if key, err = c.cfg.Key(); err != nil {
			return Reply{}, capability.Wrap(capability.CodeUnavailable, op, "the key of the model service cannot be read", err).
				With("model_credentials", "store it with: junctor secrets set")
		}
	}
	for attempt := 1; ; attempt++ {
		a := &answer{most: c.cfg.MaxText, emit: emit}
		err := c.attempt(ctx, req, key, a)
		if err == nil {
			return a.reply(c.cfg.Model), nil
		}
		if a.failed != nil {
			return Reply{}, a.failed
		}
		if ctx.Err() != nil {
			return Reply{}, capability.AsError(ctx.Err())
		}
		again := asTransient(err)
		if again == nil || a.emitted || attempt == maxAttempts || again.after > maxRetryDelay {
			return Reply{}, capability.AsError(err)
		}
		if err := c.cfg.Wait(ctx, max(again.after, time.Duration(attempt)*500*time.Millisecond)); err != nil {
			return Reply{}, capability.AsError(err)
		}
	}
}
