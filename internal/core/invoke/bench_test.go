package invoke_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// BenchmarkEngine is the path alone, without a network: Cedar, a selection
// between two providers, and the audit log on this machine's disk. A write waits
// for the disk; "write, log not flushed" shows what the engine adds to that.
func BenchmarkEngine(b *testing.B) {
	for _, bench := range []struct {
		name   string
		effect capability.Effect
		flush  bool
	}{
		{"read", capability.EffectRead, true},
		{"write", capability.EffectWrite, true},
		{"write, log not flushed", capability.EffectWrite, false},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r := newRig(b, options{})
			r.segments.lazy.Store(!bench.flush)
			do := func(context.Context, capability.Call) (capability.Result, error) {
				return capability.Result{Value: json.RawMessage(`{"ok":true}`)}, nil
			}
			r.offer("near", capability.Contribution{Action: "web.fetch", Rank: 1, Effect: bench.effect}, do)
			r.offer("far", capability.Contribution{Action: "web.fetch", Effect: bench.effect}, do)
			inv := capability.Invocation{
				Surface: "http", Principal: operator(), Input: json.RawMessage(`{"url":"https://example.org/","limit":10}`),
				Target: capability.Target{Action: "web.fetch"},
			}
			took := make([]time.Duration, 0, b.N)
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				if _, err := r.engine.Invoke(b.Context(), inv); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-µs")
		})
	}
}
