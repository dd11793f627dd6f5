package secret

import (
	"cmp"
	"slices"
	"strings"
)

// shortest is the minimum length of a masked value in bytes, because shorter ones occur by
// chance.
const shortest = 8

// Masker replaces secrets in texts: known values, and everything that [MaskTokens] finds. It
// does not find a value that is split by a line end. The zero Masker, and nil, have no known
// values.
type Masker struct{ known *strings.Replacer }

// NewMasker returns a Masker for the values, except those of less than 8 bytes.
func NewMasker(values []string) *Masker {
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return len(v) < shortest })
	if len(values) == 0 {
		return &Masker{}
	}
	// A value that begins with another one must precede it.
	slices.SortFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, v := range values {
		pairs = append(pairs, v, mask)
	}
	return &Masker{strings.NewReplacer(pairs...)}
}

// Mask returns text with secrets replaced by dots.
func (m *Masker) Mask(text string) string {
	if m != nil && m.known != nil {
		text = m.known.Replace(text)
	}
	return MaskTokens(text)
}
