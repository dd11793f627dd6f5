package naming

import "iter"

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
