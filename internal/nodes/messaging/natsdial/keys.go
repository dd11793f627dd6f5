package natsdial

import (
	"github.com/nats-io/nkeys"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/secret"
)

// NewKey makes a node's key pair: the seed (SU…), which is to be kept secret, and
// the key that signs with it.
func NewKey() (secret.Value, messaging.Key, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return secret.Value{}, messaging.Key{}, err
	}
	seed, err := pair.Seed()
	if err != nil {
		return secret.Value{}, messaging.Key{}, err
	}
	key, err := keyOf(pair)
	return secret.New(string(seed)), key, err
}

// ParseKey returns the key of a seed that NewKey made.
func ParseKey(seed secret.Value) (messaging.Key, error) {
	pair, err := nkeys.FromSeed([]byte(seed.Reveal()))
	if err != nil {
		return messaging.Key{}, capability.Wrap(capability.CodeInvalidInput, "bus.key", "the node's key cannot be read", err).
			With("invalid_key", "remove it to have a new one made, and register the node again")
	}
	return keyOf(pair)
}

func keyOf(pair nkeys.KeyPair) (messaging.Key, error) {
	public, err := pair.PublicKey()
	if err != nil || !nkeys.IsValidPublicUserKey(public) {
		return messaging.Key{}, capability.Errorf(capability.CodeInvalidInput, "bus.key", "the key is not that of a node").With("invalid_key", "")
	}
	return messaging.Key{Public: public, Sign: pair.Sign}, nil
}
