package llm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/protocol/modelwire"
	"github.com/junctor-run/junctor/secret"
)

// attemptOf is the state of one attempt.
type attemptOf struct {
	emit    func(modelwire.Delta) error
	emitted bool
	failed  error // error returned by emit
}

// attempt makes one request. A failure that may not recur is a *transient.
func (c *Client) attempt(ctx context.Context, req modelwire.Request, key secret.Value, a *attemptOf) (modelwire.Reply, error) {
	var none modelwire.Reply
	req.NewTokenLimit = c.newTokens.Load()
	body, err := c.cfg.Form.Encode(req)
	if err != nil {
		return none, capability.Wrap(capability.CodeInvalidInput, op, "the request to the model cannot be encoded", err)
	}
	if len(body) > MaxPrompt {
		return none, capability.Errorf(capability.CodeTooLarge, op, "the request to the model has %d bytes; %d are the most",
			len(body), MaxPrompt)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+c.cfg.Form.Path(req.Model, req.Stream), bytes.NewReader(body))
	if err != nil {
		return none, capability.Wrap(capability.CodeInternal, op, "the request to the model service cannot be made", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "junctor")
	if c.cfg.Form == modelwire.AnthropicMessages {
		r.Header.Set("anthropic-version", "2023-06-01")
	}
	if !key.Empty() {
		name, prefix := c.cfg.Form.KeyHeader()
		r.Header.Set(name, prefix+key.Reveal())
	}
	res, err := c.http.Do(r)
	if err != nil {
		return none, &transient{fault(capability.CodeUnavailable, "the model service cannot be reached", redact(err.Error(), key), ""), 0}
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return none, c.refusal(res, key)
	}
	limited := io.LimitReader(res.Body, maxBody)
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); a.emit != nil && kind == "text/event-stream" {
		return c.streamed(limited, a, key)
	}
	return c.whole(limited, a, key)
}

// streamed reads a response that is a stream.
func (c *Client) streamed(body io.Reader, a *attemptOf, key secret.Value) (modelwire.Reply, error) {
	d := c.cfg.Form.NewDecoder(c.cfg.MaxText)
	err := readEvents(body, func(data []byte) (bool, error) {
		pieces, done, err := d.Event(data)
		for _, piece := range pieces {
			a.emitted = true
			if a.failed = a.emit(piece); a.failed != nil {
				return true, a.failed
			}
		}
		return done, reported(err, key)
	})
	if err != nil {
		return modelwire.Reply{}, err
	}
	reply, err := d.Reply()
	if errors.Is(err, modelwire.ErrBroken) {
		return reply, broken(err.Error())
	}
	return reply, reported(err, key)
}

// whole reads a response that is not streamed, even if streaming was requested.
func (c *Client) whole(body io.Reader, a *attemptOf, key secret.Value) (modelwire.Reply, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return modelwire.Reply{}, broken(redact(err.Error(), key))
	}
	reply, err := c.cfg.Form.Decode(data)
	if err != nil || a.emit == nil {
		return reply, reported(err, key)
	}
	call, room := 0, c.cfg.MaxText
	for _, b := range reply.Message.Blocks {
		piece := modelwire.Delta{Kind: b.Kind, Text: b.Text}
		switch b.Kind {
		case modelwire.Call:
			piece.Text, piece.Name, piece.Call = b.Input, b.Name, call
			call++
		case modelwire.Text:
			piece.Text = text.CutBytes(b.Text, room)
			room -= len(piece.Text)
		case modelwire.Thinking:
		default:
			continue
		}
		a.emitted = true
		if a.failed = a.emit(piece); a.failed != nil {
			return reply, a.failed
		}
	}
	return reply, nil
}

// reported returns the error for a response that could not be decoded, or that reports a failure
// of the service.
func reported(err error, key secret.Value) error {
	if err == nil {
		return nil
	}
	if s, ok := errors.AsType[*modelwire.ServiceError](err); ok {
		return &transient{fault(capability.CodeUnavailable, "the model service failed while it answered", redact(s.Message, key), ""), 0}
	}
	return unreadable(err)
}

func broken(cause string) error {
	return &transient{fault(capability.CodeUnavailable, "the answer of the model broke off", cause, ""), 0}
}

func unreadable(err error) error {
	return capability.Wrap(capability.CodeFailed, op, "the model service answered something else than an answer",
		err).With("output_parse_error", "")
}
