package chat

import (
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/platform/llm"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/protocol/modelwire"
	"github.com/junctor-run/junctor/secret"
)

// OpenModels returns the configured language models by class. Without any, both are nil. A route of
// kind module is called over path.
func OpenModels(cfg config.Model, secrets *secretstore.Store, path *invoke.Engine) (llm.Classes, error) {
	var large, small []*llm.Client
	for _, r := range cfg.All() {
		c := llm.Config{
			Form: modelwire.Form(r.Kind), BaseURL: r.URL, Model: r.Name, MaxTokens: cfg.MaxTokens, PriceIn: r.PriceIn, PriceOut: r.PriceOut,
		}
		if name := r.KeySecret; name != "" {
			c.Key = func() (secret.Value, error) { return secrets.Get(name) }
		}
		if r.Kind == config.ModelModule {
			c.Ask = moduleModel(path, r)
		}
		client, err := llm.New(c)
		if err != nil {
			return llm.Classes{}, capability.Wrap(capability.CodeInvalidInput, "config", "model: "+capability.AsError(err).Message, err)
		}
		if r.Class == config.ModelSmall {
			small = append(small, client)
		} else {
			large = append(large, client)
		}
	}
	return llm.NewClasses(large, small), nil
}

// moduleModel returns a function that asks the model of a module. The configuration names it, so that
// the server itself is the caller.
func moduleModel(path *invoke.Engine, r config.ModelRoute) func(ctx context.Context, prompt string, maxTokens int) (string, error) {
	return func(ctx context.Context, prompt string, maxTokens int) (string, error) {
		input, err := jsonx.Marshal(map[string]any{"modelType": r.Name, "params": map[string]any{"prompt": prompt, "maxTokens": maxTokens}})
		if err != nil {
			return "", err
		}
		reply, err := path.Invoke(ctx, capability.Invocation{
			Surface: "agent", Client: "chat", Principal: capability.Principal{ID: "server", Role: capability.RoleAdmin},
			Audience: capability.AudienceInternal, Target: capability.Target{Action: capability.Action(r.Action)}, Input: input,
		})
		if err != nil {
			return "", err
		}
		var out struct{ Result json.RawMessage }
		if err := json.Unmarshal(reply.Result, &out); err != nil {
			return "", err
		}
		if text, ok := jsonx.Text(out.Result); ok {
			return text, nil
		}
		return string(out.Result), nil
	}
}
