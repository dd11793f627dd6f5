package compile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
)

// leasing is a catalog whose sources come and go under one set of leases.
type leasing struct {
	t      *testing.T
	c      *catalog.Catalog
	comp   *compile.Compiler
	leases *compile.Leases
	clock  time.Time
	sp     compile.Spelling
}

func newLeasing(t *testing.T) *leasing {
	t.Helper()
	c, err := catalog.New(catalog.Settings{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := &leasing{t: t, c: c, comp: compile.New(c), clock: time.Unix(0, 0), sp: compile.Spelling{Dialect: naming.Strict64, Limit: 48}}
	l.leases = compile.NewLeases(func() time.Time { return l.clock })
	return l
}

// put offers tools "name alias alias"; a name that begins with '-' is down.
func (l *leasing) put(ext string, tools ...string) {
	l.t.Helper()
	b := capability.Batch{Source: ext}
	if len(tools) > 0 {
		m := capability.Module{Extension: ext, ID: ext, Origin: "mcp"}
		for _, spec := range tools {
			parts := strings.Fields(spec)
			name, down := strings.CutPrefix(parts[0], "-")
			c := capability.Contribution{ID: strings.ReplaceAll(name, ".", "-"), Kind: "capability.agent-tool", Tool: name, Aliases: parts[1:]}
			if down {
				c.Availability.State = capability.StateUnavailable
			}
			m.Contributions = append(m.Contributions, c)
		}
		b.Modules = []capability.Module{m}
	}
	if _, _, err := l.c.Replace(b); err != nil {
		l.t.Fatal(err)
	}
}

func (l *leasing) agent() *compile.Agent { return l.comp.Compile(&capability.Context{}) }

func (l *leasing) list(key compile.LeaseKey) string {
	a := l.agent()
	var shown []*compile.Action
	var names []string
	for x := range a.Actions() {
		shown = append(shown, x)
		names = append(names, l.sp.Write(a, x))
	}
	l.leases.Record(key, a, l.sp, shown)
	return strings.Join(names, " ")
}

// call is the canonical action a name leads to, with what is told of it.
func (l *leasing) call(key compile.LeaseKey, name string) string {
	r, err := l.leases.Resolve(key, l.agent(), l.sp, name)
	if err != nil {
		e := capability.AsError(err)
		return strings.TrimSpace(fmt.Sprint(e.Code, " ", e.Reason, " ", strings.Trim(fmt.Sprint(e.Details["names"]), "<nil>")))
	}
	out := string(r.Canonical)
	if r.Action != nil {
		out += " " + r.Action.Name
	}
	if r.Leased {
		out += " leased"
	}
	return out
}

func (l *leasing) want(key compile.LeaseKey, name, want string) {
	l.t.Helper()
	if got := l.call(key, name); got != want {
		l.t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

var (
	old   = compile.LeaseKey{Session: "old"}
	fresh = compile.LeaseKey{Session: "new"}
	token = compile.LeaseKey{Token: "t1", View: "main"}
)

func TestARenameRedirectsNobody(t *testing.T) {
	t.Parallel()
	l := newLeasing(t)
	l.put("mcp.github", "create_branch")
	l.list(old)
	l.list(token)
	l.put("mcp.neon", "create_branch")
	l.want(old, "create_branch", "ext.mcp.github.create_branch github__create_branch leased")
	l.want(token, "create_branch", "ext.mcp.github.create_branch github__create_branch leased")
	if got := l.list(fresh); got != "github__create_branch neon__create_branch" {
		t.Errorf("l.list(fresh) = %v, want %v", got, "github__create_branch neon__create_branch")
	}
	l.want(fresh, "create_branch", "unknown_capability")
	l.want(fresh, "neon__create_branch", "ext.mcp.neon.create_branch neon__create_branch leased")
	l.want(compile.LeaseKey{}, "neon__create_branch", "ext.mcp.neon.create_branch neon__create_branch")
	l.want(old, "neon__create_branch", "ext.mcp.neon.create_branch neon__create_branch")
}

func TestWhatIsGoneIsRetracted(t *testing.T) {
	t.Parallel()
	l := newLeasing(t)
	l.put("mcp.github", "create_branch", "list.all")
	l.list(old)
	l.put("mcp.github")
	l.want(old, "create_branch", "unknown_capability capability_retracted")
	l.put("mcp.neon", "create-branch")
	l.want(old, "create_branch", "unknown_capability capability_retracted [create-branch]")
	l.put("mcp.other", "create_branch")
	l.want(old, "create_branch", "unknown_capability capability_retracted [neon__create-branch other__create_branch]")
	l.want(old, "list_all", "unknown_capability capability_retracted")
	l.want(fresh, "create_branch", "unknown_capability")
	l.put("mcp.github", "-create_branch") // back, and down: for the selection to say
	l.want(old, "create_branch", "ext.mcp.github.create_branch leased")
	l.want(fresh, "github__create_branch", "ext.mcp.github.create_branch")
}

// TestAliases checks aliases and the order of their resolution.
func TestAliases(t *testing.T) {
	t.Parallel()
	l := newLeasing(t)
	l.put("mcp.a", "walk go w", "march Step")
	l.want(old, "go", "ext.mcp.a.walk walk")
	l.want(old, "w", "ext.mcp.a.walk walk")
	l.put("mcp.b", "run go")
	l.want(old, "go", "invalid_input ambiguous_alias [run walk]")
	l.want(old, "Step", "ext.mcp.a.march march")
	l.put("mcp.c", "step")
	l.want(old, "Step", "invalid_input ambiguous_alias [march step]")
	l.want(old, "step", "ext.mcp.c.step step")
	l.put("mcp.c", "go")
	l.want(old, "go", "ext.mcp.c.go go") // a name beats an alias
	l.put("core-tools", "x")
	if _, _, err := l.c.Replace(capability.Batch{Source: "core", Modules: []capability.Module{core()}}); err != nil {
		t.Fatal(err)
	}
	l.want(old, "search_tools", "catalog.search catalog.search")
	l.want(old, "catalog_search", "catalog.search catalog.search")
	l.put("mcp.d", "find search_tools")
	l.want(old, "search_tools", "invalid_input ambiguous_alias [catalog_search find]")
	l.want(old, "nothing", "unknown_capability")
}

func TestLeasesEnd(t *testing.T) {
	t.Parallel()
	l := newLeasing(t)
	l.put("mcp.github", "create_branch")
	l.list(old)
	l.list(token)
	l.list(fresh)
	l.put("mcp.github")
	l.leases.Forget(fresh)
	l.want(fresh, "create_branch", "unknown_capability")
	l.clock = l.clock.Add(compile.LeaseTTL - 1)
	l.want(old, "create_branch", "unknown_capability capability_retracted")
	l.list(token) // shown again, without the name: what was shown is kept
	l.clock = l.clock.Add(1)
	l.want(old, "create_branch", "unknown_capability")
	l.want(token, "create_branch", "unknown_capability capability_retracted")
	l.clock = l.clock.Add(compile.LeaseTTL)
	l.want(token, "create_branch", "unknown_capability")
}
