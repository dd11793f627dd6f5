package server

import (
	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/platform/llm"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/protocol/modelwire"
	"github.com/junctor-run/junctor/secret"
)

// openModels returns the configured language models by class. Without any, both are nil.
func openModels(cfg config.Model, secrets *secretstore.Store) (llm.Classes, error) {
	var large, small []*llm.Client
	for _, r := range cfg.All() {
		c := llm.Config{Form: modelwire.Form(r.Kind), BaseURL: r.URL, Model: r.Name, MaxTokens: cfg.MaxTokens}
		if name := r.KeySecret; name != "" {
			c.Key = func() (secret.Value, error) { return secrets.Get(name) }
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
