package archive

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// names finds members that could be one file on some file system: equal after
// normalisation and case folding, or a file where another name has a folder.
type names struct {
	fold cases.Caser
	seen map[string]name // by folded path
}

type name struct {
	path string
	file bool
}

func newNames() *names { return &names{fold: cases.Fold(), seen: make(map[string]name)} }

// check holds the grammar of a member's name, without the slash at a directory's
// end, and that no member before it means the same place.
func (n *names) check(p string, file bool) error {
	if err := checkPath(p); err != nil {
		return err
	}
	at := 0
	for {
		end := strings.IndexByte(p[at:], '/')
		if end < 0 {
			return n.enter(p, file)
		}
		at += end
		if err := n.enter(p[:at], false); err != nil {
			return err
		}
		at++
	}
}

func (n *names) enter(p string, file bool) error {
	// Folding may undo the normal form, so it is made again.
	key := norm.NFC.String(n.fold.String(norm.NFC.String(p)))
	before, there := n.seen[key]
	if there && (before.path != p || before.file || file) {
		return refused("%s and %s are one name on some file systems", shown(before.path), shown(p))
	}
	n.seen[key] = name{p, file}
	return nil
}

// checkPath holds what every name must be: relative, of valid UTF-8, without
// what some file system or terminal reads as more than a character of a name.
func checkPath(p string) error {
	switch {
	case p == "":
		return refused("a member has no name")
	case len(p) > MaxName:
		return large("%s is a name of more than %d bytes", shown(p), MaxName)
	case !utf8.ValidString(p):
		return refused("%s is not UTF-8", shown(p))
	case p[0] == '/', len(p) > 1 && p[1] == ':' && unicode.IsLetter(rune(p[0])):
		return refused("%s is not a relative name", shown(p))
	case strings.ContainsFunc(p, func(r rune) bool { return r == '\\' || unicode.IsControl(r) }):
		return refused("%s holds a backslash or a control character", shown(p))
	}
	depth := 0
	for part := range strings.SplitSeq(p, "/") {
		if depth++; part == "" || part == "." || part == ".." {
			return refused("%s has an empty component, or one that is . or ..", shown(p))
		}
	}
	if depth > MaxDepth {
		return large("%s is more than %d folders deep", shown(p), MaxDepth)
	}
	return nil
}
