package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// ExtensionID returns a derived extension id: root followed by id, in which bytes outside
// [A-Za-z0-9._-] become ~ and two hex digits. A result of more than 120 bytes is cut, and
// ~ and the Mark of id are appended.
func ExtensionID(root, id string) string {
	var b strings.Builder
	b.WriteString(root)
	for i := range len(id) {
		if c := id[i]; IDByte(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "~%02x", c)
		}
	}
	if b.Len() > 120 {
		return b.String()[:maxIDBytes] + "~" + Mark(id)
	}
	return b.String()
}

// IDByte reports whether a derived id contains the byte unchanged: [A-Za-z0-9._-].
func IDByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// Mark returns eight hex digits of the SHA-256 of s, which distinguish derived ids that would
// otherwise be equal.
func Mark(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// Slug turns any name into a contribution id: other bytes become '-', a first character that is
// not a letter or digit gets an x in front, and a long name is cut and marked. exact reports
// whether id equals name.
func Slug(name string) (id string, exact bool) {
	b := []byte(name)
	for i, c := range b {
		if !IDByte(c) {
			b[i] = '-'
		}
	}
	id = string(b)
	if id == "" || !IDByte(id[0]) || strings.IndexByte("._-", id[0]) >= 0 {
		id = "x" + id
	}
	if len(id) > maxIDBytes {
		return id[:maxIDBytes] + "-" + Mark(name), false
	}
	return id, id == name
}

// ContributionIDs maps each name to prefix and its contribution id. If several names have one
// slug, the name that equals it keeps it and the others get a mark, so that ids do not depend
// on the order of the list.
func ContributionIDs(prefix string, names []string) map[string]string {
	holders := make(map[string]int)
	for _, name := range names {
		id, _ := Slug(name)
		holders[id]++
	}
	out := make(map[string]string, len(names))
	for _, name := range names {
		id, exact := Slug(name)
		if holders[id] > 1 && !exact {
			id += "-" + Mark(name)
		}
		out[name] = prefix + id
	}
	return out
}
