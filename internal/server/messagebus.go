package server

import (
	"path/filepath"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
)

// NATSServerConfig returns the text that the configuration of each NATS server of nats.url must
// contain. It contains no secret.
func NATSServerConfig(cfg config.Config) (string, error) {
	if cfg.NATS.KeySecret == "" {
		return "", capability.Errorf(capability.CodeInvalidInput, "config",
			"nats.key_secret is not set, so the servers cannot be told whom to trust").
			With("", "store a secret and name it: junctor secrets set NAME")
	}
	further := secretstore.Further{Dir: cfg.SecretsDir, Vault: secretstore.Vault(cfg.Vault)}
	secrets, err := secretstore.Open(filepath.Join(cfg.Home, "secrets"), further)
	if err != nil {
		return "", err
	}
	defer secrets.Close()
	shared, err := secrets.Get(cfg.NATS.KeySecret)
	if err != nil {
		return "", err
	}
	return natsbus.ServerConfig(shared)
}
