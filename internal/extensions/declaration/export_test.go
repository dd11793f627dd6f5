package declaration

import (
	"slices"
	"strings"
)

// ImportWords returns every word of the import table, sorted.
func ImportWords() []string {
	var out []string
	for _, row := range importTable() {
		out = append(out, strings.Fields(row.words)...)
	}
	slices.Sort(out)
	return out
}
