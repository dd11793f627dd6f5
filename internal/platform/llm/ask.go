package llm

import (
	"context"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// ask passes a conversation of texts to Config.Ask as one prompt.
func (c *Client) ask(ctx context.Context, req modelwire.Request, emit func(modelwire.Delta) error) (modelwire.Reply, error) {
	var none modelwire.Reply
	if len(req.Tools) > 0 || req.Schema != nil {
		return none, capability.Errorf(capability.CodeInvalidInput, op, "the model %s of a module answers texts only", c.cfg.Model)
	}
	var b strings.Builder
	for _, s := range req.System {
		b.WriteString(s + "\n\n")
	}
	for _, m := range req.Messages {
		b.WriteString(string(m.Role) + ": ")
		for _, block := range m.Blocks {
			if block.Kind == modelwire.Text {
				b.WriteString(block.Text + "\n")
			}
		}
	}
	if b.Len() > MaxPrompt {
		return none, capability.Errorf(capability.CodeTooLarge, op, "the prompt has %d bytes; %d are the most", b.Len(), MaxPrompt)
	}
	got, err := c.cfg.Ask(ctx, b.String(), req.MaxTokens)
	if err != nil {
		return none, &transient{capability.AsError(err), 0} // another model may answer
	}
	got = text.ClipBytes(got, c.cfg.MaxText)
	if emit != nil {
		if err := emit(modelwire.Delta{Kind: modelwire.Text, Text: got}); err != nil {
			return none, err
		}
	}
	return modelwire.Reply{Model: c.cfg.Model, Stop: modelwire.StopEnd, Message: modelwire.Message{
		Role: modelwire.Assistant, Blocks: []modelwire.Block{{Kind: modelwire.Text, Text: got}},
	}}, nil
}
