package llm

import (
	"errors"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/secret"
)

type openAIAnswer struct {
	Model   string `json:"model"`
	Choices []struct {
		Message struct {
			Content *string `json:"content"`
		} `json:"message"`
		Delta struct {
			Content *string `json:"content"`
		} `json:"delta"`
		Finish *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *usage    `json:"usage"`
	Error jsonx.Raw `json:"error"`
}

// openAIWhole parses a response that is not streamed and returns its text.
func (c *Client) openAIWhole(data []byte, a *answer) (string, error) {
	var w openAIAnswer
	if err := jsonx.Unmarshal(data, &w); err != nil {
		return "", err
	}
	if len(w.Choices) == 0 {
		return "", errors.New("it has no choices")
	}
	first := w.Choices[0]
	a.model = w.Model
	a.count(w.Usage)
	if first.Finish != nil {
		a.ended(*first.Finish)
	}
	if first.Message.Content == nil {
		return "", nil
	}
	return *first.Message.Content, nil
}

type anthropicAnswer struct {
	Type    string `json:"type"`
	Model   string `json:"model"`
	Content []part `json:"content"`
	Stop    string `json:"stop_reason"`
	Usage   *usage `json:"usage"`
}

// anthropicWhole parses a response that is not streamed and returns its text.
func (c *Client) anthropicWhole(data []byte, a *answer) (string, error) {
	var w anthropicAnswer
	if err := jsonx.Unmarshal(data, &w); err != nil {
		return "", err
	}
	if w.Type != "message" {
		return "", errors.New("it is not a message")
	}
	a.model = w.Model
	a.count(w.Usage)
	a.ended(w.Stop)
	var text strings.Builder
	for _, p := range w.Content {
		if p.Type == "text" {
			text.WriteString(p.Text)
		}
	}
	return text.String(), nil
}

// event processes one event of a stream. stop reports that further events are not needed.
func (c *Client) event(data []byte, a *answer, key secret.Value) (stop bool, err error) {
	if c.cfg.Kind == Anthropic {
		return c.anthropicEvent(data, a, key)
	}
	return c.openAIEvent(data, a, key)
}

func (c *Client) openAIEvent(data []byte, a *answer, key secret.Value) (bool, error) {
	if string(data) == "[DONE]" {
		a.done = true
		return true, nil
	}
	var w openAIAnswer
	if err := jsonx.Unmarshal(data, &w); err != nil {
		return true, unreadable(err)
	}
	if len(w.Error) > 0 && string(w.Error) != "null" {
		return true, &transient{fault(capability.CodeUnavailable, "the model service failed while it answered", redact(string(w.Error), key),
			""), 0}
	}
	if w.Model != "" {
		a.model = w.Model
	}
	a.count(w.Usage)
	if len(w.Choices) == 0 {
		return false, nil
	}
	first := w.Choices[0]
	if first.Finish != nil && *first.Finish != "" {
		a.ended(*first.Finish)
		a.done = true // some services omit [DONE]
	}
	if first.Delta.Content == nil {
		return false, nil
	}
	return a.add(*first.Delta.Content)
}

type anthropicEvent struct {
	Type    string `json:"type"`
	Message *struct {
		Model string `json:"model"`
		Usage *usage `json:"usage"`
	} `json:"message"`
	Delta *struct {
		Type string `json:"type"`
		Text string `json:"text"`
		Stop string `json:"stop_reason"`
	} `json:"delta"`
	Usage *usage    `json:"usage"`
	Error jsonx.Raw `json:"error"`
}

func (c *Client) anthropicEvent(data []byte, a *answer, key secret.Value) (bool, error) {
	var w anthropicEvent
	if err := jsonx.Unmarshal(data, &w); err != nil {
		return true, unreadable(err)
	}
	a.count(w.Usage)
	switch w.Type {
	case "message_start":
		if w.Message != nil {
			a.model = w.Message.Model
			a.count(w.Message.Usage)
		}
	case "content_block_delta":
		if w.Delta != nil && w.Delta.Type == "text_delta" {
			return a.add(w.Delta.Text)
		}
	case "message_delta":
		if w.Delta != nil {
			a.ended(w.Delta.Stop)
		}
	case "message_stop":
		a.done = true
		return true, nil
	case "error":
		return true, &transient{fault(capability.CodeUnavailable, "the model service failed while it answered", redact(string(w.Error), key),
			""), 0}
	}
	return false, nil // pings and unknown events
}
