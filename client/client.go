// Package client is the Go client of a running junctor server: its /api/v1, the
// connect API and the streams. The command line uses it too.
//
//	c, err := client.New(client.Config{URL: "http://127.0.0.1:7777", Token: token})
//	var out client.Invoked
//	err = c.Invoke(ctx, client.Invocation{Target: "fs.list", Input: json.RawMessage(`{"path":"."}`)}, &out)
//
// An error that the server reports is returned as a *capability.Error. If the server
// cannot be reached, the error is a *capability.Error with code unavailable.
package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

// Config holds the server's address and the credential.
type Config struct {
	URL       string
	Token     secret.Value
	Transport http.RoundTripper // nil: http.DefaultTransport
}

// Client is safe for concurrent use.
type Client struct {
	base  *url.URL
	token secret.Value
	http  *http.Client
}

// New returns a client; it does not connect.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(cfg.URL, "/"))
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "client",
			"this is not the URL of a server: it must be http or https, with a host and without a user or password").With("",
			"write http://127.0.0.1:7777, or leave --server out")
	}
	return &Client{base: u, token: cfg.Token, http: &http.Client{
		Transport: cfg.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a redirect would carry the token elsewhere
		},
	}}, nil
}

// URL returns the server's address.
func (c *Client) URL() string { return c.base.String() }

// Invocation is the body of an invoke; Target is an action, a capability id or
// module:kind:name.
type Invocation struct {
	Target         string              `json:"target"`
	Input          json.RawMessage     `json:"input,omitempty"`
	Select         map[string]string   `json:"select,omitempty"`
	Session        string              `json:"session,omitempty"`
	Context        *capability.Context `json:"context,omitempty"`
	Timeout        string              `json:"timeout,omitempty"`
	IdempotencyKey string              `json:"idempotency_key,omitempty"`
	DryRun         bool                `json:"dry_run,omitempty"`
	Stream         bool                `json:"stream,omitempty"`
	// LoadBalancing is true, the name of a strategy, or an object.
	LoadBalancing any `json:"load_balancing,omitempty"`
}

// Invoked is the server's answer to an invocation.
type Invoked struct {
	OK         bool            `json:"ok"`
	Result     json.RawMessage `json:"result"`
	Invocation json.RawMessage `json:"invocation"`
}

// Invoke sends one invocation, waits for its end and decodes the answer into out. It
// does not retry.
func (c *Client) Invoke(ctx context.Context, inv Invocation, out any) error {
	return c.Do(ctx, http.MethodPost, "/api/v1/invocations", inv, out)
}

// Do sends one request and decodes the answer into out (nil, *json.RawMessage or any
// pointer). body is nil, a []byte that is sent unchanged, or a value that is sent as JSON.
func (c *Client) Do(ctx context.Context, method, path string, body, out any) error {
	resp, err := c.send(ctx, method, path, body, "application/json")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return c.unreachable(err)
	}
	if len(data) > maxAnswer {
		return capability.Errorf(capability.CodeTooLarge, "client", "the answer is larger than %d bytes", maxAnswer)
	}
	if resp.StatusCode >= 300 {
		return failure(resp.StatusCode, data)
	}
	if out == nil || len(data) == 0 {
		return nil
	}
	if raw, ok := out.(*json.RawMessage); ok {
		*raw = data
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return capability.Wrap(capability.CodeFailed, "client", "the server's answer is not what was expected; is it a junctor server?", err)
	}
	return nil
}

// Lines yields the lines of a streaming path, which are JSON values, until the server
// ends the stream, ctx ends, or an error was yielded. Blank keep-alive lines are skipped.
func (c *Client) Lines(ctx context.Context, method, path string, body any) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		resp, err := c.send(ctx, method, path, body, "application/x-ndjson")
		if err != nil {
			yield(nil, err)
			return
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 300 {
			data, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
			yield(nil, failure(resp.StatusCode, data))
			return
		}
		scanner := bufio.NewScanner(resp.Body)
		scanner.Buffer(make([]byte, 0, 64<<10), maxAnswer)
		for scanner.Scan() {
			if line := bytes.TrimSpace(scanner.Bytes()); len(line) > 0 {
				if !yield(bytes.Clone(line), nil) {
					return
				}
			}
		}
		if err := scanner.Err(); err != nil && ctx.Err() == nil {
			yield(nil, c.unreachable(err))
		}
	}
}

// send sends one request and returns the response whatever its status. The caller closes
// the body.
func (c *Client) send(ctx context.Context, method, path string, body any, accept string) (*http.Response, error) {
	var reader io.Reader
	contentType := "application/json"
	switch b := body.(type) {
	case nil:
	case []byte:
		reader, contentType = bytes.NewReader(b), "application/octet-stream"
	default:
		data, err := json.Marshal(b)
		if err != nil {
			return nil, capability.Wrap(capability.CodeInvalidInput, "client", "the request cannot be written as JSON", err)
		}
		reader = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, reader)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "client", "the request cannot be made", err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "junctor-cli")
	if reader != nil {
		req.Header.Set("Content-Type", contentType)
	}
	if !c.token.Empty() {
		req.Header.Set("Authorization", "Bearer "+c.token.Reveal())
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	return resp, nil
}

func (c *Client) unreachable(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return capability.Wrap(capability.CodeCancelled, "client", "interrupted", err)
	case errors.Is(err, context.DeadlineExceeded):
		return capability.Wrap(capability.CodeTimeout, "client", "the server did not answer in time", err)
	}
	return capability.Wrap(capability.CodeUnavailable, "client", "no server answers at "+c.URL(), err).
		With("service_unavailable", "start one with: junctor serve, or name another one with --server")
}

// failure returns the error of a response: the one in its body, or else one with code
// failed that names the status.
func failure(status int, data []byte) error {
	var wire struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &wire) == nil && len(wire.Error) > 0 {
		var e capability.Error
		inner := []byte(wire.Error)
		// In the connect API, as in elizaOS, error is the message itself; junctor's
		// further members are beside it.
		if json.Unmarshal(wire.Error, &e.Message) == nil {
			inner = data
		}
		message := e.Message
		if json.Unmarshal(inner, &e) == nil && e.Code != "" {
			e.Message = cmp.Or(e.Message, message)
			return &e
		}
		if message != "" { // an agent of elizaOS itself, which sends nothing else
			return capability.Errorf(capability.CodeFailed, "client", "the server answered %d: %.2000s", status, message)
		}
	}
	return capability.Errorf(capability.CodeFailed, "client", "the server answered %d and nothing that can be read", status)
}

// Wait polls /readyz until the server is ready or ctx ends.
func (c *Client) Wait(ctx context.Context) error {
	for {
		resp, err := c.send(ctx, http.MethodGet, "/readyz", nil, "application/json")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("not ready: %s", resp.Status)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
