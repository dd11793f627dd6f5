// Package llm calls language models: any service with an API in one of the forms
// of [modelwire]. A [Client] calls one service; a [Model] has several, and uses the next one
// where the first is out of order. Packages that need only text declare their own one-method
// interface, which [Model.Complete] implements.
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
	"github.com/junctor-run/junctor/internal/base/pause"
	"github.com/junctor-run/junctor/protocol/modelwire"
	"github.com/junctor-run/junctor/secret"
)

const op = "llm"

// Config configures the model and its limits.
type Config struct {
	Form    modelwire.Form
	BaseURL string // with /v1 for OpenAI's forms, /v1beta for Gemini's; http is for loopback only
	Model   string
	// Key returns the key. It is called for every call, so that a replaced key is used at
	// once. If nil, no key is sent.
	Key func() (secret.Value, error)
	// Ask, if set, answers a prompt instead of a service at BaseURL. It takes no tools.
	Ask func(ctx context.Context, prompt string, maxTokens int) (string, error)
	// PriceIn and PriceOut are the prices of a million tokens, in thousandths of a currency.
	PriceIn, PriceOut int
	MaxTokens         int           // of an answer; 0 is DefaultMaxTokens
	MaxText           int           // bytes of an answer, cut beyond; 0 is DefaultMaxText
	Timeout           time.Duration // of a call with its retries; 0 is DefaultTimeout
	AtOnce            int           // concurrent calls, others wait; 0 is 4
	// Transport sends the requests; if nil, New creates one.
	Transport http.RoundTripper
	// Wait waits between attempts. It may be replaced in tests; nil uses a timer.
	Wait func(ctx context.Context, d time.Duration) error
}

// Client calls one model. It is safe for concurrent use.
type Client struct {
	cfg    Config
	base   string
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
	if cfg.Ask == nil && !cfg.Form.Valid() {
		return invalid("the kind of a model service is one of %v", modelwire.Forms())
	}
	if cfg.Model == "" {
		return invalid("no model is named")
	}
	if cfg.Ask != nil {
		cfg.BaseURL = "https://module.invalid" // which is never called
	}
	u, err := url.Parse(cfg.BaseURL)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return invalid("the base URL of the model service is an https URL without user, query and fragment")
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return invalid("the base URL of the model service must be https: the key and the texts would be readable on the way")
	}
	base := strings.TrimRight(cfg.BaseURL, "/")
	if cfg.Form == modelwire.AnthropicMessages {
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
		cfg.Wait = pause.For
	}
	if cfg.Transport == nil {
		dialer := &net.Dialer{Timeout: 10 * time.Second}
		cfg.Transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: cfg.AtOnce, IdleConnTimeout: 30 * time.Second, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10,
		}
	}
	return &Client{
		cfg: cfg, base: base, places: make(chan struct{}, cfg.AtOnce),
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

// Model returns the name of the configured model.
func (c *Client) Model() string { return c.cfg.Model }

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Exchange sends a request to the model and returns its reply. The client sets the model, and
// the limit of tokens where the request has none or a larger one. If emit is not nil, the reply
// is streamed: emit is called with each piece in order, and its error ends the call. A transient
// failure before the first piece is retried; there are up to three attempts. A refusal of the
// model is a reply with [modelwire.StopRefused].
//
// Errors: too_large for a request beyond [MaxPrompt]; overloaded, with the delay that the
// service requires; unavailable if the service is unreachable or broken, or rejects the key;
// failed, reason model_refused if the service rejects the request, or output_parse_error for a
// malformed response; timeout; cancelled. Texts of the service appear only in the cause, without
// the key.
func (c *Client) Exchange(ctx context.Context, req modelwire.Request, emit func(modelwire.Delta) error) (modelwire.Reply, error) {
	reply, err := c.exchange(ctx, req, emit, maxAttempts)
	if err != nil {
		return reply, capability.AsError(err)
	}
	return reply, nil
}

// exchange is Exchange with a number of attempts. Its error is a *transient if another service
// might answer instead.
func (c *Client) exchange(
	ctx context.Context, req modelwire.Request, emit func(modelwire.Delta) error, attempts int,
) (modelwire.Reply, error) {
	req.Model, req.Stream = c.cfg.Model, emit != nil
	if req.MaxTokens <= 0 || req.MaxTokens > c.cfg.MaxTokens {
		req.MaxTokens = c.cfg.MaxTokens
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-ctx.Done():
		return modelwire.Reply{}, capability.AsError(ctx.Err())
	}
	if c.cfg.Ask != nil {
		return c.ask(ctx, req, emit)
	}
	var key secret.Value
	if c.cfg.Key != nil {
		var err error
		if key, err = c.cfg.Key(); err != nil {
			return modelwire.Reply{}, capability.Wrap(capability.CodeUnavailable, op, "the key of the model service cannot be read", err).
				With("model_credentials", "store it with: junctor secrets set")
		}
	}
	for attempt := 1; ; attempt++ {
		a := &attemptOf{emit: emit}
		reply, err := c.attempt(ctx, req, key, a)
		if err == nil {
			reply.Usage.Cost = int64(reply.Usage.In)*int64(c.cfg.PriceIn) + int64(reply.Usage.Out)*int64(c.cfg.PriceOut)
			return reply, nil
		}
		if a.failed != nil {
			return reply, a.failed
		}
		again := asTransient(err)
		if again == nil {
			return reply, capability.AsError(err)
		}
		if ctx.Err() != nil {
			err = capability.AsError(ctx.Err())
			if caller.Err() == nil && !a.emitted {
				err = &transient{err, 0} // the service is slow, another may not be
			}
			return reply, err
		}
		if a.emitted {
			return reply, capability.AsError(err)
		}
		if attempt >= attempts || again.after > maxRetryDelay {
			return reply, err
		}
		if err := c.cfg.Wait(ctx, max(again.after, time.Duration(attempt)*500*time.Millisecond)); err != nil {
			return reply, capability.AsError(err)
		}
	}
}
