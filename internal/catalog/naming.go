package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/catalog/actions"
)

// wireLimit is the longest tool name we hand to agents: clients prepend
// mcp__<server>__ and model APIs stop at 64 bytes (decision R12).
const wireLimit = 48

// allocateNames gives every agent-visible entry its planner name and wire name
// (catalog spec, section 15). All entries of a canonical action share one name.
// Minted tools get their bare name, or, where names meet, all members of the
// group get the smallest label level at which they differ.
func allocateNames(s *Snapshot) {
	reserved := make(map[string]bool)
	for _, row := range actions.Rows() {
		reserved[fold(string(row.ID))] = true
	}
	groups := make(map[string][]*Entry)
	declared := make(map[string]bool)
	for _, e := range s.Entries {
		if e.audience&toAgent == 0 {
			continue
		}
		if e.Row != nil {
			e.Tool = string(e.Row.ID)
			continue
		}
		f := fold(declaredName(e))
		groups[f] = append(groups[f], e)
		declared[f] = true
	}
	folds := make([]string, 0, len(groups))
	for f := range groups {
		folds = append(folds, f)
	}
	slices.Sort(folds)
	given := make(map[string]bool)
	for _, f := range folds {
		group := groups[f]
		if len(group) == 1 && !reserved[f] {
			group[0].Tool = plain(declaredName(group[0]))
			continue
		}
		names := labelled(group, func(name string) bool {
			n := fold(name)
			return reserved[n] || declared[n] || given[n]
		})
		for i, e := range group {
			e.Tool = names[i]
			given[fold(names[i])] = true
		}
	}
	for _, e := range s.Entries {
		if e.Tool == "" {
			continue
		}
		e.WireName = wireName(e.Tool)
		if others := s.byWire[e.WireName]; len(others) > 0 && others[0].Tool != e.Tool {
			sum := sha256.Sum256([]byte(e.ID))
			e.WireName = cut(e.WireName, wireLimit-9) + "_" + hex.EncodeToString(sum[:4])
		}
		s.byWire[e.WireName] = append(s.byWire[e.WireName], e)
	}
}

func declaredName(e *Entry) string {
	if e.Contribution.Tool != "" {
		return e.Contribution.Tool
	}
	return e.Contribution.ID
}

// labelled names the members of one group at the first level where all differ
// and none is taken.
func labelled(group []*Entry, taken func(string) bool) []string {
	names := make([]string, len(group))
	for level := 1; level <= 4; level++ {
		seen := make(map[string]bool, len(group))
		free := true
		for i, e := range group {
			names[i] = labelledName(e, level)
			f := fold(names[i])
			if seen[f] || taken(names[i]) {
				free = false
			}
			seen[f] = true
		}
		if free {
			break
		}
	}
	return names
}

func labelledName(e *Entry, level int) string {
	name := declaredName(e)
	ext := e.Module.Extension
	switch level {
	case 1:
		label := e.Module.Label
		if label == "" {
			label = ext[strings.LastIndexByte(ext, '.')+1:]
		}
		return plainLabel(label) + "__" + plain(name)
	case 2:
		return plainLabel(ext) + "__" + plain(name)
	}
	full := plainLabel(ext+"."+e.Contribution.ID) + "__" + plain(name)
	if level == 3 {
		return full
	}
	sum := sha256.Sum256([]byte(e.ID))
	return full + "_" + hex.EncodeToString(sum[:4])
}

// fold maps a name to what must be unique: lower case, runs of other bytes as
// one '_', none at the ends (catalog spec, section 15.2).
func fold(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	gap := false
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
			if gap && b.Len() > 0 {
				b.WriteByte('_')
			}
			gap = false
			b.WriteByte(c)
			continue
		}
		gap = true
	}
	return b.String()
}

func plain(s string) string      { return replaceOutside(s, "_.-") }
func plainLabel(s string) string { return replaceOutside(s, "-") }

// replaceOutside makes '_' of every byte that is no letter, digit or one of extra.
func replaceOutside(s, extra string) string {
	out := []byte(s)
	for i, c := range out {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte(extra, c) >= 0:
		default:
			out[i] = '_'
		}
	}
	return string(out)
}

// wireName encodes a planner name in the strict64 dialect at our limit: the
// first limit-9 bytes, '_' and 8 hex of the whole name's SHA-256 when too long.
func wireName(name string) string {
	w := replaceOutside(name, "_-")
	if len(w) <= wireLimit {
		return w
	}
	sum := sha256.Sum256([]byte(name))
	return w[:wireLimit-9] + "_" + hex.EncodeToString(sum[:4])
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
