package config

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Program describes a coding CLI for the parsing of the configuration.
type Program struct {
	Name     string
	Aliases  []string // accepted names; case, blanks, "_" and "-" are ignored
	Accounts []string // variables that hold an account for the program
}

// programNamed returns the canonical name of the program with an accepted name.
func programNamed(list []Program, text string) (name string, ok bool) {
	i := slices.IndexFunc(list, func(p Program) bool {
		return slices.ContainsFunc(p.Aliases, func(alias string) bool { return SameName(alias, text) })
	})
	if i < 0 {
		return "", false
	}
	return list[i].Name, true
}

// programNames lists the names for an error message.
func programNames(list []Program) string {
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

// SameName reports whether two names of a program differ only in case, blanks, "_" and "-".
func SameName(a, b string) bool {
	squeeze := func(s string) string {
		return strings.NewReplacer(" ", "", "\t", "", "_", "", "-", "").Replace(strings.ToLower(s))
	}
	return squeeze(a) == squeeze(b)
}

// ValidModel reports whether s can name a model on a program's command line: one word of
// at most 200 characters that does not look like an option.
func ValidModel(s string) bool {
	// A loop, because a regular expression with this bound would take 8 MB.
	unusable := func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.C, r) }
	return s != "" && s[0] != '-' && utf8.RuneCountInString(s) <= 200 && !strings.ContainsFunc(s, unusable)
}
