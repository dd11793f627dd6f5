// Package llm calls a language model: any service with the API of OpenAI's chat completions
// (OpenAI, Ollama, vLLM, OpenRouter, Gemini's compatible endpoint) or of Anthropic's
// messages. It is one client with two small wire forms. Packages that use a model declare
// their own one-method interface, which [Client.Complete] implements.
//
// Prompt, response, time, concurrent calls and retries are bounded. The key is sent in one
// request header, only to the configured host (redirects are not followed), and is removed
// from the service's messages before they become an error's cause.
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
	MaxPrompt        = 1 << 20 // bytes of all texts of a request
	DefaultMaxText   = 256 << 10
	maxBody          = 8 << 20 // bytes of a whole response
	maxErrorBody     = 16 << 10
	maxAttempts      = 3
	maxRetryDelay    = 20 * time.Second // if a service requires a longer delay, the call is not retried
)

// Config configures the model and its limits.
type Config struct {
	Kind    Kind
	BaseURL string // with /v1 for OpenAI's form; http is for loopback only
	Model   string
	// Key returns the key. It is called for every call, so that a replaced key is used at
	// once. If nil, no key is sent.
	Key       func() (secret.Value, error)
	MaxTokens int           // of an answer; 0 is DefaultMaxTokens
	MaxText   int           // bytes of an answer, cut beyond; 0 is DefaultMaxText
	Timeout   time.Duration // of a call with its retries; 0 is DefaultTimeout
	AtOnce    int           // concurrent calls, others wait; 0 is 4
	// Transport sends the requests; if nil, New creates one.
	Transport http.RoundTripper
	// Wait waits between attempts. It may be replaced in tests; nil uses a timer.
	Wait func(ctx context.Context, d time.Duration) error
}

// Client calls one model. It is safe for concurrent use.
type Client struct {
	cfg    Config
	url    string
	http   *http.Client
	places chan struct{}
	// newTokens is set once the service has required max_completion_tokens.
	newTokens atomic.Bool
}

// New checks the configuration and returns a client. An invalid configuration is invalid_input.
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

// Model returns the name of the configured model.
func (c *Client) Model() string { return c.cfg.Model }

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Roles of turns.
const (
	User      = "user"
	Assistant = "assistant"
)

// Turn is one message of a conversation. Its parts stay separate on the wire.
type Turn struct {
	Role  string
	Parts []string
}

// Request is a prompt for a model.
type Request struct {
	System    string
	Turns     []Turn // the first is a user's
	MaxTokens int    // 0 or a larger value means the configured maximum
}

// Reply is the model's response.
type Reply struct {
	Text      string
	Model     string // name reported by the service
	In, Out   int    // tokens; 0 if the service does not report them
	Truncated bool   // the text ended at a limit of the service or of the client
}

// Complete returns the response to one user message of several parts, and the number of tokens
// used. Errors are those of [Client.Ask].
func (c *Client) Complete(ctx context.Context, system string, parts ...string) (text string, tokens int, err error) {
	r, err := c.Ask(ctx, Request{System: system, Turns: []Turn{{User, parts}}}, nil)
	return r.Text, r.In + r.Out, err
}

// Ask sends a request to the model and returns its response. If emit is not nil, the response is
// streamed: emit is called with each piece in order, and its error ends the call. A transient
// failure before the first piece is retried; there are up to three attempts.
//
// Errors: too_large for a prompt beyond [MaxPrompt]; overloaded, with the delay that the
// service requires; unavailable if the service is unreachable or broken, or rejects the key;
// failed, reason model_refused if the service or the model rejects the request, or
// output_parse_error for a malformed response; timeout; cancelled. Texts of the service appear
// only in the cause, without the key.
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
