package archtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

type goPackage struct {
	ImportPath string
	Name       string
	Dir        string
	GoFiles    []string
	Imports    []string
	Doc        string
}

func (p goPackage) path() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Dir,GoFiles,Imports,Doc", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	if len(list) < 10 {
		t.Fatalf("only %d packages found; want len(list) at least 10", len(list))
	}
	return list
}

// edgesToCut returns the imports that cross a border until their code is moved, each as
// "from to". The list may only shrink.
func edgesToCut() []string { return nil }

// TestImportsPointDown holds the order of the places, and the borders between wings:
// two wings meet in internal/server, through interfaces that the caller declares.
func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	cut := edgesToCut()
	for _, p := range packages(t) {
		from := p.path()
		place, ok := placeOf(from)
		if !ok {
			t.Errorf("%s is in no place of the level table; want ok = true", from)
			continue
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module+"/")
			if !ours {
				continue
			}
			if i := slices.Index(cut, from+" "+to); i >= 0 {
				cut = slices.Delete(cut, i, i+1)
				continue
			}
			if why := crosses(from, place, to); why != "" {
				t.Errorf(`%s imports %s: %s; want why = ""`, from, to, why)
			}
		}
	}
	for _, edge := range cut {
		t.Errorf("edgesToCut lists %q, which is not an import any more: delete the row", edge)
	}
}

// crosses returns the rule that an import breaks, or "".
func crosses(from string, place place, to string) string {
	target, ok := placeOf(to)
	switch {
	case !ok:
		return "the imported package is in no place of the level table"
	case isTestSupport(from):
		return ""
	case isTestSupport(to) && place.level < 7:
		return "product code never imports test support"
	case target.level > place.level:
		return "imports point down only"
	case place.level == 0 && target.folder != place.folder && !slices.Contains([]string{"internal/base", "capability", "secret"},
		target.folder):
		return "protocol, capability, secret and base import only base, capability and secret"
	case place.wing && target.wing && place.folder != target.folder:
		return "wings meet in internal/server"
	case !place.wing || place.folder != target.folder:
		return ""
	}
	inside, root := strings.Contains(strings.TrimPrefix(from, "internal/"), "/"), !strings.Contains(strings.TrimPrefix(to, "internal/"), "/")
	switch {
	case inside && root && place.folder != "internal/serve":
		return "the root package of a wing imports the others, never the reverse"
	case inside && isSurface(to) && !strings.HasPrefix(from, to+"/"):
		return "only the root package of a wing imports its HTTP side"
	}
	return ""
}

// isSurface reports whether a package is the HTTP side of a wing.
func isSurface(pkg string) bool { return strings.HasSuffix(pkg, "serve") && pkg != "internal/serve" }

func TestTheCoreDoesNoIO(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if !inFolder(p.path(), "internal/core") {
			continue
		}
		for _, imp := range p.Imports {
			if slices.Contains(coreForbidden(), imp) {
				t.Errorf("%s imports %s: the core does no I/O; want coreForbidden() without %v", p.path(), imp, imp)
			}
			if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") || strings.HasPrefix(imp, module) {
				continue
			}
			if !slices.ContainsFunc(coreThirdParty(), func(ok string) bool { return imp == ok || strings.HasPrefix(imp, ok+"/") }) {
				t.Errorf("%s imports %s: the core uses schema, Cedar and rate limits only", p.path(), imp)
			}
		}
	}
}

func TestLibrariesStopAtTheirPackage(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			for lib, home := range libraryHomes() {
				if (imp == lib || strings.HasPrefix(imp, lib+"/")) && !slices.ContainsFunc(strings.Fields(home),
					func(pkg string) bool { return strings.HasPrefix(p.path(), pkg) }) {
					t.Errorf("%s imports %s, whose types stop at %s", p.path(), imp, home)
				}
			}
		}
	}
}

func TestEveryPackageHasACommentAndItsOwnName(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for _, p := range packages(t) {
		if len(p.GoFiles) > 0 && len(strings.Fields(p.Doc)) < 5 {
			t.Errorf("%s has no package comment that teaches; want not (len(p.GoFiles) > 0 && len(strings.Fields(p.Doc)) < 5)",
				p.path())
		}
		if p.Name == "main" || len(p.GoFiles) == 0 {
			continue
		}
		if other, twice := seen[p.Name]; twice {
			t.Errorf("package name %s is used by %s and %s: grep must find one thing; want twice = false", p.Name, other, p.path())
		}
		seen[p.Name] = p.path()
	}
}

func TestFilesStayReadable(t *testing.T) {
	t.Parallel()
	for _, name := range sources(t, ".go") {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(data, []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines; split it by concern (400 is the aim, %d the ceiling); want n at most %v",
				name, n, maxFileLines, maxFileLines)
		}
	}
}

func TestNothingRegistersItself(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	for _, name := range sources(t, ".go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf(`%s has an init function: lists are explicit; want not (ok && fn.Recv == nil && fn.Name.Name == "init")`, name)
			}
		}
	}
}

// TestDirectDependenciesAreAccountedFor compares go.mod with the table of
// docs/dependencies.md, both ways.
func TestDirectDependenciesAreAccountedFor(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(repository + "/docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(repository + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]bool)
	for line := range strings.Lines(string(doc)) {
		if cells := strings.Split(line, "|"); len(cells) > 4 && strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			rows[strings.Trim(strings.TrimSpace(cells[1]), "`")+" "+strings.TrimSpace(cells[2])] = true
		}
	}
	for scanner := bufio.NewScanner(bytes.NewReader(mod)); scanner.Scan(); {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(scanner.Text()), "require "))
		if len(fields) < 2 || !strings.Contains(fields[0], ".") || !strings.HasPrefix(fields[1], "v") ||
			strings.Contains(scanner.Text(), "// indirect") {
			continue
		}
		key := fields[0] + " " + fields[1]
		if !rows[key] {
			t.Errorf("go.mod has %s, docs/dependencies.md has no row for it: what, version, why, what was rejected", key)
		}
		delete(rows, key)
	}
	for key := range rows {
		t.Errorf("docs/dependencies.md has a row for %s, go.mod does not require it", key)
	}
}

// TestWireWordsStayAtTheBorder greps for spellings that belong to protocols, and
// for words the glossary replaced.
func TestWireWordsStayAtTheBorder(t *testing.T) {
	t.Parallel()
	forbidden := "satel" + "lite"
	for _, name := range append(sources(t, ".go"), sources(t, ".md")...) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(bytes.ToLower(data), []byte(forbidden)) {
			t.Errorf("%s says %q; the word is endpoint or node; want bytes.ToLower(data) without []byte(forbidden)", name, forbidden)
		}
	}
}

// TestSQLiteAndItsRuntimeMatch: the engine's C runtime must be the version it was
// made for.
func TestSQLiteAndItsRuntimeMatch(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", "modernc.org/sqlite", "modernc.org/libc").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	lines := strings.Fields(string(out))
	if len(lines) != 4 {
		t.Fatalf("unexpected answer %q", out)
	}
	mod, err := os.ReadFile(filepath.Join(lines[0], "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "modernc.org/libc " + lines[3]; !strings.Contains(string(mod), want+"\n") {
		t.Errorf(`modernc.org/sqlite %s was made for another libc than %s; want string(mod) with want + "\n"`, lines[1], lines[3])
	}
}

// TestNothingKeepsEveryMethodAlive: once the engine of templates is linked, the
// linker drops no exported method of any type, which costs 4 MiB.
func TestNothingKeepsEveryMethodAlive(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			if imp == "text/template" || imp == "html/template" {
				t.Errorf(`%s imports %s; want imp other than "text/template", imp other than "html/template"`, p.path(), imp)
			}
		}
	}
	for _, name := range sources(t, ".go") {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range []string{"UsageTemplate", "HelpTemplate", "VersionTemplate"} {
			if bytes.Contains(data, []byte(".Set"+call+"(")) {
				t.Errorf(`%s calls Set%s: cobra's defaults and SetUsageFunc need no templates; want data without []byte(".Set" `+
					`+ call + "(")`, name, call)
			}
		}
	}
}

func sources(t *testing.T, ext string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules" || d.Name() == "bin" || d.Name() == "dist") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ext {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
