package archive

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// names detects members that could be one file on some file system: names that are equal
// after normalisation and case folding, or a file where another name has a folder.
type names struct {
	fold cases.Caser
	seen map[string]name // by folded path
}

type name struct {
	path string
	file bool
}

func newNames() *names { return &names{fold: cases.Fold(), seen: make(map[string]name)} }

// check returns an error if a member's name, without the trailing slash of a directory,
// is invalid or could mean the same file as an earlier one. It records the name.
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

// checkPath returns an error unless a name is relative, valid UTF-8, and without
// characters that have a special meaning for a file system or terminal.
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
	case strings.ContainsFunc(p, func(r rune) bool { return r == '\\' || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }):
		return refused("%s holds a backslash, a control character or an invisible one", shown(p))
	}
	depth := 0
	for part := range strings.SplitSeq(p, "/") {
		if depth++; part == "" || part == "." || part == ".." {
			return refused("%s has an empty component, or one that is . or ..", shown(p))
		}
		if strings.HasSuffix(part, ".") || strings.TrimSpace(part) != part {
			return refused("%s has a component that begins or ends with a space, or ends with a dot", shown(p))
		}
	}
	if depth > MaxDepth {
		return large("%s is more than %d folders deep", shown(p), MaxDepth)
	}
	return nil
}
