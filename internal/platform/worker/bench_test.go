//go:build linux

package worker_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/worker"
)

// BenchmarkCall compares one call of pushed code with plain fork and exec of a
// program that does nothing, one after the other in the same run. The process is a
// small one; the product's takes some milliseconds more to start, because more
// packages begin in it.
func BenchmarkCall(b *testing.B) {
	for name, cfg := range map[string]sandbox.Config{"spares": {Spares: 2}, "cold": {}} {
		b.Run("javascript-"+name, func(b *testing.B) {
			box := sandbox.New(cfg)
			defer box.Close()
			if f := box.Facts(); f.NoT3 != "" {
				b.Skipf("SKIPPED: %s", f.NoT3)
			}
			r := worker.New(worker.Config{Walls: at{box, sandbox.T3}})
			job := worker.Job{
				Language: "js", Code: []byte("function main(i) { return i.args.length }"), Input: json.RawMessage(`{"args":[1,2]}`),
				Floor: sandbox.T3,
			}
			var with, plain []time.Duration
			for b.Loop() {
				began := time.Now()
				if err := exec.Command("/bin/true").Run(); err != nil {
					b.Fatal(err)
				}
				plain = append(plain, time.Since(began))
				began = time.Now()
				if got, err := r.Run(b.Context(), job); err != nil || string(got.Value) != "2" {
					b.Fatalf(`%v; want no error, string(got.Value) = "2"`, err)
				}
				with = append(with, time.Since(began))
				time.Sleep(40 * time.Millisecond) // a new spare gets ready, as between calls that people and models make
			}
			slices.Sort(with)
			slices.Sort(plain)
			ms := func(list []time.Duration, share int) float64 {
				return float64(list[len(list)*share/100]) / float64(time.Millisecond)
			}
			b.ReportMetric(ms(plain, 50), "plain-p50-ms")
			b.ReportMetric(ms(with, 50), "call-p50-ms")
			b.ReportMetric(ms(with, 99), "call-p99-ms")
		})
	}
}
