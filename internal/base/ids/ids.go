// Package ids creates random identifiers. The callers choose prefixes and lengths, because
// the ids are stored and sent to other programs.
package ids

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// Hex returns the prefix and numBytes random bytes as lower-case hex digits.
func Hex(prefix string, numBytes int) string {
	b := make([]byte, numBytes)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return prefix + hex.EncodeToString(b)
}

// timedBytes is the length of a timed id without its prefix.
const timedBytes = 12

// Timed returns the prefix and 24 lower-case hex digits. The first stampBytes of the
// twelve bytes are the low bytes of stamp, most significant first, so that later ids
// sort behind earlier ones. The others are random.
func Timed(prefix string, stamp uint64, stampBytes int) string {
	var b [timedBytes]byte
	for i := range stampBytes {
		b[stampBytes-1-i] = byte(stamp >> (8 * i))
	}
	_, _ = rand.Read(b[stampBytes:])
	return prefix + hex.EncodeToString(b[:])
}

// Text returns 26 random lower-case letters and digits: 130 bits. It can be used as a
// DNS label and as a file name.
func Text() string { return strings.ToLower(rand.Text()) }
