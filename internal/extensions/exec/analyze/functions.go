package analyze

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// FunctionsConfig is what the canonical action needs.
type FunctionsConfig struct {
	Analyzer *Analyzer
	// Stored returns the text of a stored result that the caller may see, by its
	// reference; "" is the last of the call's session. nil makes the action
	// unavailable.
	Stored func(ctx context.Context, c capability.Call, ref string) (string, error)
}

// Functions returns analyze.response for callers that are no slash commands.
func Functions(cfg FunctionsConfig) []host.Function {
	unavailable := ""
	if cfg.Stored == nil || cfg.Analyzer == nil {
		unavailable = "this server keeps no results"
	}
	return []host.Function{{
		ID: "analyze.response", Action: "analyze.response", Effect: capability.EffectRead, Permissions: []string{"llm", "session.read"},
		Timeout: 2 * time.Minute, Unavailable: unavailable,
		Handle: func(ctx context.Context, c capability.Call) (capability.Result, error) {
			var in struct {
				Ref      string `json:"responseRef"`
				Question string `json:"question"`
			}
			if err := jsonx.Unmarshal(c.Input, &in); err != nil {
				return capability.Result{}, capability.Wrap(capability.CodeInvalidInput, op, "the input is not what analyze.response takes", err).With("invalid_args", "")
			}
			got, err := cfg.Analyzer.Response(ctx, Request{
				Task: in.Question, AllowModel: true,
				Source: Source{Last: func(ctx context.Context) (string, error) { return cfg.Stored(ctx, c, in.Ref) }},
			})
			if err != nil {
				return capability.Result{}, err
			}
			value, err := jsonx.Marshal(struct {
				Text     string         `json:"text"`
				Metadata map[string]any `json:"metadata"`
			}{got.Output, got.Metadata})
			if err != nil {
				return capability.Result{}, capability.Wrap(capability.CodeFailed, op, "the result cannot be written as JSON", err)
			}
			return capability.Result{Value: value}, nil
		},
	}}
}
