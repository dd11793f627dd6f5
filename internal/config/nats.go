package config

// NATS configures the message bus between gateways and nodes.
type NATS struct {
	URL       string `koanf:"url" doc:"Addresses of the NATS servers that several gateways share, nats:// or tls://, with commas between. Empty: one inside this process, which listens on no port. junctor config nats prints what the servers' configuration must contain."`
	KeySecret string `koanf:"key_secret" doc:"Name of the stored secret, of 32 characters or more, from which the gateways' keys are derived; the same on every gateway. Needed with nats.url."`
	Replicas  int    `koanf:"replicas" doc:"How many servers of nats.url hold each shared table: 1, 3 or 5."`
}
