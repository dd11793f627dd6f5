package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestReasonsAreComparedByConstants fails where product code compares the reason of an
// error with a literal: the constant beside the code that raises it can be found, and a
// misspelt one does not compile.
func TestReasonsAreComparedByConstants(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	for _, name := range sources(t, ".go") {
		path := filepath.ToSlash(strings.TrimPrefix(name, repository+"/"))
		if strings.HasSuffix(name, "_test.go") || isTestSupport(path) || strings.Contains(path, "/testdata/") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if n.Op != token.EQL && n.Op != token.NEQ {
					return true
				}
				if isReason(n.X) && isText(n.Y) || isReason(n.Y) && isText(n.X) {
					t.Errorf("%s compares a reason with a literal; use the constant of the package that raises it; want not "+
						"(isReason(n.X) && isText(n.Y)), not (isReason(n.Y) && isText(n.X))", fset.Position(n.Pos()))
				}
			case *ast.SwitchStmt:
				if n.Tag == nil || !isReason(n.Tag) {
					return true
				}
				for _, s := range n.Body.List {
					for _, e := range s.(*ast.CaseClause).List {
						if isText(e) {
							t.Errorf("%s compares a reason with a literal; use the constant of the package that raises it; want "+
								"not isText(e)", fset.Position(e.Pos()))
						}
					}
				}
			}
			return true
		})
	}
}

func isReason(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Reason"
}

// isText reports whether e is a string literal other than "".
func isText(e ast.Expr) bool {
	text, ok := literal(e)
	return ok && text != ""
}
