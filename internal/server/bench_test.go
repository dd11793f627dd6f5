package server_test

import (
	"os/exec"
	"slices"
	"testing"
	"time"
)

// BenchmarkRun is a slash command from the request to the answer, its program in the
// strongest sandbox there is, against plain fork and exec of the same program in the
// same run: everything but the tool must stay within 50 ms.
func BenchmarkRun(b *testing.B) {
	n := serve(b, b.TempDir(), "JUNCTOR_EXTENSIONS_CALLS_PER_MINUTE=1000000", "JUNCTOR_EXTENSIONS_BURST=1000000")
	if err := n.install(b, sayPackage(b, "1.0.0")); err != nil {
		b.Fatal(err)
	}
	if err := n.enableSay(b); err != nil {
		b.Fatal(err)
	}
	var with, plain []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := exec.Command("/bin/echo", "x").Run(); err != nil {
			b.Fatal(err)
		}
		plain = append(plain, time.Since(began))
		began = time.Now()
		if out, err := n.say(b, "/say hello x"); err != nil || out != "x\n" {
			b.Fatalf("output = %q, error %v, want \"x\\n\"", out, err)
		}
		with = append(with, time.Since(began))
		time.Sleep(40 * time.Millisecond) // as people and models pause between calls
	}
	slices.Sort(with)
	slices.Sort(plain)
	at := func(list []time.Duration, share int) float64 {
		return float64(list[len(list)*share/100]) / float64(time.Millisecond)
	}
	b.ReportMetric(at(plain, 50), "plain-p50-ms")
	for _, share := range []int{50, 95, 99} {
		b.ReportMetric(at(with, share)-at(plain, 50), map[int]string{50: "added-p50-ms", 95: "added-p95-ms", 99: "added-p99-ms"}[share])
	}
}
