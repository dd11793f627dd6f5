package catalog_test

import (
	"fmt"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
)

func BenchmarkSelect(b *testing.B) {
	all := candidates(b, "fs.list", offer{name: "a"}, offer{name: "b", rank: 2}, offer{name: "c", rank: 1})
	target := capability.Target{Action: "fs.list"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := catalog.Select(target, all, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkApply changes one of a hundred sources of a hundred tools each.
func BenchmarkApply(b *testing.B) {
	c := catalog.New()
	for s := range 100 {
		var tools []capability.Contribution
		for i := range 100 {
			tools = append(tools, tool(fmt.Sprintf("t%d", i), fmt.Sprintf("tool-%d-%d", s, i)))
		}
		apply(b, c, fmt.Sprint("s", s), module(fmt.Sprint("m", s), tools...))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m := module("m0", tool("t", fmt.Sprint("changed", i)))
		apply(b, c, "s0", m)
	}
}
