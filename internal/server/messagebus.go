package server

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
)

// openMessageBus opens the bus over which gateways and nodes talk: the cluster that
// is configured, else a server inside this process, which keeps in dir nothing that
// could not be made again. authorize decides which sessions come in.
func openMessageBus(ctx context.Context, cfg config.Config, dir string, secrets *secretstore.Store, authorize messaging.Authorizer, logger *slog.Logger) (*natsbus.Broker, error) {
	c := natsbus.Config{Authorize: authorize, Logger: logger}
	if cfg.NATS.URL == "" {
		return natsbus.Embed(ctx, dir, c)
	}
	shared, err := secrets.Get(cfg.NATS.KeySecret)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "config", fmt.Sprintf("nats.key_secret: the secret %s cannot be read", cfg.NATS.KeySecret), err).
			With("", "store it before nats.url is set: junctor secrets set "+cfg.NATS.KeySecret)
	}
	return natsbus.Open(ctx, natsbus.Cluster{URL: cfg.NATS.URL, Secret: shared, Replicas: cfg.NATS.Replicas}, c)
}

// NATSServerConfig is what the configuration of each server of nats.url must
// contain; nothing in it is secret.
func NATSServerConfig(cfg config.Config) (string, error) {
	if cfg.NATS.KeySecret == "" {
		return "", capability.Errorf(capability.CodeInvalidInput, "config", "nats.key_secret is not set, so the servers cannot be told whom to trust").
			With("", "store a secret and name it: junctor secrets set NAME")
	}
	secrets, err := secretstore.Open(filepath.Join(cfg.Home, "secrets"))
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
