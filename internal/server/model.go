package server

import (
	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/platform/llm"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/secret"
)

// openModel returns a client for the configured language model, or nil if none is configured.
func openModel(cfg config.Config, secrets *secretstore.Store) (*llm.Client, error) {
	if cfg.Model.URL == "" {
		return nil, nil
	}
	c := llm.Config{Kind: llm.Kind(cfg.Model.Kind), BaseURL: cfg.Model.URL, Model: cfg.Model.Name, MaxTokens: cfg.Model.MaxTokens}
	if name := cfg.Model.KeySecret; name != "" {
		c.Key = func() (secret.Value, error) { return secrets.Get(name) }
	}
	client, err := llm.New(c)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "config", "model: "+capability.AsError(err).Message, err)
	}
	return client, nil
}
