package payload

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// Ed25519 is the only supported signature algorithm.
const Ed25519 = "ed25519"

// Signature is a signature of a payload's canonical form. Value is standard base64.
type Signature struct {
	Alg   string `json:"alg"`
	KeyID string `json:"key_id"`
	Value string `json:"value"`
}

// Canonical returns the form of a payload that is hashed and signed: RFC 8785, without created_at
// and signature.
func Canonical(raw json.RawMessage) ([]byte, error) {
	for _, name := range []string{"created_at", "signature"} {
		_, rest, err := jsonx.Cut(raw, name)
		if err != nil {
			return nil, invalid("the payload: %w", err)
		}
		raw = rest
	}
	out, err := jsonx.Canonical(raw)
	if err != nil {
		return nil, invalid("the payload: %w", err)
	}
	return out, nil
}

// Digest returns the SHA-256 of the canonical form, in lower-case hex.
func Digest(raw json.RawMessage) (string, error) {
	form, err := Canonical(raw)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(form)
	return hex.EncodeToString(sum[:]), nil
}

// Sign returns the payload with a signature of the key, which replaces an existing one. Every other
// byte is unchanged.
func Sign(raw json.RawMessage, keyID string, key ed25519.PrivateKey) (json.RawMessage, error) {
	if keyID == "" || len(keyID) > cmp.MaxName || len(key) != ed25519.PrivateKeySize {
		return nil, invalid("signing needs an Ed25519 key and an id of 1 to %d bytes for it", cmp.MaxName)
	}
	form, err := Canonical(raw)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := jsonx.Unmarshal(raw, &members); err != nil {
		return nil, invalid("the payload: %w", err)
	}
	sig, err := jsonx.Marshal(Signature{Ed25519, keyID, base64.StdEncoding.EncodeToString(ed25519.Sign(key, form))})
	if err != nil {
		return nil, invalid("the id of the key is not UTF-8")
	}
	members["signature"] = sig
	return jsonx.Marshal(members)
}

// Verify verifies the payload's signature. keyOf returns the public key of an id, or nil if it is
// unknown. A missing or invalid signature and an unknown key are digest_mismatch.
func (p *Payload) Verify(keyOf func(keyID string) ed25519.PublicKey) error {
	s := p.Signature
	if s == nil {
		return cmp.Errorf(cmp.ReasonDigest, "the payload is not signed")
	}
	if s.Alg != Ed25519 {
		return cmp.Errorf(cmp.ReasonDigest, "the payload is signed with %.40q; only %s is understood", s.Alg, Ed25519)
	}
	key := keyOf(s.KeyID)
	value, err := base64.StdEncoding.DecodeString(s.Value)
	if len(key) != ed25519.PublicKeySize {
		return cmp.Errorf(cmp.ReasonDigest, "the key %.80q that signed the payload is not known here", s.KeyID)
	}
	form, cErr := Canonical(p.Raw)
	if err != nil || cErr != nil || !ed25519.Verify(key, form, value) {
		return cmp.Errorf(cmp.ReasonDigest, "the signature of the payload is wrong")
	}
	return nil
}
