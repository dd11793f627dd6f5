package compile_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
)

// big is a catalog of 2,000 sources: 1,960 servers of 50 tools each, one in ten of
// a name that others have too, and 40 chat adapters with 50 accounts.
// own is what the catalog takes beyond the declarations.
func big(tb testing.TB) (c *catalog.Catalog, server func(source, version int) capability.Batch, own int) {
	tb.Helper()
	server = func(n, version int) capability.Batch {
		m := capability.Module{
			Extension: fmt.Sprintf("mcp.server-%04d", n), ID: fmt.Sprintf("server-%04d", n),
			Label: fmt.Sprintf("server-%04d", n), Origin: "mcp",
		}
		for i := range 50 {
			c := capability.Contribution{
				ID: fmt.Sprintf("tool-%d", i), Kind: "capability.agent-tool", Tool: fmt.Sprintf("tool_%04d_%d", n, i), Effect: capability.EffectRead,
				Description: "does one thing", Provider: capability.NewProviderKey("ext", "mcp", m.ID),
				Member: capability.Member{Module: m.ID, Kind: "tool", Name: fmt.Sprint(i)},
			}
			if i < 5 {
				c.Tool = fmt.Sprintf("common_%d", n%20*5+i)
			}
			if version > 0 {
				c.Description = fmt.Sprint("version ", version)
			}
			m.Contributions = append(m.Contributions, c)
		}
		return capability.Batch{Source: fmt.Sprintf("mcp/%04d", n), Modules: []capability.Module{m}}
	}
	var err error
	c, err = catalog.New(catalog.Settings{}, 0)
	if err != nil {
		tb.Fatal(err)
	}
	batches := make([]capability.Batch, 0, 2000)
	for n := range 1960 {
		batches = append(batches, server(n, 0))
	}
	for n := range 40 {
		m := capability.Module{Extension: fmt.Sprintf("chat-%02d", n), ID: fmt.Sprintf("chat-%02d", n), Origin: "bundled"}
		for i := range 25 {
			for _, action := range []capability.Action{"message.send", "message.reply"} {
				m.Contributions = append(m.Contributions, capability.Contribution{
					ID: "adapter", Kind: "adapter.runtime", Action: action,
					Provider: capability.NewProviderKey("messaging", fmt.Sprintf("chat%02d", n), fmt.Sprintf("acc%02d", i)),
				})
			}
		}
		batches = append(batches, capability.Batch{Source: m.Extension, Modules: []capability.Module{m}})
	}
	before := heap()
	for _, b := range batches {
		if _, _, err := c.Replace(b); err != nil {
			tb.Fatal(err)
		}
	}
	own = heap() - before
	runtime.KeepAlive(batches)
	return c, server, own
}

// heap is what is in use after a collection.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// spread reports percentiles, which a mean hides.
func spread(b *testing.B, times []time.Duration) {
	if len(times) == 0 {
		return
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1e3, "p99-µs")
}

func thread(n int) capability.Context {
	return capability.Context{
		Workspace: "w", Agent: "main", Session: fmt.Sprint(n),
		Route: &capability.Route{
			Kind: fmt.Sprintf("chat%02d", n%40), Account: fmt.Sprintf("acc%02d", n/40%25), Conversation: fmt.Sprint(n),
			ConversationKind: "thread",
		},
	}
}

// Benchmark100000 compares the time of each operation on 100,000 entries of 2,000
// sources with its budget.
func Benchmark100000(b *testing.B) {
	c, server, own := big(b)
	n := c.Snapshot().Len()
	before := heap()
	comp := compile.New(c)
	if got := comp.Compile(&capability.Context{}).Len(); got < 90_000 {
		b.Fatalf("comp.Compile(&capability.Context{}).Len() = %v, want got >= 90_000", got)
	}
	view := heap() - before
	b.Run("memory", func(b *testing.B) {
		b.ReportMetric(float64(own)/float64(n), "B/entry")
		b.ReportMetric(float64(view)/float64(n), "B/entry-view")
		b.ReportMetric(0, "ns/op")
	})
	timed := func(name string, f func(i int)) {
		b.Run(name, func(b *testing.B) {
			var times []time.Duration
			i := 0
			for b.Loop() {
				began := time.Now()
				f(i)
				times = append(times, time.Since(began))
				i++
			}
			spread(b, times)
		})
	}
	version := 0
	timed("apply 50 entries and compile", func(i int) {
		version++
		if _, changed, err := c.Replace(server(i%1960, version)); err != nil || !changed {
			b.Fatalf("%v; want no error, changed = true", err)
		}
		comp.Compile(&capability.Context{})
	})
	timed("flap a source", func(i int) {
		batch := server(7, version)
		if i%2 == 0 {
			for k := range batch.Modules[0].Contributions {
				batch.Modules[0].Contributions[k].Availability.State = capability.StateUnavailable
			}
		}
		if _, _, err := c.Replace(batch); err != nil {
			b.Fatal(err)
		}
		comp.Compile(&capability.Context{})
	})
	timed("remove and add a source", func(i int) {
		batch := server(9, version)
		if i%2 == 0 {
			batch.Modules = nil
		}
		if _, _, err := c.Replace(batch); err != nil {
			b.Fatal(err)
		}
		comp.Compile(&capability.Context{})
	})
	fresh := 0
	timed("compile a context", func(int) {
		ctx := thread(fresh)
		ctx.Bindings = []capability.Binding{{Actions: "directory.*", Provider: capability.ProviderKey(fmt.Sprint("x:y:", fresh))}}
		fresh++
		comp.Compile(&ctx)
	})
	ctx := thread(3)
	comp.Compile(&ctx)
	timed("compile again", func(int) { comp.Compile(&ctx) })
	agent := comp.Compile(&ctx)
	timed("select among 1000", func(int) {
		if _, err := agent.Select(arbitration.Request{Action: "message.send"}); err != nil {
			b.Fatal(err)
		}
	})
	timed("select a tool", func(int) {
		if _, err := agent.Select(arbitration.Request{Action: "ext.mcp.server-0100.tool-9"}); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkRebuild100000 measures a change of the settings, which rebuilds every entry, name
// and listing. A few rounds are enough: run it with -benchtime 3x.
func BenchmarkRebuild100000(b *testing.B) {
	c, _, _ := big(b)
	comp := compile.New(c)
	var times []time.Duration
	i := 0
	for b.Loop() {
		i++
		began := time.Now()
		if _, _, err := c.Configure(catalog.Settings{Exposure: catalog.Exposure{MaxDirect: 40 + i}}); err != nil {
			b.Fatal(err)
		}
		comp.Compile(&capability.Context{})
		times = append(times, time.Since(began))
	}
	spread(b, times)
}

// BenchmarkSelect64 holds the budget of a selection among 64 candidates.
func BenchmarkSelect64(b *testing.B) {
	c, err := catalog.New(catalog.Settings{}, 0)
	if err != nil {
		b.Fatal(err)
	}
	m := capability.Module{Extension: "chat", ID: "chat", Origin: "bundled"}
	for i := range 64 {
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: "adapter", Kind: "adapter.runtime", Action: "message.send",
			Provider: capability.NewProviderKey("messaging", "chat", fmt.Sprint("acc", i)),
		})
	}
	if _, _, err := c.Replace(capability.Batch{Source: "chat", Modules: []capability.Module{m}}); err != nil {
		b.Fatal(err)
	}
	frame := arbitration.NewFrame(c.Snapshot(), &capability.Context{})
	var times []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := frame.Select(arbitration.Request{Action: "message.send", Caller: arbitration.Runtime}); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	spread(b, times)
}
