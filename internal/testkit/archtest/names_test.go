package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// durationName matches the names of constants that hold a duration.
func durationName() *regexp.Regexp {
	return regexp.MustCompile(`(Timeout|Interval|TTL|Delay|Grace)$`)
}

// unclearBound matches the names of limits that do not begin with max or min.
func unclearBound() *regexp.Regexp {
	return regexp.MustCompile(`^(?i:most|least|fewest|largest|longest|smallest)[A-Z]`)
}

// TestConstantsAreNamedByTheirKind holds the names of constants: a duration ends in
// Timeout, Interval, TTL, Delay or Grace, and a limit begins with max or min.
func TestConstantsAreNamedByTheirKind(t *testing.T) {
	t.Parallel()
	duration, bound, durations := durationName(), unclearBound(), 0
	fset := token.NewFileSet()
	for _, name := range sources(t, ".go") {
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			group, ok := n.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				return true
			}
			for _, spec := range group.Specs {
				values := spec.(*ast.ValueSpec)
				for i, id := range values.Names {
					if bound.MatchString(id.Name) {
						t.Errorf("%s: the limit is named %s, want a name that begins with max or min", fset.Position(id.Pos()), id.Name)
					}
					if i < len(values.Values) && isDuration(values.Values[i]) {
						durations++
						if !duration.MatchString(id.Name) {
							t.Errorf("%s: the duration is named %s, want an end in Timeout, Interval, TTL, Delay or Grace", fset.Position(id.Pos()), id.Name)
						}
					}
				}
			}
			return true
		})
	}
	if durations < 100 {
		t.Errorf("found %d constants with a duration, want at least 100", durations)
	}
}

// TestLimitsAreInLimitsGo holds the place of limits: in a package of several files, the constants whose
// name is that of a limit, a default or a duration, also those of a function, are in limits.go, where
// they can be read together. The name of a limit begins with max or min. What holds on one system only
// is in that system's file.
func TestLimitsAreInLimitsGo(t *testing.T) {
	t.Parallel()
	limit := regexp.MustCompile(`^((max|min|default)[A-Z0-9]|(Max|Min|Default)[A-Z0-9]|.*(Timeout|Interval|TTL|Delay|Grace)$)`)
	late := regexp.MustCompile(`[a-z](Max|Min|Limit)$`)
	system := regexp.MustCompile(`_(linux|unix|other|notlinux|notunix|unixnotlinux)\.go$`)
	packages := make(map[string][]string)
	for _, name := range sources(t, ".go") {
		dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(name)), repository+"/")
		if isProduct(dir) && !strings.HasSuffix(name, "_test.go") {
			packages[dir] = append(packages[dir], name)
		}
	}
	found := 0
	fset := token.NewFileSet()
	for _, files := range packages {
		for _, name := range files {
			file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution|parser.ParseComments)
			if err != nil {
				t.Fatalf("parsing: %v", err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				group, ok := n.(*ast.GenDecl)
				if !ok || group.Tok != token.CONST {
					return true
				}
				for _, spec := range group.Specs {
					values := spec.(*ast.ValueSpec)
					for i, id := range values.Names {
						if i < len(values.Values) && !limit.MatchString(id.Name) && late.MatchString(id.Name) && isNumber(values.Values[i]) {
							t.Errorf("%s: got the limit %s, want a name that begins with max or min", fset.Position(id.Pos()), id.Name)
						}
						if i >= len(values.Values) || !limit.MatchString(id.Name) || !isNumber(values.Values[i]) {
							continue
						}
						found++
						if len(files) > 1 && filepath.Base(name) != "limits.go" && !system.MatchString(name) && !hasBuildTag(file) {
							t.Errorf("%s: got the limit %s here, want it in limits.go of its package", fset.Position(id.Pos()), id.Name)
						}
					}
				}
				return true
			})
		}
	}
	if found < 1000 {
		t.Errorf("found %d limits, want at least 1000", found)
	}
}

// isNumber reports whether an expression is neither a text nor counted by iota.
func isNumber(e ast.Expr) bool {
	number := true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			number = number && n.Kind != token.STRING && n.Kind != token.CHAR
		case *ast.Ident:
			number = number && n.Name != "iota" && n.Name != "true" && n.Name != "false"
		case *ast.CallExpr:
			id, ok := n.Fun.(*ast.Ident)
			number = number && (!ok || id.Name != "len")
		}
		return true
	})
	return number
}

// hasBuildTag reports whether a line above the package clause chooses systems.
func hasBuildTag(file *ast.File) bool {
	for _, group := range file.Comments {
		for _, line := range group.List {
			if group.Pos() < file.Package && strings.HasPrefix(line.Text, "//go:build") {
				return true
			}
		}
	}
	return false
}

// isDuration reports whether an expression is a unit of package time or a product with one.
func isDuration(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return e.Op == token.MUL && (isDuration(e.X) || isDuration(e.Y))
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		if !ok || x.Name != "time" {
			return false
		}
		switch e.Sel.Name {
		case "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour":
			return true
		}
	}
	return false
}
