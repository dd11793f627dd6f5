package overlay

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// block is a session's text between two marker lines.
type block struct {
	Begin string `json:"begin"`
	End   string `json:"end"`
	Text  string `json:"text"` // ends with a newline, or is empty
}

func newBlock(open, shut, owner, text string) block {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return block{
		Begin: open + "junctor " + owner + ": what follows is taken out again" + shut + "\n",
		End:   open + "junctor " + owner + ": end" + shut + "\n",
		Text:  text,
	}
}

func (b *block) in(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		if mark(line) == mark([]byte(b.Begin)) || mark(line) == mark([]byte(b.End)) {
			return true
		}
	}
	return false
}

// mark returns a marker line in the form that is compared, because an editor may have changed the
// line ends.
func mark(line []byte) string { return string(bytes.TrimSpace(line)) }

func (b *block) appendTo(doc []byte) []byte {
	gap := ""
	if len(doc) > 0 && doc[len(doc)-1] != '\n' {
		gap = "\n"
	}
	return slices.Concat(doc, []byte(gap+b.Begin+b.Text+b.End))
}

// removeFrom returns doc without the markers and without the block's own lines between them. Lines
// that others added between the markers stay.
func (b *block) removeFrom(doc []byte) []byte {
	var out []byte
	var own []string
	inside := false
	for line := range bytes.Lines(doc) {
		switch {
		case mark(line) == mark([]byte(b.Begin)):
			inside, own = true, slices.Collect(strings.Lines(b.Text))
			continue
		case mark(line) == mark([]byte(b.End)):
			inside = false
			continue
		}
		if inside {
			if i := slices.IndexFunc(own, func(s string) bool { return mark([]byte(s)) == mark(line) }); i >= 0 {
				own = own[i+1:]
				continue
			}
		}
		out = append(out, line...)
	}
	return out
}

// infoFolder returns the info folder of the repository that contains dir, or "" outside of
// repositories. In a worktree or a submodule, .git is a file with the repository's path.
// Because any program could write such a file, the repository must refer back to the folder;
// otherwise infoFolder returns "".
func infoFolder(root, dir string) (string, error) {
	if rel, err := filepath.Rel(root, dir); err != nil || !filepath.IsLocal(rel) || !filepath.IsAbs(root) {
		return "", outside(dir)
	}
	for range maxUp {
		dotGit := filepath.Join(dir, ".git")
		info, err := os.Lstat(dotGit)
		switch {
		case err != nil && filepath.Dir(dir) == dir:
			return "", nil
		case err != nil:
			dir = filepath.Dir(dir)
			continue
		case info.IsDir():
			return filepath.Join(dotGit, "info"), nil
		}
		return linkedInfo(dotGit), nil
	}
	return "", nil
}

// linkedInfo returns the info folder that a .git file leads to, or "" if the repository does not
// refer back to it.
func linkedInfo(dotGit string) string {
	own, ok := strings.CutPrefix(oneLine(dotGit), "gitdir: ")
	if !ok {
		return ""
	}
	own = from(filepath.Dir(dotGit), own)
	if back := oneLine(filepath.Join(own, "gitdir")); back != "" { // a worktree
		common := oneLine(filepath.Join(own, "commondir"))
		if common == "" || !same(from(own, back), dotGit) {
			return ""
		}
		return filepath.Join(from(own, common), "info")
	}
	config, _ := os.ReadFile(filepath.Join(own, "config")) // a submodule
	for line := range strings.Lines(string(config)) {
		if key, value, _ := strings.Cut(line, "="); strings.TrimSpace(key) == "worktree" &&
			same(from(own, strings.TrimSpace(value)), filepath.Dir(dotGit)) {
			return filepath.Join(own, "info")
		}
	}
	return ""
}

func oneLine(path string) string {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<16 {
		return ""
	}
	data, _ := os.ReadFile(path)
	return strings.TrimRight(string(data), "\r\n")
}

func from(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func same(a, b string) bool {
	left, err := os.Stat(a)
	if err != nil {
		return false
	}
	right, err := os.Stat(b)
	return err == nil && os.SameFile(left, right)
}
