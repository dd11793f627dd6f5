package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// maxIDBytes is where derived ids are cut before their hash.
const maxIDBytes = 111

// ExtensionID is a derived extension id: root and the id of its owner, in which
// bytes outside [A-Za-z0-9._-] become ~ and two hex digits; what is longer than 120
// bytes is cut and hashed.
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

// IDByte reports whether a byte stands for itself in a derived id.
func IDByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// Mark is what tells derived ids apart that would be alike: eight hex digits.
func Mark(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// Slug makes a contribution id of a foreign name. exact reports that the name is its own.
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

// ContributionIDs gives each name of a list its contribution id behind a prefix. Of
// names that slug alike, the one that is its own slug keeps it and the others get a
// mark, so that no id depends on the order of the list.
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
