package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Dialect is the alphabet of tool names in a protocol.
type Dialect string

// The dialects.
const (
	Dotted   Dialect = "dotted"   // names as they are
	MCP      Dialect = "mcp"      // [A-Za-z0-9_./-]
	Strict64 Dialect = "strict64" // [A-Za-z0-9_-]
)

// hashCut is the length of '_' and eight hex digits.
const hashCut = 9

// Wire encodes a public name for a dialect: bytes outside its alphabet become '_', and a name
// longer than limit bytes keeps its first limit-9 bytes, followed by '_' and 8 hex digits of
// the whole name's SHA-256. A limit of 0 means 64; Dotted has no limit. A wire name cannot be
// decoded.
func Wire(name string, d Dialect, limit int) string {
	extra := "_-"
	switch d {
	case Dotted:
		return name
	case MCP:
		extra = "_./-"
	}
	if limit <= 0 {
		limit = 64
	}
	w := replaceOutside(name, extra)
	if len(w) <= limit {
		return w
	}
	return w[:limit-hashCut] + "_" + hash(name, 8)
}

// Distinct returns the wire name of one of several names whose wire names are equal, by adding
// a hash of its capability id.
func Distinct(wire string, limit int, capabilityID string) string {
	if limit <= 0 {
		limit = 64
	}
	if len(wire) > limit-hashCut {
		wire = wire[:limit-hashCut]
	}
	return wire + "_" + hash(capabilityID, 8)
}

func hash(s string, digits int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:digits]
}

// Fold returns the form of a name that must be unique: ASCII lower case, with each run of
// bytes outside [a-z0-9] replaced by one '_', and without '_' at the ends.
func Fold(s string) string {
	if folded(s) {
		return s
	}
	b := make([]byte, 0, len(s))
	gap := false
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
			if gap && len(b) > 0 {
				b = append(b, '_')
			}
			gap = false
			b = append(b, c)
			continue
		}
		gap = true
	}
	return string(b)
}

// folded reports whether Fold returns s unchanged, as for most names.
func folded(s string) bool {
	gap := true // a '_' at the beginning, or after another one
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
			gap = false
		case c != '_' || gap:
			return false
		default:
			gap = true
		}
	}
	return !gap || s == ""
}

// Plain returns the public form of a declared name: bytes outside [A-Za-z0-9_.-] become '_'.
func Plain(s string) string { return replaceOutside(s, "_.-") }

func plainLabel(s string) string { return replaceOutside(s, "-") }

// replaceOutside replaces every byte that is not a letter, a digit or in extra by '_'.
func replaceOutside(s, extra string) string {
	var out []byte
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte(extra, c) >= 0:
			continue
		}
		if out == nil {
			out = []byte(s)
		}
		out[i] = '_'
	}
	if out == nil {
		return s
	}
	return string(out)
}
