//go:build linux

package sandbox

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// BenchmarkSpawn compares a confined run of a program that does nothing with
// plain fork and exec, one after the other in the same run: the target
// is 3 ms more at the median when the machine is idle.
func BenchmarkSpawn(b *testing.B) {
	work := b.TempDir()
	if err := os.Chmod(work, 0o755); err != nil {
		b.Fatal(err)
	}
	run := func(tier Tier, cfg Config) func(*testing.B) {
		return func(b *testing.B) {
			box := New(cfg)
			defer box.Close()
			if f := box.Facts(); tier == T3 && f.NoT3 != "" || tier == T2 && f.NoT2 != "" {
				b.Skipf("SKIPPED: %s %s", f.NoT3, f.NoT2)
			}
			measure(b, func() error {
				_, err := box.Run(b.Context(), Spec{Path: "/bin/true"}, Confinement{Work: work, MinTier: tier, MaxTier: tier})
				return err
			})
		}
	}
	off := map[string]string{LayerCgroup: "to see what it costs"}
	for _, tier := range []Tier{T3, T2} {
		b.Run(tier.String(), run(tier, Config{Spares: 2}))
		b.Run(tier.String()+"-without-cgroup", run(tier, Config{Spares: 2, Off: off}))
		b.Run(tier.String()+"-cold", run(tier, Config{}))
	}
	b.Run("T1", func(b *testing.B) {
		measure(b, func() error {
			_, err := Run(b.Context(), Spec{Path: "/bin/true"})
			return err
		})
	})
}

// spareDelay lets a new spare get ready, as it has time to between calls that people
// and models make.
const spareDelay = 40 * time.Millisecond

// measure alternates with plain fork and exec and reports what is added at the
// median and at the 99th percentile.
func measure(b *testing.B, confined func() error) {
	var with, plain []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
		plain = append(plain, time.Since(began))
		began = time.Now()
		if err := confined(); err != nil {
			b.Fatal(err)
		}
		with = append(with, time.Since(began))
		time.Sleep(spareDelay)
	}
	slices.Sort(with)
	slices.Sort(plain)
	at := func(list []time.Duration, share int) float64 {
		return float64(list[len(list)*share/100]) / float64(time.Millisecond)
	}
	b.ReportMetric(at(plain, 50), "plain-p50-ms")
	b.ReportMetric(at(with, 50)-at(plain, 50), "added-p50-ms")
	b.ReportMetric(at(with, 99)-at(plain, 99), "added-p99-ms")
}
