package segment

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

func benchLog(b *testing.B) *audit.Log {
	b.Helper()
	dir := b.TempDir()
	segs, err := Open(filepath.Join(dir, "audit"), Config{})
	ok(b, err)
	logs, err := OpenMirror(filepath.Join(dir, "logs"), MirrorConfig{})
	ok(b, err)
	l, err := audit.Open(b.Context(), audit.Config{Segments: segs, Mirror: logs, Gateway: "gw", Home: "/home/ann", Key: make([]byte, 32)})
	ok(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = l.Run(ctx) })
	b.Cleanup(func() {
		cancel()
		run.Wait()
		_ = l.Close()
	})
	return l
}

// BenchmarkAppendSynced has the budget of 20,000 durable records/s grouped and
// 1 ms median alone.
func BenchmarkAppendSynced(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) { benchAppend(b, writers, audit.Synced) })
	}
}

func BenchmarkAppendWritten(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) { benchAppend(b, writers, audit.Written) })
	}
}

func benchAppend(b *testing.B, writers int, d audit.Durability) {
	l := benchLog(b)
	r := record(audit.CapabilityExecuted, "run_0123456789abcdef01234567", capability.EffectWrite)
	var left atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, writers)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				start := time.Now()
				if _, err := l.Append(context.Background(), r, d); err != nil {
					b.Error(err)
					return
				}
				took[w] = append(took[w], time.Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds())/1e3, "p99-µs")
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "records/s")
}
