package nodes

import (
	"context"
	"fmt"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
)

// openBus opens the bus over which gateways and nodes talk: the cluster that
// is configured, else a server inside this process, which keeps in Dir nothing that
// could not be made again. authorize decides which sessions come in.
func openBus(ctx context.Context, cfg Config, authorize messaging.Authorizer) (*natsbus.Broker, error) {
	c := natsbus.Config{Authorize: authorize, Logger: cfg.Logger}
	if cfg.NATS.URL == "" {
		return natsbus.Embed(ctx, cfg.Dir, c)
	}
	shared, err := cfg.Secrets.Get(cfg.NATS.KeySecret)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "config",
			fmt.Sprintf("nats.key_secret: the secret %s cannot be read", cfg.NATS.KeySecret), err).
			With("", "store it before nats.url is set: junctor secrets set "+cfg.NATS.KeySecret)
	}
	return natsbus.Open(ctx, natsbus.Cluster{URL: cfg.NATS.URL, Secret: shared, Replicas: cfg.NATS.Replicas}, c)
}
