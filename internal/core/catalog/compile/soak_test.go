//go:build soak

package compile_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
)

// TestSoakFlapping: 100,000 tools on 2,000 servers, one of which comes and goes a
// thousand times, while a thousand contexts are known and two hundred are asked
// for after every change. Compiling stays in single-digit milliseconds, only
// contexts that changed get another etag, and memory returns to where it was.
func TestSoakFlapping(t *testing.T) {
	c, server, _ := big(t)
	comp := compile.New(c)
	etags := make([]string, 1000)
	contexts := make([]capability.Context, len(etags))
	for n := range contexts {
		contexts[n] = thread(n)
		// none like another
		contexts[n].Bindings = []capability.Binding{{Actions: "directory.*", Provider: capability.ProviderKey(fmt.Sprint("x:y:", n))}}
		etags[n] = comp.Compile(&contexts[n]).Etag()
	}
	settle := func() {
		for n := range contexts {
			comp.Compile(&contexts[n])
		}
	}
	settle()
	start := heap()
	var compiles, applies []time.Duration
	for round := range 1000 {
		b := server(round%2*3+7, 0)
		switch {
		case round%4 == 0: // is marked down
			for i := range b.Modules[0].Contributions {
				b.Modules[0].Contributions[i].Availability.State = capability.StateUnavailable
			}
		case round%4 == 1: // goes
			b.Modules = nil
		}
		began := time.Now()
		if _, _, err := c.Replace(b); err != nil {
			t.Fatal(err)
		}
		applies = append(applies, time.Since(began))
		for n := range 200 {
			began := time.Now()
			comp.Compile(&contexts[(round*200+n)%len(contexts)])
			compiles = append(compiles, time.Since(began))
		}
	}
	for n := range 2 {
		if _, _, err := c.Replace(server(n*3+7, 0)); err != nil {
			t.Fatal(err)
		}
	}
	settle()
	for n := range contexts {
		if comp.Compile(&contexts[n]).Etag() != etags[n] {
			t.Fatalf("context %d has another etag where nothing has changed in the end; want comp.Compile(&contexts[n]).Etag() = etags[n]",
				n)
		}
	}
	slices.Sort(compiles)
	slices.Sort(applies)
	p99 := func(list []time.Duration) time.Duration { return list[len(list)*99/100] }
	p95 := func(list []time.Duration) time.Duration { return list[len(list)*95/100] } // the machine is shared
	end := heap()
	runtime.KeepAlive(comp)
	t.Logf("compile p50 %s p99 %s, apply p50 %s p99 %s, heap %d MB then %d MB", compiles[len(compiles)/2], p99(compiles),
		applies[len(applies)/2], p99(applies), start>>20, end>>20)
	if p95(compiles) >= 10*time.Millisecond || p95(applies) >= 25*time.Millisecond {
		t.Errorf("compile p95 %s, apply p95 %s; want p95(compiles) less than 10 * time.Millisecond, p95(applies) less than 25 * "+
			"time.Millisecond", p95(compiles), p95(applies))
	}
	if end > start+start/20 {
		t.Errorf("the heap grew from %d to %d bytes; want end at most start + start/20", start, end)
	}
}
