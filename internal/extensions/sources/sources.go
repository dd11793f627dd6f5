// Package sources maps what other protocols declare to manifests: one pure
// function for each source of catalog spec, section 6. The declarations are plain
// structs that whoever speaks the protocol fills in; what comes back passes
// manifest's Check and becomes a module of the catalog. Definitions are written by
// strangers: a bad one is dropped with a diagnostic, and never takes the others
// along.
package sources

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/extensions/manifest"
)

// Limits of foreign definitions.
const (
	maxDefinitions = 5000
	maxName        = 128
	maxDefinition  = 64 << 10
	maxDiagnostics = 100
)

// report gathers diagnostics, sorted when they are taken.
type report struct{ list []string }

func (r *report) add(format string, args ...any) {
	if len(r.list) < maxDiagnostics {
		r.list = append(r.list, fmt.Sprintf(format, args...))
	}
}

func (r *report) take() []string {
	slices.Sort(r.list)
	return r.list
}

// finish holds what every mapping promises.
func finish(x manifest.Extension, r *report) (manifest.Extension, []string, error) {
	slices.SortFunc(x.Contributions, func(a, b manifest.Contribution) int { return cmp.Compare(a.ID, b.ID) })
	if err := x.Check(); err != nil {
		return manifest.Extension{}, r.take(), err
	}
	return x, r.take(), nil
}

// validName holds what every foreign name must be: 1 to 128 bytes of UTF-8 that
// can be shown as they are.
func validName(name string) bool {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.TrimSpace(name) != name {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError
	})
}

// objectSchema reports whether a document is the schema of an object, within
// bounds.
func objectSchema(doc json.RawMessage) bool {
	if len(bytes.TrimSpace(doc)) == 0 || len(doc) > maxDefinition {
		return false
	}
	var s struct {
		Type any `json:"type"`
	}
	return jsonx.Unmarshal(doc, &s) == nil && s.Type == "object"
}

// twice returns the names that are given more than once.
func twice[T any](list []T, name func(T) string) map[string]bool {
	count, out := make(map[string]int), make(map[string]bool)
	for _, item := range list {
		if n := name(item); n != "" {
			if count[n]++; count[n] > 1 {
				out[n] = true
			}
		}
	}
	return out
}

// title and text cut what strangers wrote to what a contribution may hold; label
// besides to the bytes of one.
func title(parts ...string) string { return manifest.Clean(cmp.Or(parts...), 120) }

func text(s string) string { return manifest.Clean(s, 1024) }

func label(parts ...string) string {
	s := manifest.Clean(cmp.Or(parts...), maxName)
	for len(s) > maxName {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

// shown quotes a foreign name for a diagnostic.
func shown(name string) string { return fmt.Sprintf("%.80q", name) }
