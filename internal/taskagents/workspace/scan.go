package workspace

import (
	"context"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/secret"
)

// finding is where something that looks like a credential would get into the history.
type finding struct {
	file, kind string
	line       int
}

const maxFindings = 20

// scanDiff reads a diff without context lines and returns where added lines hold
// what looks like a credential. How long a hunk is says its head, so that a line of a
// file cannot pass for a head.
func scanDiff(diff string) []finding {
	var found []finding
	file, line, added, removed := "", 0, 0, 0
	for text := range strings.Lines(diff) {
		text = strings.TrimSuffix(text, "\n")
		switch {
		case added > 0 && strings.HasPrefix(text, "+"):
			for _, t := range secret.FindTokens(text[1:]) {
				if found = append(found, finding{file, t.Kind, line}); len(found) == maxFindings {
					return found
				}
			}
			added, line = added-1, line+1
		case removed > 0 && strings.HasPrefix(text, "-"):
			removed--
		case strings.HasPrefix(text, "+++ "):
			file = diffPath(text[4:])
		case strings.HasPrefix(text, "@@ "):
			line, added, removed = hunk(text)
		}
	}
	return found
}

// hunk reads "@@ -1,2 +3,4 @@": where the added lines begin, and how many lines there
// are of both kinds. A count that is left out is one.
func hunk(head string) (line, added, removed int) {
	fields := strings.Fields(head)
	if len(fields) < 4 {
		return 0, 0, 0
	}
	number := func(field string) (at, count int) {
		start, length, ok := strings.Cut(field[1:], ",")
		at, _ = strconv.Atoi(start)
		if count = 1; ok {
			count, _ = strconv.Atoi(length)
		}
		return at, max(count, 0)
	}
	_, removed = number(fields[1])
	line, added = number(fields[2])
	return line, added, removed
}

// diffPath reads the name in a head: in quotes where it holds anything strange.
func diffPath(s string) string {
	s = strings.TrimSuffix(s, "\t")
	if strings.HasPrefix(s, `"`) {
		if plain, err := strconv.Unquote(s); err == nil {
			s = plain
		}
	}
	return strings.ToValidUTF8(strings.TrimPrefix(s, "b/"), "\uFFFD")
}

// plainDiff is how a diff is made for scanning: every file as text, added lines only
// beside their heads, no renames that would hide a line.
func plainDiff(subcommand string, rest ...string) []string {
	return diffArgs(subcommand, append([]string{"--text", "--unified=0", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/"}, rest...)...)
}

// scan makes diffs of all things at once and looks for credentials in them. Where that
// is too long to be kept whole it halves the things; one that is too long alone is
// refused, because what was not looked at must not pass for clean.
func (m *Manager) scan(ctx context.Context, things []string, diff func([]string) (sandbox.Result, error)) error {
	if len(things) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return capability.AsError(err)
	}
	const most = 500 // what fits into one command
	half := len(things) / 2
	if len(things) <= most {
		result, err := diff(things)
		if err != nil {
			return err
		}
		if !result.Stdout.Truncated() {
			return leak(scanDiff(string(result.Stdout.Bytes())))
		}
		if len(things) == 1 {
			return capability.Errorf(capability.CodeTooLarge, "workspace.scan",
				"a change is larger than %d MiB and cannot be searched for credentials", largeOutput>>20).
				With("change_too_large", "leave large files out of the repository").Detail("thing", things[0])
		}
	}
	if err := m.scan(ctx, things[:half], diff); err != nil {
		return err
	}
	return m.scan(ctx, things[half:], diff)
}

// leak states where, and never what.
func leak(found []finding) error {
	if len(found) == 0 {
		return nil
	}
	places := make([]map[string]any, 0, len(found))
	for _, f := range found {
		places = append(places, map[string]any{"file": f.file, "line": f.line, "kind": f.kind})
	}
	first := found[0]
	return capability.Errorf(capability.CodeDenied, "workspace.scan",
		"what looks like a credential (%s) would get into the history: %s, line %d", first.kind, first.file, first.line).
		With("secret_found", "take it out, of earlier commits as well, and replace it: it may have been seen").Detail("findings", places)
}
