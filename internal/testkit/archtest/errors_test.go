package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

const errorsPage = repository + "/docs/errors.md"

// TestEveryErrorIsExplained holds the page of errors: each code with what every
// surface makes of it, each reason that the program can give, with what it means and
// what to do, and nothing that it cannot give.
func TestEveryErrorIsExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(errorsPage)
	if err != nil {
		t.Fatal(err)
	}
	codes := rowsUnder(t, string(page), "## Codes")
	for i, row := range capability.CodeTable() {
		want := []string{"`" + string(row.Code) + "`", row.Meaning, strconv.Itoa(row.HTTP), "`" + row.Router + "`", strconv.Itoa(row.Exit)}
		if i >= len(codes) || len(codes[i]) != len(want)+3 || !slices.Equal(codes[i][:len(want)], want) || slices.Contains(codes[i], "") {
			t.Errorf("the row of %s must begin %s, and go on with MCP, A2A and what to do; want i less than %v, len(codes[i]) = "+
				`len(want) + 3, codes[i][:len(want)] = %v, codes[i] without ""`, row.Code, strings.Join(want, " | "), len(codes), want)
		}
	}
	explained := make(map[string]bool)
	last := ""
	for _, row := range rowsUnder(t, string(page), "## Reasons") {
		name := strings.Trim(row[0], "`")
		switch {
		case len(row) != 3 || row[1] == "" || row[2] == "":
			t.Errorf("%s: a row has the reason, what it means and what to do", name)
		case name <= last:
			t.Errorf("%s stands behind %s: the rows are sorted, and each is there once", name, last)
		}
		explained[name], last = true, name
	}
	raised := reasons(t)
	for _, name := range slices.Sorted(maps.Keys(raised)) {
		if !explained[name] {
			t.Errorf("the reason %s has no row in docs/errors.md; it is given in %s", name, raised[name])
		}
	}
	for name := range explained {
		if raised[name] == "" {
			t.Errorf(`docs/errors.md explains %s, which nothing gives any more; want raised[name] other than ""`, name)
		}
	}
}

// rowsUnder are the cells of the table under a heading, without its head.
func rowsUnder(t *testing.T, page, heading string) (rows [][]string) {
	t.Helper()
	_, part, found := strings.Cut(page, heading+"\n")
	if !found {
		t.Fatalf("docs/errors.md has no %q; want found = true", heading)
	}
	part, _, _ = strings.Cut(part, "\n## ")
	for line := range strings.Lines(part) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "| `") {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "|"), " | ") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	return rows
}

// reasons are the reasons that errors of the program can have, each with a place
// where it is given: what the method With gets, as a literal, a constant, or by way of
// a function whose parameter it is; constants that are called Reason; and those that
// are made of other words, below.
func reasons(t *testing.T) map[string]string {
	t.Helper()
	c := collector{t: t, files: make(map[string]*ast.File), consts: make(map[string]map[string]string), found: make(map[string]string)}
	fset := token.NewFileSet()
	for _, path := range sources(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || slices.ContainsFunc([]string{"/testdata/", "/testkit/", "/interop/", "/bench/", "/examples/"},
			func(part string) bool { return strings.Contains(filepath.ToSlash(path), part) }) {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		c.files[path] = f
		c.constants(filepath.ToSlash(filepath.Dir(path)), f)
	}
	for path, f := range c.files {
		dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), repository+"/")
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				c.function(dir, fn)
			}
		}
	}
	return c.found
}

type collector struct {
	t      *testing.T
	files  map[string]*ast.File
	consts map[string]map[string]string // by folder, and by "" for all, where the name is of one value
	found  map[string]string
}

var reasonForm = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

func (c *collector) add(reason, where string) {
	if reason != "" {
		c.found[strings.ToLower(reason)] = where
	}
}

func (c *collector) constants(dir string, f *ast.File) {
	dir = strings.TrimPrefix(dir, repository+"/")
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			spec := s.(*ast.ValueSpec)
			for i, name := range spec.Names {
				if i >= len(spec.Values) {
					continue
				}
				text, ok := literal(spec.Values[i])
				if !ok {
					continue
				}
				for _, scope := range []string{dir, f.Name.Name} {
					if c.consts[scope] == nil {
						c.consts[scope] = make(map[string]string)
					}
					c.consts[scope][name.Name] = text
				}
				_, isVerb := spec.Type.(*ast.Ident)
				if strings.HasPrefix(strings.ToLower(name.Name), "reason") && reasonForm.MatchString(text) || isVerb &&
					dir == "internal/taskagents/verbs" && spec.Type.(*ast.Ident).Name == "Code" {
					c.add(text, dir)
				}
			}
		}
	}
}

func literal(e ast.Expr) (string, bool) {
	if b, ok := e.(*ast.BasicLit); ok && b.Kind == token.STRING {
		text, err := strconv.Unquote(b.Value)
		return text, err == nil
	}
	return "", false
}

// value is what an expression is at all times; ok is false where that depends.
func (c *collector) value(dir string, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return literal(e)
	case *ast.Ident:
		text, ok := c.consts[dir][e.Name]
		return text, ok
	case *ast.SelectorExpr:
		if pkg, ok := e.X.(*ast.Ident); ok {
			text, ok := c.consts[pkg.Name][e.Sel.Name]
			return text, ok
		}
	}
	return "", false
}

// function looks at every error with a reason in a function.
func (c *collector) function(dir string, fn *ast.FuncDecl) {
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "With" && len(call.Args) == 2 {
			if text, ok := c.value(dir, call.Args[0]); ok {
				c.add(text, dir)
			} else {
				c.traced(dir, fn, call.Args[0])
			}
		}
		return true
	})
}

// traced follows a reason that is a variable: to what is assigned to it, or to what
// callers in the same folder give for it.
func (c *collector) traced(dir string, fn *ast.FuncDecl, e ast.Expr) {
	name, ok := e.(*ast.Ident)
	if !ok {
		where := fmt.Sprintf("%s.%s", dir, fn.Name.Name)
		made, known := madeUp()[where]
		if !known {
			c.t.Errorf("%s makes a reason of other words; give it as a constant, or a row in madeUp; want known = true", where)
		}
		for _, text := range made {
			c.add(text, where)
		}
		return
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if id, ok := to.(*ast.Ident); ok && id.Name == name.Name && i < len(n.Rhs) {
					if text, ok := c.value(dir, n.Rhs[i]); ok {
						c.add(text, dir)
					}
				}
				if lit, ok := n.Rhs[min(i, len(n.Rhs)-1)].(*ast.FuncLit); ok { // a local function with that parameter
					if id, ok := to.(*ast.Ident); ok {
						c.callers(dir, fn, id.Name, position(lit.Type, name.Name))
					}
				}
			}
		case *ast.FuncDecl:
			c.callers(dir, nil, n.Name.Name, position(n.Type, name.Name))
		}
		return true
	})
}

// position is where a parameter stands; -1 for none of that name.
func position(fn *ast.FuncType, name string) int {
	at := 0
	for _, field := range fn.Params.List {
		for _, id := range field.Names {
			if id.Name == name {
				return at
			}
			at++
		}
	}
	return -1
}

// callers adds what calls of a function give for a parameter: those within one
// function, or, for nil, in the folder.
func (c *collector) callers(dir string, within *ast.FuncDecl, function string, at int) {
	if at < 0 {
		return
	}
	look := func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || at >= len(call.Args) {
			return true
		}
		called := ""
		switch f := call.Fun.(type) {
		case *ast.Ident:
			called = f.Name
		case *ast.SelectorExpr:
			called = f.Sel.Name
		}
		if called == function {
			if text, ok := c.value(dir, call.Args[at]); ok && reasonForm.MatchString(text) {
				c.add(text, dir)
			}
		}
		return true
	}
	if within != nil {
		ast.Inspect(within, look)
		return
	}
	for path, f := range c.files {
		if strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), repository+"/") == dir || ast.IsExported(function) {
			ast.Inspect(f, look)
		}
	}
}

// madeUp are the functions whose reasons are not constants: those that they put
// together, or none, where they pass on what another error has.
func madeUp() map[string][]string {
	return map[string][]string{
		"internal/store.notFound":          {"approval_not_found", "grant_not_found", "live_token_not_found"},
		"internal/core/catalog.Unwrap":     {"slot_ambiguous", "slot_provider_unavailable", "slot_provider_disabled", "slot_provider_unknown"},
		"internal/taskagents/verbs.Errorf": nil, // its codes are collected as constants
		"internal/base/yamljson.errorf":    nil, // its caller's
		"internal/nodes/skill.Ask":         nil,

		"internal/nodes/node.admitted": nil, "internal/upstreams/upstream.unreachable": nil, "internal/endpoints/endpoint.connectFailed": nil,
		"internal/extensions/exec/db.err": nil,
		"protocol/cmp.Capability":         nil, "host/device.refusal": nil,
		"cmd/junctor.waitForTask": nil, "cmd/junctor.show": nil, "cmd/junctor.printRoute": nil, "cmd/junctor.readSecretFile": nil,
		"cmd/junctor.suggested": nil, "cmd/junctor.ask": nil,
	}
}
