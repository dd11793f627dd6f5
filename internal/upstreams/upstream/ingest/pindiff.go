package ingest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// PinDifference describes a definition that waits for an operator's approval: the
// changes of a held one, or all members of a quarantined one.
type PinDifference struct {
	Kind    Kind           `json:"kind"`
	Name    string         `json:"name"`
	State   PinState       `json:"state"`
	OldPin  string         `json:"old_pin,omitempty"`
	NewPin  string         `json:"new_pin"`
	Changes []MemberChange `json:"changes"`
	Advice  []string       `json:"advice,omitempty"`
	// More is the number of changes beyond those in Changes.
	More int `json:"more,omitempty"`
}

// MemberChange is one member that differs. Path is its place, for example
// inputSchema.properties.x; Old and New are its values as JSON, or "" if it is missing.
type MemberChange struct {
	Path string `json:"path"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// Waits returns the difference that an operator must approve. waits is false if the
// definition does not wait for an approval.
func (p *PinRow) Waits() (d PinDifference, waits bool) {
	d = PinDifference{Kind: p.Kind, Name: p.Name, State: p.State, NewPin: p.Pin.Pin}
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
	d.Changes, d.More = compareMembers(before, after)
	return d, true
}

// compareMembers returns the members in which two objects differ, sorted by path, and
// the number beyond maxChanges.
func compareMembers(before, after []byte) (list []MemberChange, more int) {
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
	list = []MemberChange{}
	for _, path := range paths {
		if len(list) == maxChanges {
			return list, len(paths) - maxChanges
		}
		list = append(list, MemberChange{
			Path: text.CutBytes(Shown(path), 500), Old: text.CutBytes(a[path], maxShown),
			New: text.CutBytes(b[path], maxShown),
		})
	}
	return list, 0
}

// flatten returns the leaves of an object by their paths. A list is one leaf, because a
// moved element would look like a changed one.
func flatten(doc []byte) map[string]string {
	out := make(map[string]string)
	var walk func(doc []byte, path string)
	walk = func(doc []byte, path string) {
		empty := true
		if len(doc) > 0 && doc[0] == '{' {
			_ = jsonx.Members(doc, func(name string, value []byte) { // the document was decoded before
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
			out[path] = canonicalText(doc)
		}
	}
	if doc = bytes.TrimSpace(doc); len(doc) > 0 {
		walk(doc, "")
	}
	return out
}

// canonicalText returns a value without differences in spaces and order. Invisible
// characters become escapes, because an operator must see them.
func canonicalText(value []byte) string {
	canonical, err := jsonx.Sorted(value)
	if err != nil {
		canonical = value
	}
	var b strings.Builder
	for _, r := range string(canonical) {
		if Shown(string(r)) == "" {
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
