package compile_test

import (
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
)

// TestSpellings holds that what is written at a door is read there, also where
// names are cut, look alike, or look like the hash of another.
func TestSpellings(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long_", 12)
	m := capability.Module{Extension: "mcp.x", ID: "x"}
	for i, name := range []string{
		"plain", "dotted.name", "Upper-Case", long + "one", long + "two", long[:47], long[:48], "short_deadbeef",
		"__odd__", "a.b.c",
	} {
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: "t" + string(rune('a'+i)), Kind: "capability.agent-tool",
			Tool: name,
		})
	}
	for _, action := range []capability.Action{"acme.a-b", "acme.aB", "acme.a.b", "acme.very.longNameThatGoesOnForAWhileAndThenSome"} {
		m.Contributions = append(m.Contributions, capability.Contribution{ID: string(action), Kind: "capability.agent-tool", Action: action})
	}
	a := agent(t, catalog.Settings{}, capability.Context{}, m)
	for _, sp := range []compile.Spelling{
		{},
		{Dialect: naming.Dotted},
		{Dialect: naming.MCP},
		{Dialect: naming.Strict64},
		{Dialect: naming.Strict64, Limit: 48},
		{Dialect: naming.Strict64, Limit: 32},
	} {
		written := make(map[string]string)
		for x := range a.Actions() {
			name := sp.Write(a, x)
			if other := written[name]; other != "" {
				t.Errorf(`%v: %s and %s are both %s; want other = ""`, sp, x.Name, other, name)
			}
			written[name] = x.Name
			if back, ok := sp.Read(a, name); !ok || back != x {
				t.Errorf("%v: %s is written %s, which is not read; want ok = true, back = %v", sp, x.Name, name, x)
			}
			if back, ok := sp.Read(a, x.Name); !ok || back != x && written[x.Name] == "" && sp.Write(a, back) != x.Name {
				t.Errorf(`%v: %s is not read as it is; want ok = true, not (back != x && written[x.Name] == "" && sp.Write(a, `+
					"back) != x.Name)", sp, x.Name)
			}
		}
		for _, name := range []string{"", "none", "_deadbeef", "plain_deadbeef", strings.Repeat("long_", 8)[:39] + "_deadbeef"} {
			if x, ok := sp.Read(a, name); ok {
				t.Errorf("%v: %q is read as %s; want ok = false", sp, name, x.Name)
			}
		}
	}
}
