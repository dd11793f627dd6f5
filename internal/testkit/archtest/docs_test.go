package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheTestsThatDocumentsNameAreThere: a rule whose test has gone, or is called something
// else, is a rule that nothing holds.
func TestTheTestsThatDocumentsNameAreThere(t *testing.T) {
	t.Parallel()
	there, declared := map[string]bool{}, regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, path := range sources(t, ".go") {
		if !strings.HasSuffix(path, "_test.go") {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range declared.FindAllSubmatch(data, -1) {
			there[string(m[1])] = true
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`")
	for _, path := range sources(t, ".md") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllSubmatch(data, -1) {
			if !there[string(m[1])] {
				t.Errorf("%s names %s, which is not a test", path, m[1])
			}
		}
	}
}

// TestWhatDocumentsNameIsThere: every relative link leads to a file and, behind a #, to a
// heading of it, and every file of ours that stands in backquotes exists; in CONTRIBUTING.md
// this holds the section "Which file?".
func TestWhatDocumentsNameIsThere(t *testing.T) {
	t.Parallel()
	fenced := regexp.MustCompile("(?ms)^```.*?^```")
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	quoted := regexp.MustCompile("`((?:docs|examples|internal|cmd|capability|client|conformance|protocol|host|bench|interop|release)/[^`\\s]+)`")
	named := 0
	for _, path := range sources(t, ".md") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := fenced.ReplaceAllString(string(data), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			file, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			named++
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			} else if heading != "" && !slices.Contains(headings(t, target), heading) {
				t.Errorf(`%s links to %s, which has no such heading; want not (heading != "" && !slices.Contains(headings(t, `+
					"target), heading))", path, m[1])
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "<") || m[1] == "docs/USAGE.md" { // a place for a name; a file of every extension
				continue
			}
			for _, file := range alternatives(m[1]) {
				named++
				if _, err := os.Stat(filepath.Join(repository, file)); err != nil {
					t.Errorf("%s names %s, which is not there", path, file)
				}
			}
		}
	}
	if named < 150 {
		t.Errorf("only %d names were found: this test reads the wrong thing; want named at least 150", named)
	}
}

// TestNothingIsSaidTwiceOnAPage: a long line that stands there twice is what a merge left.
func TestNothingIsSaidTwiceOnAPage(t *testing.T) {
	t.Parallel()
	for _, path := range sources(t, ".md") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines, seen := strings.Split(string(data), "\n"), map[string]bool{}
		for i, line := range lines {
			if len(line) < 80 || i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|--") { // the head of a table may
				continue
			}
			if seen[line] {
				t.Errorf("%s says twice: %s", path, line)
			}
			seen[line] = true
		}
	}
}

// headings are the headings of a page as links to them are written.
func headings(t *testing.T, page string) []string {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(data), -1) {
		plain := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(plain, " ", "-"))
	}
	return out
}

// alternatives reads a/{b,c} as a/b and a/c.
func alternatives(path string) []string {
	before, rest, found := strings.Cut(path, "{")
	list, after, closed := strings.Cut(rest, "}")
	if !found || !closed {
		return []string{path}
	}
	var out []string
	for name := range strings.SplitSeq(list, ",") {
		out = append(out, before+name+after)
	}
	return out
}

// TestFilesOfTheMapAreThere: a file that a row of the map names without its folder is in one of the
// folders of the row, or below one.
func TestFilesOfTheMapAreThere(t *testing.T) {
	t.Parallel()
	folders := regexp.MustCompile("`((?:internal|protocol|host|cmd)(?:/[a-z0-9_-]+)*)(?:/<\\w+>)?`")
	file := regexp.MustCompile("`([A-Za-z0-9_]+\\.(?:go|tsx))`")
	all := make(map[string][]string) // folders by the names of their files
	for _, ending := range []string{".go", ".tsx"} {
		for _, path := range sources(t, ending) {
			rel, err := filepath.Rel(repository, path)
			if err != nil {
				t.Fatalf("the path of %s: %v", path, err)
			}
			all[filepath.Base(rel)] = append(all[filepath.Base(rel)], filepath.ToSlash(filepath.Dir(rel)))
		}
	}
	named := 0
	for _, page := range []string{"CONTRIBUTING.md", "docs/ARCHITECTURE.md"} {
		data, err := os.ReadFile(filepath.Join(repository, page))
		if err != nil {
			t.Fatalf("reading %s: %v", page, err)
		}
		for line := range strings.Lines(string(data)) {
			if !strings.HasPrefix(line, "| ") {
				continue
			}
			within := folders.FindAllStringSubmatch(line, -1)
			for _, m := range file.FindAllStringSubmatch(line, -1) {
				named++
				there := slices.ContainsFunc(all[m[1]], func(dir string) bool {
					return len(within) == 0 || slices.ContainsFunc(within, func(w []string) bool {
						return dir == w[1] || strings.HasPrefix(dir, w[1]+"/")
					})
				})
				if !there {
					t.Errorf("%s names %s, which is not in a folder of its row: %.80s", page, m[1], line)
				}
			}
		}
	}
	if named < 100 {
		t.Errorf("got %d files that the map names, want at least 100", named)
	}
}
