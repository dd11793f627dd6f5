package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// foreignNames returns the number of camelCase JSON names for each package outside the
// border that has any: rows and files that exist already, and documents of other
// programs. A number may only shrink, and a package without such names has no row.
func foreignNames() map[string]int {
	return map[string]int{
		// The capability router's module format, which these public packages define.
		"capability":  7,
		"conformance": 23,
		"host":        44,
		// Answers of GitHub's API and of our own, read by commands.
		"cmd/junctor":            3,
		"conformance/livereport": 3,
		// Requests of Gemini's API, which it answers like the service.
		"internal/platform/scriptedmodel": 4,
		// Configuration files, also those of other programs.
		"internal/config":           1,
		"internal/config/elizafile": 10,
		// Manifests, audit records and lists that are stored or published already.
		"internal/core/catalog":               7,
		"internal/core/catalog/actions":       5,
		"internal/core/catalog/arbitration":   9,
		"internal/core/catalog/compile":       17,
		"internal/core/catalog/publish":       15,
		"internal/core/catalog/search":        2,
		"internal/core/invoke":                3,
		"internal/endpoints/endpoint":         17,
		"internal/endpoints/endpoint/offered": 1,
		"internal/endpoints/reference":        6,
		// Manifests of extensions, and messages of the browser's DevTools.
		"internal/extensions/exec/browser": 14,
		"internal/extensions/extension":    2,
		"internal/extensions/declaration":  61,
		"internal/extensions/operator":     28,
		// Arguments and results of functions, published with their schemas.
		"internal/local/diff":   1,
		"internal/local/files":  10,
		"internal/local/gitops": 4,
		"internal/local":        3,
		// Rows and events of task agents that are stored, files and messages of coding
		// CLIs, arguments of the verbs.
		"internal/taskagents":                        1,
		"internal/taskagents/agents":                 15,
		"internal/taskagents/choice":                 24,
		"internal/taskagents/coordinator":            6,
		"internal/taskagents/coordinator/decide":     7,
		"internal/taskagents/coordinator/validation": 11,
		"internal/taskagents/directive":              2,
		"internal/taskagents/launch":                 8,
		"internal/taskagents/programs":               12,
		"internal/taskagents/programs/detect":        7,
		"internal/taskagents/programs/preflight":     3,
		"internal/taskagents/sessions":               22,
		"internal/taskagents/signin":                 1,
		"internal/taskagents/structured/dialect":     51,
		"internal/taskagents/threads":                26,
		"internal/taskagents/threads/row":            99,
		"internal/taskagents/verbs":                  52,
		"internal/taskagents/workspace":              11,
		"internal/taskagents/workspace/forge":        4,
		// Documents of A2A, MCP and GraphQL.
		"internal/upstreams/a2a":             8,
		"internal/upstreams/openapi":         6,
		"internal/upstreams/upstream/ingest": 5,
	}
}

// TestWireNamesStayAtTheBorder reads the JSON struct tags of all product code. A
// camelCase name belongs to the wire format of another system. Such names appear under
// protocol and in packages that serve a protocol, so that a change of a format is made
// in one place.
func TestWireNamesStayAtTheBorder(t *testing.T) {
	t.Parallel()
	found := make(map[string][]string)
	for _, file := range sources(t, ".go") {
		folder := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), repository+"/")
		if strings.HasSuffix(file, "_test.go") || !isProduct(folder) || isBorder(folder) {
			continue
		}
		if names := camelCaseTags(t, file); len(names) > 0 {
			found[folder] = append(found[folder], names...)
		}
	}
	allowed := foreignNames()
	for _, folder := range slices.Sorted(maps.Keys(found)) {
		got, want := len(found[folder]), allowed[folder]
		switch {
		case got > want:
			t.Errorf("%s has %d camelCase JSON names, want at most %d; move the wire types to protocol/ or to a package that serves: %s",
				folder, got, want, strings.Join(found[folder], " "))
		case got < want:
			t.Errorf("%s has %d camelCase JSON names, want %d; lower its number in foreignNames", folder, got, want)
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(allowed)) {
		if len(found[folder]) == 0 {
			t.Errorf("%s has no camelCase JSON name; remove its row from foreignNames; want len(found[folder]) other than 0", folder)
		}
	}
}

// isProduct reports whether a folder holds code that is part of a release.
func isProduct(folder string) bool {
	for _, other := range []string{"bench", "examples", "interop", "release", "tools"} {
		if inFolder(folder, other) {
			return false
		}
	}
	return !isTestSupport(folder)
}

// isBorder reports whether a folder may hold the names of a wire format.
func isBorder(folder string) bool {
	return inFolder(folder, "protocol") || slices.ContainsFunc(strings.Split(folder, "/"), func(part string) bool {
		return strings.HasSuffix(part, "serve")
	})
}

// camelCaseTags returns the names in the JSON struct tags of a file that are written
// like protocolVersion.
func camelCaseTags(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	camelCase := regexp.MustCompile(`^[a-z][a-zA-Z0-9]*[A-Z][a-zA-Z0-9]*$`)
	var names []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil {
			return true
		}
		tag, err := strconv.Unquote(field.Tag.Value)
		if err != nil {
			t.Fatalf("%s: unquote %s: %v", file, field.Tag.Value, err)
		}
		name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		if camelCase.MatchString(name) {
			names = append(names, name)
		}
		return true
	})
	return names
}
