package server

import (
	"path/filepath"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/server/checkup"
)

// NATSServerConfig returns the text that the configuration of each NATS server of nats.url must
// contain. It contains no secret.
func NATSServerConfig(cfg config.Config) (string, error) {
	if cfg.NATS.KeySecret == "" {
		return "", capability.Errorf(capability.CodeInvalidInput, "config",
			"nats.key_secret is not set, so the servers cannot be told whom to trust").
			With("", "store a secret and name it: junctor secrets set NAME")
	}
	shared, err := secretstore.Look(filepath.Join(cfg.Home, "secrets"), checkup.Further(cfg), cfg.NATS.KeySecret)
	if err != nil {
		return "", err
	}
	return natsbus.ServerConfig(shared)
}
