package router

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/collate"
	"golang.org/x/text/language"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// signatureAlgorithm is the only supported algorithm; it is compared without case.
const signatureAlgorithm = "ed25519"

// SignedBytes returns the bytes that a provenance signature covers: three lines without a final
// newline. The module's content is bound only by the digest among them.
func (p *Provenance) SignedBytes() []byte {
	return fmt.Appendf(nil, "issuer:%s\nsubject:%s\ndigestSha256:%s", p.Issuer, p.Subject, strings.ToLower(p.DigestSHA256))
}

// VerifySignature verifies the signature with the issuer's public key, a PEM block of
// SubjectPublicKeyInfo. It returns nil if the signature is valid.
func (p *Provenance) VerifySignature(publicKeyPEM string) error {
	if !strings.EqualFold(p.SignatureAlgorithm, signatureAlgorithm) {
		return fmt.Errorf("the signature algorithm is %q, not %s", p.SignatureAlgorithm, signatureAlgorithm)
	}
	block, _ := pem.Decode([]byte(publicKeyPEM))
	if block == nil {
		return fmt.Errorf("the public key of %s is not PEM", p.Issuer)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("the public key of %s: %w", p.Issuer, err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return fmt.Errorf("the public key of %s is not an Ed25519 key", p.Issuer)
	}
	signature, err := base64.StdEncoding.DecodeString(p.Signature)
	if err != nil {
		return fmt.Errorf("the signature is not base64: %w", err)
	}
	if !ed25519.Verify(key, p.SignedBytes(), signature) {
		return fmt.Errorf("the signature of %s does not fit", p.Issuer)
	}
	return nil
}

// Digests returns the two digests that a provenance may contain for the module, as lower-case hex:
// that of the original's form, which existing signers produce, and that of the RFC 8785 form,
// which is unambiguous and preferred. Both cover the decoded module without
// capabilityEndpointId and provenance.
func (m *Module) Digests() (original, rfc8785 string, err error) {
	var members map[string]json.RawMessage
	if err := jsonx.Unmarshal(m.Raw, &members); err != nil {
		return "", "", err
	}
	delete(members, "capabilityEndpointId")
	delete(members, "provenance")
	bare, err := json.Marshal(members)
	if err != nil {
		return "", "", err
	}
	canonical, err := jsonx.Canonical(bare)
	if err != nil {
		return "", "", err
	}
	var out bytes.Buffer
	// The root collation has the order of the original's localeCompare.
	if err := writeSorted(&out, canonical, collate.New(language.Und)); err != nil {
		return "", "", err
	}
	return sumHex(out.Bytes()), sumHex(canonical), nil
}

func sumHex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// writeSorted writes canonical JSON with the members of objects in the order of a JavaScript
// object whose keys were inserted in collation order: integer keys first, by value. Numbers
// and strings keep their canonical text, which equals that of JavaScript.
func writeSorted(out *bytes.Buffer, canonical []byte, order *collate.Collator) error {
	switch canonical[0] {
	case '{':
		var members map[string]json.RawMessage
		if err := json.Unmarshal(canonical, &members); err != nil {
			return err
		}
		keys := make([]string, 0, len(members))
		for k := range members {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, func(a, b string) int { return compareKeys(a, b, order) })
		out.WriteByte('{')
		for i, k := range keys {
			if i > 0 {
				out.WriteByte(',')
			}
			quoted, err := jsonx.Marshal(k)
			if err != nil {
				return err
			}
			out.Write(quoted)
			out.WriteByte(':')
			if err := writeSorted(out, members[k], order); err != nil {
				return err
			}
		}
		out.WriteByte('}')
	case '[':
		var items []json.RawMessage
		if err := json.Unmarshal(canonical, &items); err != nil {
			return err
		}
		out.WriteByte('[')
		for i, item := range items {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeSorted(out, item, order); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	default:
		out.Write(canonical)
	}
	return nil
}

// compareKeys orders member names as in writeSorted.
func compareKeys(a, b string, order *collate.Collator) int {
	x, xIndex := arrayIndex(a)
	y, yIndex := arrayIndex(b)
	switch {
	case xIndex && yIndex:
		return int(x) - int(y)
	case xIndex:
		return -1
	case yIndex:
		return 1
	}
	if c := order.CompareString(a, b); c != 0 {
		return c
	}
	return strings.Compare(a, b) // equal to the collation: any fixed order will do
}

// arrayIndex reports whether JavaScript treats the key as an array index.
func arrayIndex(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 1<<32-1 || strconv.FormatUint(n, 10) != s {
		return 0, false
	}
	return uint32(n), true
}
