package a2a

import (
	"encoding/json"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/go-jose/go-jose/v4"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// algorithms are those that are taken; what a header asks for beside them is not.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.ES256, jose.RS256, jose.EdDSA}
}

// checkKeys reports whether keys are public ones that signatures can be verified with.
func checkKeys(keys [][]byte) error {
	if len(keys) > MaxKeys {
		return badKey("there are more than 16 keys", nil)
	}
	for _, raw := range keys {
		if len(raw) > maxKey {
			return badKey("a key is larger than 8 KiB", nil)
		}
		if _, err := keyOf(raw); err != nil {
			return err
		}
	}
	return nil
}

func keyOf(raw []byte) (*jose.JSONWebKey, error) {
	var k jose.JSONWebKey
	if err := json.Unmarshal(raw, &k); err != nil {
		return nil, badKey("a key is not a JWK", err)
	}
	if !k.Valid() || !k.IsPublic() {
		return nil, badKey("a key is not a public one", nil)
	}
	return &k, nil
}

func badKey(text string, err error) error {
	const hint = "give public keys as JWKs: ES256, RS256 or EdDSA"
	if err != nil {
		return capability.Wrap(capability.CodeInvalidInput, "upstream", text, err).With("invalid_key", hint)
	}
	return capability.Errorf(capability.CodeInvalidInput, "upstream", "%s", text).With("invalid_key", hint)
}

// verified returns the part of a card that one of the keys signed. Signers sign either
// the whole card or its members of A2A v1.0. The result has no unsigned member.
func verified(body []byte, keys [][]byte) ([]byte, error) {
	var doc struct {
		Signatures []struct {
			Protected string `json:"protected"`
			Signature string `json:"signature"`
		} `json:"signatures"`
	}
	if err := jsonx.Unmarshal(body, &doc); err != nil {
		return nil, capability.Wrap(capability.CodeUnavailable, opConnect, "what is at the URL is not an agent card", err).With(reasonUpstream,
			"see that it is the address of an agent card")
	}
	refused := capability.Errorf(capability.CodeUnavailable, opConnect, "the agent's card has no signature by a key that is pinned for it").
		With(ReasonSignature, "ask its operator for the key, and add the agent again with it")
	if len(doc.Signatures) > maxSignatures {
		return nil, refused
	}
	for _, payload := range payloads(body) {
		for _, s := range doc.Signatures {
			parsed, err := jose.ParseDetached(s.Protected+".."+s.Signature, payload, algorithms())
			if err != nil {
				continue
			}
			for _, raw := range keys {
				k, err := keyOf(raw)
				if err != nil || k.Algorithm != "" && k.Algorithm != parsed.Signatures[0].Protected.Algorithm {
					continue
				}
				if id := parsed.Signatures[0].Protected.KeyID; id != "" && k.KeyID != "" && id != k.KeyID {
					continue
				}
				if parsed.DetachedVerify(payload, k.Key) == nil {
					return payload, nil
				}
			}
		}
	}
	return nil, refused
}

// payloads returns the canonical forms of a card (RFC 8785, A2A v1.0 §8.4), without its
// signatures and empty members: the whole card, and its members of A2A v1.0.
func payloads(body []byte) (out [][]byte) {
	add := func(doc []byte) {
		var form map[string]any
		if json.Unmarshal(doc, &form) != nil {
			return
		}
		delete(form, "signatures")
		bare, err := jsonx.Marshal(jsonx.Pruned(form))
		if err == nil {
			bare, err = jsonx.Canonical(bare)
		}
		if err == nil {
			out = append(out, bare)
		}
	}
	add(body)
	var typed a2a.AgentCard
	if json.Unmarshal(body, &typed) == nil {
		if doc, err := json.Marshal(&typed); err == nil {
			add(doc)
		}
	}
	return out
}
