package catalog_test

import (
	"fmt"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

// nodeBatch is what a node with the same eight entries as all others offers.
func nodeBatch(i, version int) capability.Batch {
	id := fmt.Sprintf("node-%05d", i)
	m := capability.Module{Extension: "node." + id, ID: "node." + id, Name: id, Origin: "node"}
	for f := range 8 {
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: fmt.Sprint("f", f), Kind: "capability.agent-tool", Action: capability.Action(fmt.Sprint("fn.f", f)), Effect: capability.EffectRead,
			Provider: capability.NewProviderKey("fn", "node", id), Description: fmt.Sprint("does something, ", version),
		})
	}
	return capability.Batch{Source: "node/" + id, Modules: []capability.Module{m}}
}

// BenchmarkNodesChange is what the change of one node costs among many that offer the
// same, alone and together with others; the time is for each node.
func BenchmarkNodesChange(b *testing.B) {
	for _, count := range []int{1000, 10_000} {
		for _, together := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("%d nodes/%d together", count, together), func(b *testing.B) {
				c := catalogtest.New(b)
				var all []capability.Batch
				for i := range count {
					all = append(all, nodeBatch(i, 0))
				}
				if _, _, err := c.ReplaceAll(all); err != nil {
					b.Fatal(err)
				}
				next, version := 0, 1
				for b.Loop() {
					list := make([]capability.Batch, together)
					for i := range list {
						if next == count {
							next, version = 0, version+1
						}
						list[i] = nodeBatch(next, version)
						next++
					}
					if _, _, err := c.ReplaceAll(list); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*together), "µs/node")
			})
		}
	}
}
