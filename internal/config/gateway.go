package config

import (
	"fmt"
	"time"
)

// Gateway configures the server's side of the node protocol.
type Gateway struct {
	Heartbeat        time.Duration `koanf:"heartbeat" doc:"Interval of nodes' heartbeats."`
	HeartbeatTimeout time.Duration `koanf:"heartbeat_timeout" doc:"Remove a node after this time without a heartbeat; at least three heartbeats."`
	Grace            time.Duration `koanf:"grace" doc:"Remove a disconnected node after this time; at most heartbeat_timeout."`
	Streams          Streams       `koanf:"streams"`
}

// Streams holds the limits of nodes' streams.
type Streams struct {
	Total   int  `koanf:"total" doc:"Concurrent streams of all nodes; more are refused."`
	PerNode int  `koanf:"per_node" doc:"Concurrent streams of a node."`
	Window  Size `koanf:"window" doc:"Bytes of a stream in transit to a reader, 64KiB to 4MiB."`
}

func defaultGateway() Gateway {
	return Gateway{
		Heartbeat: 5 * time.Second, HeartbeatTimeout: 30 * time.Second, Grace: 5 * time.Second,
		Streams: Streams{Total: 512, PerNode: 32, Window: 256 << 10},
	}
}

func (g Gateway) validate() error {
	switch {
	case g.Heartbeat < 100*time.Millisecond:
		return fmt.Errorf("gateway.heartbeat: %s is less than 100ms", g.Heartbeat)
	case g.HeartbeatTimeout < 3*g.Heartbeat:
		return fmt.Errorf("gateway.heartbeat_timeout: %s is less than three times gateway.heartbeat (%s), so that a lost heartbeat would remove a node", g.HeartbeatTimeout, g.Heartbeat)
	case g.Grace <= 0 || g.Grace > g.HeartbeatTimeout:
		return fmt.Errorf("gateway.grace: %s is not above 0 and at most gateway.heartbeat_timeout (%s)", g.Grace, g.HeartbeatTimeout)
	case g.Streams.Total < 1 || g.Streams.PerNode < 1:
		return fmt.Errorf("gateway.streams: total and per_node are at least 1")
	case g.Streams.Window < 64<<10 || g.Streams.Window > 4<<20:
		return fmt.Errorf("gateway.streams.window: %d bytes are not between 64KiB and 4MiB", g.Streams.Window)
	}
	return nil
}
