package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// TestAssertionsStateWhatTheyWant refuses an assertion that prints values without a word of
// what was expected, such as t.Error(got). An error alone may be printed, because it names
// the call that failed.
func TestAssertionsStateWhatTheyWant(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	for _, name := range sources(t, ".go") {
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !isAssertion(call) || slices.ContainsFunc(call.Args, hasText) {
				return true
			}
			if id, ok := call.Args[0].(*ast.Ident); ok && len(call.Args) == 1 && strings.HasSuffix(strings.ToLower(id.Name), "err") {
				return true
			}
			t.Errorf("%s: the assertion prints values alone, want what was got and what was wanted", fset.Position(call.Pos()))
			return true
		})
	}
}

// isAssertion reports whether a call is Error or Fatal, with arguments, of a test.
func isAssertion(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 || method.Sel.Name != "Error" && method.Sel.Name != "Fatal" {
		return false
	}
	name := ""
	switch x := method.X.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	}
	return slices.Contains([]string{"t", "b", "tb", "T", "TB"}, name)
}

// hasText reports whether an expression contains a text in quotes.
func hasText(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		text, ok := n.(*ast.BasicLit)
		found = found || ok && text.Kind == token.STRING
		return !found
	})
	return found
}
