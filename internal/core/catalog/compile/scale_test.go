//go:build !race

package compile_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// inUse returns the bytes of the heap that are in use.
func inUse() float64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// many returns n tools in modules of 1,000.
func many(n int) (list []capability.Batch) {
	for i := 0; i < n; i += 1000 {
		m := capability.Module{Extension: fmt.Sprint("mcp.s", i/1000), ID: fmt.Sprint("mcp.s", i/1000)}
		for j := range 1000 {
			m.Contributions = append(m.Contributions, capability.Contribution{
				ID: fmt.Sprint("t", j), Kind: "capability.agent-tool", Tool: fmt.Sprint("tool_", i+j),
				Description: fmt.Sprint("Tool number ", i+j), InputSchema: []byte(`{"type":"object"}`),
			})
		}
		list = append(list, capability.Batch{Source: m.ID, Modules: []capability.Module{m}})
	}
	return list
}

func TestMemoryIsReleasedAtScale(t *testing.T) {
	const tools, contexts = 20_000, 60
	var set catalog.Settings
	for i := range contexts {
		set.Policy = append(set.Policy, rules.Rule{
			Layer: "workspace", Workspace: fmt.Sprint("w", i), Effect: "deny", Match: []string{"ext:none"},
		})
	}
	c, err := catalog.New(set, 0)
	if err != nil {
		t.Fatalf("catalog.New: got %v, want no error", err)
	}
	comp := compile.New(c)
	use := func(n int) {
		comp.Compile(&capability.Context{})
		for i := range n {
			comp.Compile(&capability.Context{Workspace: fmt.Sprint("w", i)})
		}
	}
	replace := func(list []capability.Batch) {
		for _, b := range list {
			if _, _, err := c.Replace(b); err != nil {
				t.Fatalf("Replace: got %v, want no error", err)
			}
		}
	}
	use(0)
	empty := inUse()
	replace(many(tools))
	use(0)
	loaded := inUse()
	use(contexts)
	if full := inUse(); full < 2*loaded {
		t.Fatalf("heap with %d contexts: got %.0f MiB, want at least twice the %.0f MiB without, otherwise the test proves nothing",
			contexts, full/(1<<20), loaded/(1<<20))
	}
	comp.Trim()
	use(3) // those that go on stay
	comp.Trim()
	use(3)
	if got := inUse(); got > 1.5*loaded {
		t.Errorf("heap after %d of %d contexts ended: got %.0f MiB, want at most 1.5 times %.0f MiB", contexts-3, contexts, got/(1<<20), loaded/(1<<20))
	}
	comp.Trim()
	if !comp.Trim() {
		t.Errorf("Trim(3 contexts unused): got false, want true")
	}
	if got := inUse(); got > 1.2*loaded {
		t.Errorf("heap after all contexts ended: got %.0f MiB, want at most 1.2 times %.0f MiB", got/(1<<20), loaded/(1<<20))
	}
	for i := range tools / 1000 {
		replace([]capability.Batch{{Source: fmt.Sprint("mcp.s", i)}})
	}
	if !comp.Trim() {
		t.Errorf("Trim(tools removed): got false, want true")
	}
	if got := inUse(); got > 1.5*empty+loaded/8 { // empty maps keep some room
		t.Errorf("heap after all tools were removed: got %.1f MiB, want at most 1.5 times %.1f MiB and an eighth of %.1f MiB", got/(1<<20),
			empty/(1<<20), loaded/(1<<20))
	}
	if comp.Trim() {
		t.Errorf("Trim(nothing unused): got true, want false")
	}
	runtime.KeepAlive(comp)
	runtime.KeepAlive(c)
}

func TestLeasesAreBoundedAtScale(t *testing.T) {
	t.Parallel()
	l := newLeasing(t)
	var tools []string
	for i := range 20_000 {
		tools = append(tools, fmt.Sprintf("tool_%05d", i))
	}
	l.put("mcp.a", tools...)
	session := func(i int) compile.LeaseKey { return compile.LeaseKey{Session: fmt.Sprint(i)} }
	for i := range 40 { // 32 leases of 16,384 names are all there is room for
		l.list(session(i))
	}
	l.put("mcp.a")
	l.want(session(7), "tool_00000", "unknown_capability")
	l.want(session(8), "tool_00000", "unknown_capability capability_retracted")
	l.want(session(39), "tool_16383", "unknown_capability capability_retracted")
	l.want(session(39), "tool_16384", "unknown_capability")
	for i := range 9000 {
		l.list(session(i))
	}
	l.want(session(39), "tool_00000", "unknown_capability")
}
