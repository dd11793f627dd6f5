package config

// NATS configures the message bus between gateways and nodes.
type NATS struct {
	URL       string `koanf:"url" doc:"NATS servers that several gateways share, nats:// or tls://, comma-separated; junctor config nats prints their configuration. Empty: one inside this process, without a port."`
	KeySecret string `koanf:"key_secret" doc:"Secret of at least 32 characters from which the gateways derive their keys, the same on each. Needed with nats.url."`
	Replicas  int    `koanf:"replicas" doc:"Servers of nats.url that hold each shared table: 1, 3 or 5."`
}
