package gitops

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

type fileItem struct {
	Status string `json:"status"` // two letters: index, working tree
	Path   string `json:"path"`
	From   string `json:"from,omitempty"` // the old path of a rename or copy
}

// parseStatus parses the output of git status in format porcelain v1 with a branch header.
// Of truncated output it uses the complete lines of both ends.
func parseStatus(out sandbox.Output) statusResult {
	s := statusResult{Files: []fileItem{}, Raw: out.Text(), Truncated: out.Truncated()}
	head, tail := out.Head, out.Tail
	if s.Truncated {
		head = head[:bytes.LastIndexByte(head, '\n')+1]
		tail = tail[bytes.IndexByte(tail, '\n')+1:]
	} else {
		head, tail = out.Bytes(), nil
	}
	for _, part := range [][]byte{head, tail} {
		for line := range strings.Lines(strings.ToValidUTF8(string(part), "\uFFFD")) {
			line = strings.TrimSuffix(line, "\n")
			if header, ok := strings.CutPrefix(line, "## "); ok {
				s.readHeader(header)
			} else if len(line) > 3 && line[2] == ' ' {
				s.Files = append(s.Files, readItem(line))
			}
		}
	}
	return s
}

var counts = regexp.MustCompile(`^(.*) \[(?:ahead (\d+))?(?:, )?(?:behind (\d+))?(?:gone)?\]$`)

// readHeader parses "main...origin/main [ahead 1, behind 2]" and its shorter forms. The
// counts are absent without an upstream branch or if that was deleted.
func (s *statusResult) readHeader(h string) {
	if h == "HEAD (no branch)" {
		return
	}
	for _, fresh := range []string{"No commits yet on ", "Initial commit on "} {
		h = strings.TrimPrefix(h, fresh)
	}
	gone := strings.HasSuffix(h, " [gone]")
	var ahead, behind int
	if m := counts.FindStringSubmatch(h); m != nil {
		h = m[1]
		ahead, _ = strconv.Atoi(m[2])
		behind, _ = strconv.Atoi(m[3])
	}
	branch, _, tracking := strings.Cut(h, "...")
	s.Branch = branch
	if tracking && !gone {
		s.Ahead, s.Behind = &ahead, &behind
	}
}

// readItem parses the line of one file; the line must have at least three bytes.
func readItem(line string) fileItem {
	item := fileItem{Status: line[:2]}
	rest := line[3:]
	first, rest := readName(rest)
	item.Path = first
	if to, renamed := strings.CutPrefix(rest, " -> "); renamed {
		item.From = first
		item.Path, _ = readName(to)
	}
	return item
}

// readName parses one path and returns the text after it. A path is quoted like a C string
// if it has special characters; else it ends at the arrow of a rename or the end of s.
func readName(s string) (name, rest string) {
	if !strings.HasPrefix(s, `"`) {
		if i := strings.Index(s, " -> "); i >= 0 {
			return s[:i], s[i:]
		}
		return s, ""
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			// Git's escapes \", \\, \a … \v and three octal digits are all valid in Go.
			if unquoted, err := strconv.Unquote(s[:i+1]); err == nil {
				return strings.ToValidUTF8(unquoted, "\uFFFD"), s[i+1:]
			}
			return s[1:i], s[i+1:]
		}
	}
	return s, ""
}
