package pins

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
)

// Difference is what an operator has to judge of one definition: how a held one has
// changed, or all of one that was never shown.
type Difference struct {
	Kind    ingest.Kind `json:"kind"`
	Name    string      `json:"name"`
	State   State       `json:"state"`
	OldPin  string      `json:"old_pin,omitempty"`
	NewPin  string      `json:"new_pin"`
	Changes []Change    `json:"changes"`
	Advice  []string    `json:"advice,omitempty"`
	// More counts changes that are left out.
	More int `json:"more,omitempty"`
}

// Change is one member that differs. Path is its place, as in inputSchema.properties.x;
// Old and New are its values as JSON, "" where there is none.
type Change struct {
	Path string `json:"path"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

const (
	maxChanges = 200
	maxShown   = 4 << 10 // bytes of one value
)

// Waits says what somebody has to judge of a definition; false where nothing waits.
func (p *Row) Waits() (d Difference, waits bool) {
	d = Difference{Kind: p.Kind, Name: p.Name, State: p.State, NewPin: p.Pin.Pin}
	var before, after json.RawMessage
	switch {
	case !p.Listed:
		return d, false
	case p.State == Held:
		d.OldPin, d.NewPin = p.Pin.Pin, p.Offered
		before, after = p.Definition, p.OfferedDefinition
		if p.Offer != nil {
			d.Advice = p.Offer.Advice
		}
	case p.State == Quarantined:
		after = p.Definition
		if p.Shown != nil {
			d.Advice = p.Shown.Advice
		}
	default:
		return d, false
	}
	d.Changes, d.More = compare(before, after)
	return d, true
}

// compare lists the members in which two objects differ, in the order of their paths.
func compare(before, after []byte) (list []Change, more int) {
	a, b := flatten(before), flatten(after)
	for path := range b {
		if _, there := a[path]; !there {
			a[path] = ""
		}
	}
	paths := make([]string, 0, len(a))
	for path := range a {
		if a[path] != b[path] {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	list = []Change{}
	for _, path := range paths {
		if len(list) == maxChanges {
			return list, len(paths) - maxChanges
		}
		list = append(list, Change{Path: text.CutBytes(ingest.Shown(path), 500), Old: text.CutBytes(a[path], maxShown), New: text.CutBytes(b[path], maxShown)})
	}
	return list, 0
}

// flatten is an object as its leaves by their paths. Lists are leaves, so that one
// that was moved does not look like another one.
func flatten(doc []byte) map[string]string {
	out := make(map[string]string)
	var walk func(doc []byte, path string)
	walk = func(doc []byte, path string) {
		empty := true
		if len(doc) > 0 && doc[0] == '{' {
			_ = jsonx.Members(doc, func(name string, value []byte) { // it was read before
				empty = false
				at := name
				if strings.ContainsAny(name, ". ") || name == "" {
					at = `"` + name + `"`
				}
				if path != "" {
					at = path + "." + at
				}
				walk(value, at)
			})
		}
		if empty && path != "" {
			out[path] = plain(doc)
		}
	}
	if doc = bytes.TrimSpace(doc); len(doc) > 0 {
		walk(doc, "")
	}
	return out
}

// plain is a value as one spelling, so that spaces and order are no difference. What
// is not shown is written out as an escape: it is what a diff must show.
func plain(value []byte) string {
	canonical, err := jsonx.Sorted(value)
	if err != nil {
		canonical = value
	}
	var b strings.Builder
	for _, r := range string(canonical) {
		if ingest.Shown(string(r)) == "" {
			b.WriteString(escape(r))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func escape(r rune) string {
	if r > 0xFFFF {
		return fmt.Sprintf("\\U%08x", r)
	}
	return fmt.Sprintf("\\u%04x", r)
}
