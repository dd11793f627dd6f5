package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
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
