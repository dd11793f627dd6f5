// Package secret protects secrets from disclosure: a Value prints, logs and marshals as
// dots, and Hash is the stored form of an opaque token. Package secretstore stores secrets.
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

// Value is a secret in memory. The zero Value is empty. It holds a pointer because fmt prints
// unexported fields of other structs without calling the methods below, and then prints an
// address. Compare with Equal, not with ==.
type Value struct{ s *string }

// New returns s as a Value.
func New(s string) Value {
	if s == "" {
		return Value{}
	}
	return Value{&s}
}

// Reveal returns the secret as text. Call it only where the secret is used.
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

// Format prints dots for every verb of fmt.
func (v Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, mask) }

// MarshalText returns dots, so that encoders do not write the secret.
func (v Value) MarshalText() ([]byte, error) { return []byte(mask), nil }

// LogValue returns dots, so that slog does not write the secret.
func (v Value) LogValue() slog.Value { return slog.StringValue(mask) }

// tokenPrefix begins every token; a role letter and '_' follow, then 43
// characters of entropy and 6 of checksum.
const tokenPrefix = "jct_"

// NewToken returns a new opaque token: jct_<role letter>_, 256 random bits and a checksum.
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

// WellFormed reports whether token has the token prefix and a valid checksum, so that a
// mistyped token can be distinguished from a revoked one without a lookup.
func WellFormed(token string) bool {
	const tail = 6
	if len(token) != len(tokenPrefix)+2+43+tail || !strings.HasPrefix(token, tokenPrefix) {
		return false
	}
	body := token[:len(token)-tail]
	return checksum(body) == token[len(token)-tail:]
}

// Hash returns the stored form of a token: its SHA-256 in hex. Tokens have 256 bits of
// entropy, so they need neither salt nor stretching.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
