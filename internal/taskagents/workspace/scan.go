package workspace

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/secret"
)

// finding is the place of a text that looks like a credential in a change.
type finding struct {
	file, kind string
	line       int
}

// scanDiff parses a diff without context lines and returns the places in added lines that look
// like a credential, at most limit. It uses the lengths in the hunks' headers, so that a line of a file
// cannot imitate a header.
func scanDiff(diff string, limit int) []finding {
	var found []finding
	file, line, added, removed := "", 0, 0, 0
	for text := range strings.Lines(diff) {
		text = strings.TrimSuffix(text, "\n")
		switch {
		case added > 0 && strings.HasPrefix(text, "+"):
			for _, t := range secret.FindTokens(text[1:]) {
				if found = append(found, finding{file, t.Kind, line}); len(found) == limit {
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

// hunk parses a header such as "@@ -1,2 +3,4 @@": the number of the first added line, and the
// numbers of added and removed lines. A missing count is 1.
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

// diffPath parses the path in a header, which git quotes if it contains special characters.
func diffPath(s string) string {
	s = strings.TrimSuffix(s, "\t")
	if strings.HasPrefix(s, `"`) {
		if plain, err := strconv.Unquote(s); err == nil {
			s = plain
		}
	}
	return strings.ToValidUTF8(strings.TrimPrefix(s, "b/"), "\uFFFD")
}

// plainDiff returns the arguments of a diff for scanning: all files as text, without context
// lines, and without renames, which would hide lines.
func plainDiff(subcommand string, rest ...string) []string {
	return diffArgs(subcommand, append([]string{
		"--text", "--unified=0", "--inter-hunk-context=0", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/",
	}, rest...)...)
}

// scan calls diff with all things and searches the output for credentials. If the output is
// truncated, it scans the two halves of things separately. If the output for one thing is
// truncated, scan fails with too_large, reason change_too_large, because it must not be
// accepted unread. A finding fails with denied, reason secret_found.
func (m *Manager) scan(ctx context.Context, things []string, diff func([]string) (sandbox.Result, error)) error {
	if len(things) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return capability.AsError(err)
	}
	half := len(things) / 2
	if len(things) <= maxScanned {
		result, err := diff(things)
		if err != nil {
			return err
		}
		if !result.Stdout.Truncated() {
			return leak(scanDiff(string(result.Stdout.Bytes()), maxFindings))
		}
		if len(things) == 1 {
			return changeTooLarge(things[0])
		}
	}
	if err := m.scan(ctx, things[:half], diff); err != nil {
		return err
	}
	return m.scan(ctx, things[half:], diff)
}

func changeTooLarge(thing string) error {
	return capability.Errorf(capability.CodeTooLarge, "workspace.scan",
		"a change is larger than %d MiB and cannot be searched for credentials", largeOutput>>20).
		With("change_too_large", "leave large files out of the repository").Detail("thing", thing)
}

// scanMerge searches what a merge commit has and none of its parents: the lines that the differences to all
// parents add. The difference to one is enough if it has no finding, so one that is too large is left out
// unless all are.
func (m *Manager) scanMerge(ctx context.Context, w Workspace, commit string, parents []string) error {
	if len(parents) > maxParents {
		return changeTooLarge(commit)
	}
	var common []finding
	compared := false
	for _, parent := range parents {
		result, err := m.run(ctx, w, plainDiff("diff", parent, commit, "--"))
		if err != nil {
			return err
		}
		if result.Stdout.Truncated() {
			continue
		}
		found := scanDiff(string(result.Stdout.Bytes()), largeOutput)
		if compared {
			set := make(map[finding]bool, len(found))
			for _, f := range found {
				set[f] = true
			}
			found = slices.DeleteFunc(common, func(f finding) bool { return !set[f] })
		}
		if common, compared = found, true; len(common) == 0 {
			return nil
		}
	}
	if !compared {
		return changeTooLarge(commit)
	}
	return leak(common[:min(len(common), maxFindings)])
}

// leak returns the error for findings, with their places but not their text; nil if there are
// none.
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
