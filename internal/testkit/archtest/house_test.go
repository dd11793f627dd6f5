package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A figure is one measure of the structure and the largest value that it may have.
// A maximum is lowered when the code gets below it and never raised for convenience.
type figure struct {
	name string
	got  int
	max  int
}

// minPackageLines is the size below which a package with a single importer is counted:
// it needs a reason to be a package of its own.
const minPackageLines = 400

// TestHouse prints the figures of the repository's structure, `make house`, and fails
// where one exceeds its maximum.
func TestHouse(t *testing.T) {
	t.Parallel()
	list := packages(t)
	lines, importers, entries := make(map[string]int), make(map[string]map[string]bool), make(map[string]bool)
	product, support, outside := 0, 0, 0
	for _, p := range list {
		if parts := strings.Split(p.path(), "/"); parts[0] == "internal" {
			entries[parts[1]] = true
		}
		if isTestSupport(p.path()) {
			support++
			continue
		}
		for _, name := range sourcesIn(t, p.Dir) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			lines[p.path()] += bytes.Count(data, []byte("\n"))
			outside += len(outsideDocument().FindAll(data, -1))
		}
		product += lines[p.path()]
		for _, imp := range p.Imports {
			if to, ours := strings.CutPrefix(imp, module+"/"); ours {
				if importers[to] == nil {
					importers[to] = make(map[string]bool)
				}
				importers[to][p.path()] = true
			}
		}
	}
	var single []string
	server := 0
	for pkg, n := range lines {
		if inFolder(pkg, "internal") && n < minPackageLines && n > 0 && len(importers[pkg]) == 1 {
			single = append(single, pkg)
		}
		if inFolder(pkg, "internal/server") {
			server += n
		}
	}
	slices.Sort(single)
	fields, methods := serverSize(t)
	for _, f := range []figure{
		// The two bounds include the web console, the agent loop, channels, OpenAPI and direct calls of nodes.
		{"lines of product code", product, 239_500},
		{"packages without testkit", len(list) - support, 190},
		{"entries of internal/", len(entries), 17},
		{"packages below 400 lines with one importer", len(single), 13},
		{"lines of internal/server", server, 2_400},
		{"fields of Server", fields, 24},
		{"methods of Server", methods, 37},
		{"imports across a border", len(edgesToCut()), 0},
		{"references to documents outside the repository", outside, 0},
	} {
		t.Logf("%-48s %7d  (at most %d)", f.name, f.got, f.max)
		if f.got > f.max {
			t.Errorf("%s: got %d, want at most %d", f.name, f.got, f.max)
		}
	}
	t.Logf("the packages below 400 lines with one importer:\n\t%s", strings.Join(single, "\n\t"))
	levels := make(map[string]int)
	for pkg, n := range lines {
		if place, ok := placeOf(pkg); ok {
			levels[place.folder] += n
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(levels)) {
		t.Logf("%-48s %7d", folder, levels[folder])
	}
}

// outsideDocument matches a comment that cites a document that is not in the repository:
// a numbered decision, or the section of a specification.
func outsideDocument() *regexp.Regexp {
	return regexp.MustCompile(`//.*(\bR[0-9]{2}\b|\bspec/|\b[a-z-]+ spec\b|\b[a-z]+ [0-9]{1,2}\.[0-9]{1,2}\b[^%a-zA-Z0-9]|\bsections? [0-9]+|nodes-and-cmp)`)
}

// sourcesIn returns the product source files of one folder.
func sourcesIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

// serverSize counts the fields and methods of server.Server.
func serverSize(t *testing.T) (fields, methods int) {
	t.Helper()
	fset := token.NewFileSet()
	for _, name := range sourcesIn(t, repository+"/internal/server") {
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && receiver(d.Recv.List[0].Type) == "Server" {
					methods++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					typ, ok := spec.(*ast.TypeSpec)
					if !ok || typ.Name.Name != "Server" {
						continue
					}
					for _, f := range typ.Type.(*ast.StructType).Fields.List {
						fields += max(1, len(f.Names))
					}
				}
			}
		}
	}
	return fields, methods
}

func receiver(e ast.Expr) string {
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	if id, ok := e.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
