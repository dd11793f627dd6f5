package nodes

import (
	"context"
	"fmt"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
)

// openBus opens the bus between gateways and nodes: the configured cluster, or else a server
// in this process, whose data in Dir can all be created again. authorize decides which
// sessions are admitted.
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
