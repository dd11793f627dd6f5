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

// group is the part of the house that a package belongs to: a package with what is below
// its folder.
func group(pkg string) string {
	parts := strings.Split(strings.TrimPrefix(pkg, "internal/"), "/")
	if parts[0] == "protocol" || parts[0] == "cmd" {
		return strings.Join(parts[:2], "/")
	}
	return parts[0]
}

var update = flag.Bool("update", false, "write the import graph of docs/ARCHITECTURE.md anew")

// TestTheImportGraph draws which part imports which into docs/ARCHITECTURE.md, and fails
// where two parts import each other.
func TestTheImportGraph(t *testing.T) {
	t.Parallel()
	imports, height := make(map[string]map[string]bool), make(map[string]int)
	for _, p := range packages(t) {
		from := group(p.path())
		if isTestSupport(p.path()) || from == "archtest" || from == "attack" || from == "scenario" {
			continue // tests only
		}
		if imports[from] == nil {
			imports[from] = make(map[string]bool)
		}
		height[from] = max(height[from], layer(p.path()))
		for _, imp := range p.Imports {
			if to, ours := strings.CutPrefix(imp, module+"/"); ours && group(to) != from && !isTestSupport(to) {
				imports[from][group(to)] = true
			}
		}
	}
	for from, list := range imports {
		for to := range list {
			if imports[to][from] && from < to {
				t.Errorf("%s and %s import each other", from, to)
			}
		}
	}

	var b strings.Builder
	names := slices.Sorted(maps.Keys(imports))
	slices.SortStableFunc(names, func(a, b string) int { return height[b] - height[a] })
	for _, from := range names {
		list := imports[from]
		for _, everywhere := range []string{"capability", "secret", "jsonx"} {
			delete(list, everywhere)
		}
		to := strings.Join(slices.Sorted(maps.Keys(list)), " ")
		fmt.Fprintf(&b, "L%d  %-13s %s\n", height[from], from, strings.TrimSpace("→ "+to))
	}
	drawn := strings.ReplaceAll(b.String(), " →\n", "\n")

	const file, begin, end = "../../docs/ARCHITECTURE.md", "<!-- import graph -->\n```text\n", "```\n<!-- end -->"
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
		t.Error("the import graph of docs/ARCHITECTURE.md is not what is: go test ./internal/archtest -run Graph -update, and look at what changed")
	}
}
