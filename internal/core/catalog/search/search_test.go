package search_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
	"github.com/junctor-run/junctor/internal/core/catalog/search"
)

func tool(name, title, description string) capability.Contribution {
	return capability.Contribution{
		ID: name, Kind: "capability.agent-tool", Tool: name, Title: title, Description: description,
		Effect: capability.EffectRead,
	}
}

func fill(t testing.TB, s catalog.Settings, modules ...capability.Module) (*catalog.Catalog, *compile.Compiler) {
	t.Helper()
	c, err := catalog.New(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		replace(t, c, m)
	}
	return c, compile.New(c)
}

func replace(t testing.TB, c *catalog.Catalog, m capability.Module) {
	t.Helper()
	if _, _, err := c.Replace(capability.Batch{Source: m.Extension, Modules: []capability.Module{m}}); err != nil {
		t.Fatal(err)
	}
}

func module(ext, label string, list ...capability.Contribution) capability.Module {
	return capability.Module{Extension: ext, ID: ext, Label: label, Origin: "mcp", Contributions: list}
}

func github() capability.Module {
	pull := tool("createPullRequest", "Open a pull request", "Propose changes to a repository.")
	pull.Aliases, pull.Tags = []string{"merge_request"}, []string{"scm"}
	branch := tool("create_branch", "New branch", "Starts a line of work in a repository.")
	branch.InputSchema = json.RawMessage(`{"type":"object","properties":{"fromCommit":{"type":"string"}}}`)
	return module("mcp.github", "octocat", pull, branch, tool("list_issues", "Issues",
		"Lists what is open in a repository, and who works on it."))
}

func names(hits []search.Hit) string {
	var out []string
	for _, h := range hits {
		out = append(out, h.Action.Name)
	}
	return strings.Join(out, " ")
}

func TestSearch(t *testing.T) {
	t.Parallel()
	_, comp := fill(t, catalog.Settings{}, github(), module("mcp.mail", "post",
		tool("send_mail", "Send", "Sends a letter to a repository owner."), tool("same_b", "Twin", ""), tool("same_a", "Twin", "")))
	a := comp.Compile(&capability.Context{})
	var ix search.Index
	for query, want := range map[string]string{
		"branch":                               "create_branch",
		"pull":                                 "createPullRequest",
		"PULL-request!":                        "createPullRequest",
		"createPullRequest":                    "createPullRequest create_branch",
		"merge":                                "createPullRequest",
		"scm":                                  "createPullRequest",
		"commit":                               "create_branch",
		"fromcommit":                           "create_branch",
		"octocat issues":                       "list_issues createPullRequest create_branch",
		"twin":                                 "same_a same_b",
		"repository":                           "createPullRequest send_mail create_branch list_issues",
		"nothing of the kind":                  "create_branch",
		"":                                     "",
		"!?":                                   "",
		"select:same_b,nope, create_branch":    "same_b create_branch",
		"select:same_b,same_b":                 "same_b",
		" select:list_issues":                  "list_issues",
		strings.Repeat("zz ", 1000) + "branch": "create_branch",
	} {
		if got := names(ix.Search(a, query, 0, compile.Spelling{}, nil)); got != want {
			t.Errorf("%.40q: got %q, want %q", query, got, want)
		}
	}
	if got := names(ix.Search(a, "repository", 2, compile.Spelling{}, nil)); got != "createPullRequest send_mail" {
		t.Errorf("names(...) = %v, want %v", got, "createPullRequest send_mail")
	}
}

// TestSearchKeepsToTheContext checks that what a context may not use cannot be found,
// described or called.
func TestSearchKeepsToTheContext(t *testing.T) {
	t.Parallel()
	set := catalog.Settings{Policy: []rules.Rule{{Layer: "agent", Agent: "guest", Effect: "deny", Match: []string{"ext.mcp.github.create*"}}}}
	_, comp := fill(t, set, github())
	tools := search.Tools{Index: &search.Index{}, Spelling: compile.Spelling{Dialect: naming.Strict64, Limit: 48}}
	full, guest := comp.Compile(&capability.Context{Agent: "main"}), comp.Compile(&capability.Context{Agent: "guest"})
	if got := tools.SearchAmong(full, "repository create branch", 100, nil); len(got.Actions) != 3 {
		t.Errorf("tools.SearchAmong(...) = %v, want len(got.Actions) == 3", got)
	}
	for _, query := range []string{"repository create branch", "select:create_branch,createPullRequest,list_issues"} {
		if got := tools.SearchAmong(guest, query, 20, nil); len(got.Actions) != 1 || got.Actions[0].Name != "list_issues" {
			t.Errorf(`%s: %+v; want len(got.Actions) = 1, got.Actions[0].Name = "list_issues"`, query, got)
		}
	}
	// Who may see less gets no shorter result for what others see.
	few := tools.SearchAmong(full, "repository create branch", 1,
		func(a *compile.Action) bool { return tools.Spelling.Write(full, a) == "list_issues" })
	if len(few.Actions) != 1 || few.Actions[0].Name != "list_issues" {
		t.Errorf(`%+v; want len(few.Actions) = 1, few.Actions[0].Name = "list_issues"`, few)
	}
	if _, err := tools.Describe(guest, "create_branch"); capability.CodeOf(err) != capability.CodeUnknownCapability {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnknownCapability", err)
	}
	if _, err := tools.Inner(guest, "create_branch", false); capability.CodeOf(err) != capability.CodeUnknownCapability {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnknownCapability", err)
	}
	got, err := tools.Describe(full, "create_branch")
	if err != nil || !strings.Contains(string(got.Schema), "fromCommit") || got.Effect != capability.EffectRead {
		t.Errorf(`%v %+v; want no error, string(got.Schema) with "fromCommit", got.Effect = capability.EffectRead`, err, got)
	}
}

// TestFoundNamesAreLeased holds that a name a search handed out means what it meant
// then.
func TestFoundNamesAreLeased(t *testing.T) {
	t.Parallel()
	c, comp := fill(t, catalog.Settings{}, github())
	leases := compile.NewLeases(time.Now)
	key, sp := compile.LeaseKey{Session: "s"}, compile.Spelling{Dialect: naming.Strict64, Limit: 48}
	tools := search.Tools{
		Index: &search.Index{}, Spelling: sp,
		Resolve: func(a *compile.Agent, name string) (*compile.Action, error) {
			r, err := leases.Resolve(key, a, sp, name)
			if err == nil && r.Action == nil { // it exists and is not listed
				_, err = a.Select(arbitration.Request{Action: r.Canonical})
			}
			return r.Action, err
		},
		Shown: func(a *compile.Agent, shown []*compile.Action) { leases.Record(key, a, sp, shown) },
	}
	now := func() *compile.Agent { return comp.Compile(&capability.Context{}) }
	if got := tools.SearchAmong(now(), "new branch", 1, nil); len(got.Actions) != 1 || got.Actions[0].Name != "create_branch" {
		t.Fatalf(`tools.SearchAmong(now(), "new branch", 1, nil) = %v, want len(got.Actions) == 1 && got.Actions[0].Name == "create_branch"`, got)
	}
	replace(t, c, module("mcp.neon", "neon", tool("create_branch", "", "")))
	if got, err := tools.Describe(now(), "create_branch"); err != nil || got.Name != "octocat__create_branch" {
		t.Errorf(`%v %+v; want no error, got.Name = "octocat__create_branch"`, err, got)
	}
	if x, err := tools.Inner(now(), "create_branch", true); err != nil || x.Canonical != "ext.mcp.github.create_branch" {
		t.Errorf(`%v; want no error, x.Canonical = "ext.mcp.github.create_branch"`, err)
	}
	down := github()
	for i := range down.Contributions {
		down.Contributions[i].Availability.State = capability.StateUnavailable
	}
	replace(t, c, down)
	if _, err := tools.Inner(now(), "create_branch", true); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
	}
	replace(t, c, module("mcp.github", "octocat"))
	if _, err := tools.Inner(now(), "create_branch", true); capability.AsError(err).Reason != "capability_retracted" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "capability_retracted"`, err)
	}
}

func TestInner(t *testing.T) {
	t.Parallel()
	writes := tool("write_it", "", "")
	writes.Effect = capability.EffectWrite
	call := capability.Contribution{ID: "call", Kind: "capability.agent-tool", Action: "catalog.call", Provider: "catalog:core:default"}
	_, comp := fill(t, catalog.Settings{}, module("core", "", call), module("mcp.x", "x", tool("read_it", "", ""), writes))
	a := comp.Compile(&capability.Context{})
	tools := search.Tools{Index: &search.Index{}, Spelling: compile.Spelling{Dialect: naming.Strict64}}
	for _, tt := range []struct {
		name string
		read bool
		want capability.Code
	}{
		{"read_it", true, ""},
		{"read_it", false, ""},
		{"write_it", false, ""},
		{"write_it", true, capability.CodeInvalidInput},
		{"catalog.call", false, capability.CodeInvalidInput},
		{"catalog_call", false, capability.CodeInvalidInput},
		{"none", false, capability.CodeUnknownCapability},
	} {
		x, err := tools.Inner(a, tt.name, tt.read)
		if (err == nil) != (tt.want == "") || err != nil && capability.CodeOf(err) != tt.want || err == nil && x.Name != tt.name {
			t.Errorf(`%s (read %v): %v; want (err == nil) = (tt.want == ""), not (err != nil && capability.CodeOf(err) != `+
				"tt.want), not (err == nil && x.Name != tt.name)", tt.name, tt.read, err)
		}
	}
}

// TestSharedPieces holds that an index which saw other catalogs before finds what
// a fresh one finds.
func TestSharedPieces(t *testing.T) {
	t.Parallel()
	var modules []capability.Module
	for m := range 20 {
		var list []capability.Contribution
		for i := range 40 {
			list = append(list, tool(fmt.Sprintf("m%d_tool_%d", m, i), fmt.Sprint("Title ", i), fmt.Sprintf("does thing %d of %d", i%7, m)))
		}
		modules = append(modules, module(fmt.Sprintf("mcp.m%d", m), "", list...))
	}
	c, comp := fill(t, catalog.Settings{}, modules...)
	var warm search.Index
	for round := range 20 {
		m := modules[round]
		m.Contributions = slices.Clone(m.Contributions)
		m.Contributions[3].Description = fmt.Sprint("changed in round ", round)
		replace(t, c, m)
		a := comp.Compile(&capability.Context{})
		for _, query := range []string{"thing 3", "round changed", "title 5 m7", fmt.Sprint("round ", round)} {
			var cold search.Index
			got, want := warm.Search(a, query, 20, compile.Spelling{}, nil), cold.Search(a, query, 20, compile.Spelling{}, nil)
			for limit := 1; limit < 20; limit++ { // what is passed over changes nothing
				if got, want := names(warm.Search(a, query, limit, compile.Spelling{}, nil)), names(want[:min(limit, len(want))]); got != want {
					t.Fatalf("%s, %d: %s, not %s; want got = %v", query, limit, got, want, want)
				}
			}
			if diff := cmp.Diff(names(want), names(got)); diff != "" || len(got) == 0 {
				t.Fatalf("names(got) differs from want, query = %v (-want +got):\n%s", query, diff)
			}
			for i := range got {
				if got[i].Score != want[i].Score {
					t.Fatalf("query = %v, got[i].Score = %v, want[i].Score = %v, want got[i].Score == want[i].Score", query, got[i].Score, want[i].Score)
				}
			}
		}
	}
}

func TestManySearchAtOnce(t *testing.T) {
	t.Parallel()
	c, comp := fill(t, catalog.Settings{}, github())
	var ix search.Index
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				if got := names(ix.Search(comp.Compile(&capability.Context{}), "branch", 1, compile.Spelling{}, nil)); got != "create_branch" {
					t.Errorf("names(...) = %v, want %v", got, "create_branch")
				}
			}
		})
	}
	for i := range 100 {
		replace(t, c, module("mcp.y", "", tool(fmt.Sprint("other", i), "", "")))
	}
	wg.Wait()
}

// Benchmark100000 measures the index over 100,000 tools: made from nothing, after
// a source of 50 changed, and searched.
func Benchmark100000(b *testing.B) {
	words := strings.Fields("create list delete update branch issue message file table query user group report invoice image page event task note search")
	server := func(n, version int) capability.Module {
		var list []capability.Contribution
		for i := range 50 {
			k := n*50 + i
			c := tool(fmt.Sprintf("%s_%s_%d", words[k%20], words[k/20%20], k), words[k%20]+" a "+words[k/20%20],
				fmt.Sprintf("Will %s the %s of the %s in the given place and say what became of it, version %d.", words[k%20], words[k/20%20],
					words[k/400%20], version))
			c.InputSchema = json.RawMessage(`{"type":"object","properties":{"owner":{"type":"string"},"repo":{"type":"string"},"number":{"type":"integer"}},"required":["owner"]}`)
			list = append(list, c)
		}
		return module(fmt.Sprintf("mcp.s%04d", n), fmt.Sprintf("s%04d", n), list...)
	}
	var modules []capability.Module
	for n := range 2000 {
		modules = append(modules, server(n, 0))
	}
	c, comp := fill(b, catalog.Settings{}, modules...)
	a := comp.Compile(&capability.Context{})
	b.Run("build", func(b *testing.B) {
		for b.Loop() {
			var ix search.Index
			ix.Search(a, "branch", 10, compile.Spelling{}, nil)
		}
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var ix search.Index
	ix.Search(a, "x", 1, compile.Spelling{}, nil)
	runtime.GC()
	runtime.ReadMemStats(&after)
	for _, query := range []string{"s1234", "invoice", "delete the image of a report", "create_branch_1004 owner"} {
		b.Run("query/"+strings.ReplaceAll(query, " ", "-"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ix.Search(a, query, 10, compile.Spelling{}, nil)
			}
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/100_000, "B/tool")
		})
	}
	b.Run("change", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			replace(b, c, server(i%2000, i+1))
			a := comp.Compile(&capability.Context{})
			b.StartTimer()
			ix.Search(a, "invoice", 10, compile.Spelling{}, nil)
		}
	})
}
