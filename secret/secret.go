// Package secret holds values that must not be seen: Value prints, logs and
// marshals as dots, and Hash is what is stored of an opaque token. Sources of
// secrets and the file they live in are package secretstore's.
package secret

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"strings"
)

const mask = "•••"

// Value is a secret in memory. The zero Value is empty. The pointer is on
// purpose: fmt prints unexported fields of other structs without asking the
// methods below, and then shows an address. Compare with Equal, not with ==.
type Value struct{ s *string }

// New wraps s.
func New(s string) Value {
	if s == "" {
		return Value{}
	}
	return Value{&s}
}

// Reveal returns the secret itself; call it only where it leaves for its use.
func (v Value) Reveal() string {
	if v.s == nil {
		return ""
	}
	return *v.s
}

// Empty reports whether the secret is empty.
func (v Value) Empty() bool { return v.s == nil }

// Equal compares in constant time.
func (v Value) Equal(other string) bool {
	return subtle.ConstantTimeCompare([]byte(v.Reveal()), []byte(other)) == 1
}

func (v Value) String() string { return mask }

// Format keeps every verb of fmt from printing the secret.
func (v Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, mask) }

// MarshalText keeps encoders from writing the secret.
func (v Value) MarshalText() ([]byte, error) { return []byte(mask), nil }

// LogValue keeps slog from writing the secret.
func (v Value) LogValue() slog.Value { return slog.StringValue(mask) }

// tokenPrefix begins every token; a role letter and '_' follow, then 43
// characters of entropy and 6 of checksum.
const tokenPrefix = "jct_"

// NewToken mints an opaque token: jct_<role letter>_ + 256 bits + checksum.
func NewToken(roleLetter byte) string {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // crypto/rand.Read never fails: it crashes the program instead
	body := tokenPrefix + string(roleLetter) + "_" + base64.RawURLEncoding.EncodeToString(raw[:])
	return body + checksum(body)
}

func checksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	return base64.RawURLEncoding.EncodeToString([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

// WellFormed reports whether token has our prefix and a right checksum, so that
// a mistyped token is told from a revoked one without a lookup.
func WellFormed(token string) bool {
	const tail = 6
	if len(token) != len(tokenPrefix)+2+43+tail || !strings.HasPrefix(token, tokenPrefix) {
		return false
	}
	body := token[:len(token)-tail]
	return checksum(body) == token[len(token)-tail:]
}

// Hash is what is stored of a token: hex SHA-256. Tokens carry 256 bits of
// entropy, so no salt or stretching is needed.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
