package natsbus

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/nats-io/nkeys"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

// gatewayKeys are what gateways prove themselves to the servers by: all are
// derived from one secret, so that all gateways of a cluster have the same.
type gatewayKeys struct {
	gateway, system nkeys.KeyPair // sessions in the two accounts
	issuer          nkeys.KeyPair // signs who is let in
	names           keyNames
}

// keyNames are the public halves.
type keyNames struct{ gateway, system, issuer string }

func deriveKeys(root []byte) (k gatewayKeys, err error) {
	for _, d := range []struct {
		info string
		kind nkeys.PrefixByte
		pair *nkeys.KeyPair
		name *string
	}{
		{"gateway", nkeys.PrefixByteUser, &k.gateway, &k.names.gateway},
		{"system", nkeys.PrefixByteUser, &k.system, &k.names.system},
		{"issuer", nkeys.PrefixByteAccount, &k.issuer, &k.names.issuer},
	} {
		raw, err := hkdf.Key(sha256.New, root, nil, "junctor message bus "+d.info, 32)
		if err != nil {
			return k, err
		}
		if *d.pair, err = nkeys.FromRawSeed(d.kind, raw); err != nil {
			return k, err
		}
		if *d.name, err = (*d.pair).PublicKey(); err != nil {
			return k, err
		}
	}
	return k, nil
}

func randomKeys() (gatewayKeys, error) {
	root := make([]byte, 32)
	_, _ = rand.Read(root)
	return deriveKeys(root)
}

// The two accounts of the servers: nodes and gateways talk in one, the other is
// the servers' own.
const (
	account       = "JUNCTOR"
	systemAccount = "SYS"
)

// ServerConfig returns what the configuration of each NATS server must contain
// so that gateways with this secret can use it: the accounts, the public keys of
// the gateways, and that they decide who else comes in and may do what. It holds
// nothing secret. The operator adds listeners, TLS, routes and a JetStream
// directory.
func ServerConfig(shared secret.Value) (string, error) {
	keys, err := sharedKeys(shared)
	if err != nil {
		return "", err
	}
	return serverConfig(keys.names), nil
}

func sharedKeys(shared secret.Value) (gatewayKeys, error) {
	if len(shared.Reveal()) < minSecret {
		return gatewayKeys{}, capability.Errorf(capability.CodeInvalidInput, "bus.open",
			"the secret that gateways of a NATS cluster share has fewer than %d characters", minSecret).
			With("weak_secret", "make one with: openssl rand -hex 32")
	}
	return deriveKeys([]byte(shared.Reveal()))
}

func serverConfig(k keyNames) string {
	return fmt.Sprintf(`# Message bus of junctor.
accounts {
  %[1]s { jetstream: enabled, users: [ { nkey: %[3]s } ] }
  %[2]s { users: [ { nkey: %[4]s } ] }
}
system_account: %[2]s
authorization {
  timeout: 3
  auth_callout { account: %[1]s, issuer: %[5]s, auth_users: [ %[3]s, %[4]s ] }
}
max_payload: %[6]d
max_subscriptions: %[7]d
ping_interval: "5s"
ping_max: 2
write_deadline: "5s"
`, account, systemAccount, k.gateway, k.system, k.issuer, maxWire, maxSubs)
}
