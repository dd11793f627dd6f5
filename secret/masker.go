package secret

import (
	"cmp"
	"slices"
	"strings"
)

// shortest is how long a value must be to be masked wherever it occurs: shorter ones
// occur by chance.
const shortest = 8

// Masker masks what must not be seen in texts: values that are known, and what
// [MaskTokens] finds. A value is found where it stands whole: not across a line end that
// was put into it. The zero Masker, and nil, know no values.
type Masker struct{ known *strings.Replacer }

// NewMasker knows values; those of less than 8 bytes are left out.
func NewMasker(values []string) *Masker {
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return len(v) < shortest })
	if len(values) == 0 {
		return &Masker{}
	}
	// A value that begins with another one goes first.
	slices.SortFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, v := range values {
		pairs = append(pairs, v, mask)
	}
	return &Masker{strings.NewReplacer(pairs...)}
}

// Mask is the text with dots for what must not be seen.
func (m *Masker) Mask(text string) string {
	if m != nil && m.known != nil {
		text = m.known.Replace(text)
	}
	return MaskTokens(text)
}
