package llm

import (
	"bytes"
	"context"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/secret"
)

// answer collects a model's response.
type answer struct {
	most      int
	emit      func(string) error
	emitted   bool
	failed    error // error returned by emit
	text      strings.Builder
	model     string
	in, out   int
	truncated bool
	refused   bool
	done      bool // the service reported the end
}

// add appends a piece, cut at the limit, and emits it. full reports that the limit is reached. The
// error is emit's.
func (a *answer) add(piece string) (full bool, _ error) {
	if room := a.most - a.text.Len(); len(piece) > room {
		piece, full, a.truncated = text.CutBytes(piece, room), true, true
	}
	a.text.WriteString(piece)
	if a.emit != nil && piece != "" {
		a.emitted = true
		a.failed = a.emit(piece)
	}
	return full, a.failed
}

func (a *answer) reply(model string) Reply {
	if a.model != "" {
		model = a.model
	}
	return Reply{a.text.String(), model, a.in, a.out, a.truncated}
}

// part is a text in both wire forms.
type part struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type wireMessage struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
}

// content returns a plain string for one part, because not every compatible service supports a list,
// and a list for several.
func content(parts []string) any {
	if len(parts) == 1 {
		return parts[0]
	}
	list := make([]part, len(parts))
	for i, p := range parts {
		list[i] = part{"text", p}
	}
	return list
}

type openAIRequest struct {
	Model               string         `json:"model"`
	Messages            []wireMessage  `json:"messages"`
	MaxTokens           int            `json:"max_tokens,omitzero"`
	MaxCompletionTokens int            `json:"max_completion_tokens,omitzero"`
	Stream              bool           `json:"stream,omitzero"`
	StreamOptions       *streamOptions `json:"stream_options,omitzero"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type anthropicRequest struct {
	Model     string        `json:"model"`
	MaxTokens int           `json:"max_tokens"`
	System    string        `json:"system,omitzero"`
	Messages  []wireMessage `json:"messages"`
	Stream    bool          `json:"stream,omitzero"`
}

// encode returns the request's body in the configured wire form.
func (c *Client) encode(req Request, stream bool) ([]byte, error) {
	var messages []wireMessage
	if c.cfg.Kind == OpenAI && req.System != "" {
		messages = append(messages, wireMessage{"system", req.System})
	}
	for _, t := range req.Turns {
		messages = append(messages, wireMessage{t.Role, content(t.Parts)})
	}
	if c.cfg.Kind == Anthropic {
		return jsonx.Marshal(anthropicRequest{c.cfg.Model, req.MaxTokens, req.System, messages, stream})
	}
	body := openAIRequest{Model: c.cfg.Model, Messages: messages, Stream: stream}
	if stream {
		body.StreamOptions = &streamOptions{true}
	}
	if c.newTokens.Load() {
		body.MaxCompletionTokens = req.MaxTokens
	} else {
		body.MaxTokens = req.MaxTokens
	}
	return jsonx.Marshal(body)
}

// attempt makes one request and fills a. A failure that may not recur is a *transient.
func (c *Client) attempt(ctx context.Context, req Request, key secret.Value, a *answer) error {
	body, err := c.encode(req, a.emit != nil)
	if err != nil {
		return capability.Wrap(capability.CodeInvalidInput, op, "the texts for the model are not UTF-8", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return capability.Wrap(capability.CodeInternal, op, "the request to the model service cannot be made", err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "junctor")
	if c.cfg.Kind == Anthropic {
		r.Header.Set("anthropic-version", "2023-06-01")
	}
	if !key.Empty() {
		if c.cfg.Kind == Anthropic {
			r.Header.Set("x-api-key", key.Reveal())
		} else {
			r.Header.Set("Authorization", "Bearer "+key.Reveal())
		}
	}
	res, err := c.http.Do(r)
	if err != nil {
		return &transient{fault(capability.CodeUnavailable, "the model service cannot be reached", redact(err.Error(), key), ""), 0}
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return c.refusal(res, key)
	}
	limited := io.LimitReader(res.Body, maxBody)
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if a.emit != nil && kind == "text/event-stream" {
		err = readEvents(limited, func(data []byte) (bool, error) { return c.event(data, a, key) })
		if err == nil && !a.done && !a.truncated {
			err = &transient{fault(capability.CodeUnavailable, "the answer of the model broke off", "the stream ended without its end", ""), 0}
		}
	} else {
		err = c.whole(limited, a, key)
	}
	if err == nil && a.refused {
		err = capability.Errorf(capability.CodeFailed, op, "the model declined to answer").With("model_refused", "")
	}
	return err
}

// whole reads a response that is not streamed, even if streaming was requested.
func (c *Client) whole(body io.Reader, a *answer, key secret.Value) error {
	data, err := io.ReadAll(body)
	if err != nil {
		return &transient{fault(capability.CodeUnavailable, "the answer of the model broke off", redact(err.Error(), key), ""), 0}
	}
	read := c.openAIWhole
	if c.cfg.Kind == Anthropic {
		read = c.anthropicWhole
	}
	text, err := read(data, a)
	if err != nil {
		return unreadable(err)
	}
	_, err = a.add(text)
	return err
}

func unreadable(err error) error {
	return capability.Wrap(capability.CodeFailed, op, "the model service answered something else than an answer",
		err).With("output_parse_error", "")
}

type usage struct {
	In     int `json:"prompt_tokens"`
	Out    int `json:"completion_tokens"`
	Input  int `json:"input_tokens"`
	Output int `json:"output_tokens"`
}

// count records the token counts that u contains, because streams report them separately.
func (a *answer) count(u *usage) {
	if u != nil {
		a.in = max(a.in, u.In, u.Input)
		a.out = max(a.out, u.Out, u.Output)
	}
}

// ended records the reason why the model stopped.
func (a *answer) ended(reason string) {
	switch reason {
	case "length", "max_tokens":
		a.truncated = true
	case "content_filter", "refusal":
		a.refused = true
	}
}
