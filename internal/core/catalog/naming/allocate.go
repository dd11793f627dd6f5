package naming

import (
	"iter"
	"slices"
)

// taken reports whether a label of group g must not have that fold: it is reserved, declared by
// another tool, or a label of a group that precedes g.
func (t *Table) taken(g *group, fold string) bool {
	if t.core(fold) || t.lone[fold] != nil {
		return true
	}
	if other := t.groups[fold]; other != nil && len(other.members) > 0 {
		return true
	}
	by, given := t.given[fold]
	return given && by < g.fold
}

// allocate names the members of a contested group and sets g.contest. A member that keeps the
// bare name, if any, is the contest's winner; other members with Exact are withheld, and the
// rest are labelled. With Options.Reject, all are withheld.
func (t *Table) allocate(g *group) {
	core := t.core(g.fold)
	g.contest = &Contest{Fold: g.fold, Resolution: Labelled}
	for _, m := range g.members {
		g.contest.Members = append(g.contest.Members, m.Runtime())
	}
	if core {
		g.contest.Members = append(g.contest.Members, "core")
	}
	slices.Sort(g.contest.Members)
	g.contest.Members = slices.Compact(g.contest.Members)
	if t.opt.Reject {
		g.contest.Resolution = Withheld
		for _, m := range g.members {
			t.rename(m, Name{})
		}
		return
	}
	keep, insisting := t.keeper(g, core)
	var free []*Tool
	for _, m := range g.members {
		switch {
		case m == keep:
			t.rename(m, Name{Public: Plain(m.Declared)})
			g.contest.Resolution, g.contest.Winner = ExactKept, m.Runtime()
		case m.Exact:
			t.rename(m, Name{})
		default:
			free = append(free, m)
		}
	}
	if keep == nil && insisting > 0 {
		g.contest.Resolution = Withheld
	}
	t.label(g, free)
}

// keeper returns the member that keeps the bare name, and the number of members with Exact. It
// is the only one with Exact, or the one of several that the operator pinned. If core, keep is
// nil, because a canonical action has the name.
func (t *Table) keeper(g *group, core bool) (keep *Tool, insisting int) {
	var pinned *Tool
	for _, m := range g.members {
		if !m.Exact {
			continue
		}
		insisting++
		keep = m
		if t.opt.Pins[g.fold] == m.Runtime() {
			pinned = m
		}
	}
	switch {
	case core:
		return nil, insisting
	case insisting > 1:
		return pinned, insisting
	}
	return keep, insisting
}

// label names the free members at the lowest level at which all names differ and none is
// taken.
func (t *Table) label(g *group, free []*Tool) {
	if len(free) == 0 {
		return
	}
	names, folded := make([]string, len(free)), make([]string, len(free))
	for level := 1; ; level++ {
		seen := make(map[string]bool, len(free))
		ok := true
		for i, m := range free {
			names[i] = labelled(m, level)
			folded[i] = Fold(names[i])
			if seen[folded[i]] || t.taken(g, folded[i]) {
				ok = false
			}
			seen[folded[i]] = true
		}
		g.tested = append(g.tested, folded...)
		if ok || level > lastLevel {
			for i, m := range free {
				t.rename(m, Name{Public: names[i], Level: min(level, hashLevel)})
				if _, given := t.given[folded[i]]; !given || t.given[folded[i]] > g.fold {
					t.given[folded[i]] = g.fold
				}
			}
			g.given = slices.Clone(folded)
			return
		}
	}
}

// Prefixed returns the name of a tool that begins with the label of its provider.
func Prefixed(label, declared string) string { return plainLabel(label) + "__" + Plain(declared) }

// labelled returns the name of a tool at a level from 1. From level 4 on it ends in a digest,
// which grows by four digits per level.
func labelled(m *Tool, level int) string {
	switch level {
	case 1:
		return Prefixed(m.Label, m.Declared)
	case 2:
		return plainLabel(m.Extension) + "__" + Plain(m.Declared)
	}
	full := plainLabel(m.Extension+"."+m.Contribution) + "__" + Plain(m.Declared)
	if level == 3 {
		return full
	}
	return full + "_" + hash(m.Capability, 8+4*(level-hashLevel))
}

// Names yields the public names that a tool can have, with their levels, from the bare name
// to the longest label. Unless the tool is withheld, one of them is its actual name.
func (t *Tool) Names() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		if !yield(0, Plain(t.Declared)) {
			return
		}
		for level := 1; level <= lastLevel; level++ {
			if !yield(min(level, hashLevel), labelled(t, level)) {
				return
			}
		}
	}
}
