package archtest

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the import graph of docs/ARCHITECTURE.md")

// TestImportGraphIsDrawn writes which place imports which into docs/ARCHITECTURE.md, and
// fails where two places import each other.
func TestImportGraphIsDrawn(t *testing.T) {
	t.Parallel()
	imports, level := make(map[string]map[string]bool), make(map[string]int)
	for _, p := range packages(t) {
		from, ok := placeOf(p.path())
		if !ok || isTestSupport(p.path()) {
			continue
		}
		if imports[from.folder] == nil {
			imports[from.folder] = make(map[string]bool)
		}
		level[from.folder] = from.level
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module+"/")
			if target, ok := placeOf(to); ours && ok && target.folder != from.folder {
				imports[from.folder][target.folder] = true
			}
		}
	}
	for from, list := range imports {
		for to := range list {
			if imports[to][from] && from < to {
				t.Errorf("%s and %s import each other; want not (imports[to][from] && from < to)", from, to)
			}
		}
	}

	var b strings.Builder
	names := slices.Sorted(maps.Keys(imports))
	slices.SortStableFunc(names, func(a, b string) int { return level[b] - level[a] })
	for _, from := range names {
		list := imports[from]
		for _, everywhere := range []string{"capability", "secret", "internal/base"} {
			delete(list, everywhere)
		}
		to := strings.ReplaceAll(strings.Join(slices.Sorted(maps.Keys(list)), " "), "internal/", "")
		fmt.Fprintf(&b, "%d  %-12s %s\n", level[from], strings.TrimPrefix(from, "internal/"), strings.TrimSpace("→ "+to))
	}
	drawn := strings.ReplaceAll(b.String(), " →\n", "\n")

	const file, begin, end = repository + "/docs/ARCHITECTURE.md", "<!-- import graph -->\n```text\n", "```\n<!-- end -->"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(data), begin)
	was, tail, ends := strings.Cut(rest, end)
	if !found || !ends {
		t.Fatal("docs/ARCHITECTURE.md has no import graph")
	}
	switch {
	case was == drawn:
	case *update:
		if err := os.WriteFile(file, []byte(head+begin+drawn+end+tail), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("the import graph of docs/ARCHITECTURE.md differs from the code: run go test ./internal/testkit/archtest -run Graph -update, and look at what changed")
	}
}
