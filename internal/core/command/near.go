package command

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest returns the names most similar to typed, best first: those within edit distance two, then
// those that begin with typed.
func Nearest(typed string, names []string) []string {
	typed = strings.ToLower(typed)
	type match struct {
		name string
		far  int
	}
	var found []match
	for _, name := range names {
		lower := strings.ToLower(name)
		far := slips(typed, lower)
		if far > maxSlips || far >= max(len(typed), len(lower)) { // for short words, two edits prove no similarity
			if len(typed) < 2 || !strings.HasPrefix(lower, typed) {
				continue
			}
			far = maxSlips + 1
		}
		found = append(found, match{name, far})
	}
	slices.SortFunc(found, func(a, b match) int { return cmp.Or(a.far-b.far, strings.Compare(a.name, b.name)) })
	out := make([]string, 0, maxNear)
	for _, m := range found {
		if len(out) < maxNear && !slices.Contains(out, m.name) {
			out = append(out, m.name)
		}
	}
	return out
}

// slips returns the Damerau-Levenshtein distance (adjacent swaps count once) of short ASCII words.
// If it exceeds maxSlips, the result is any larger number.
func slips(a, b string) int {
	if d := len(a) - len(b); d > maxSlips || d < -maxSlips || len(a) > maxWord || len(b) > maxWord {
		return maxSlips + 1
	}
	var store [3][maxWord + 1]uint8
	two, one, this := &store[0], &store[1], &store[2] // the row two above, the row above, the current row
	for j := range len(b) + 1 {
		one[j] = uint8(j)
	}
	for i := 1; i <= len(a); i++ {
		this[0] = uint8(i)
		best := this[0]
		for j := 1; j <= len(b); j++ {
			cost := uint8(1)
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(one[j]+1, this[j-1]+1, one[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, two[j-2]+1)
			}
			this[j] = d
			best = min(best, d)
		}
		if best > maxSlips {
			return maxSlips + 1
		}
		two, one, this = one, this, two
	}
	return int(one[len(b)])
}
