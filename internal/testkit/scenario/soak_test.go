//go:build soak

package scenario_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestSoakChaos is the chaos test at length: ten minutes, or what JUNCTORTEST_SOAK says.
func TestSoakChaos(t *testing.T) {
	long := 10 * time.Minute
	if text := os.Getenv("JUNCTORTEST_SOAK"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	rage(t, uint64(time.Now().UnixNano()), 8, long)
}

// say prints them and holds the worst to a bound.
func (f *figures) say(t *testing.T, what string, most time.Duration) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.times)
	n := len(f.times)
	t.Logf("%s: %d times, p50 %s, worst %s (bound %s)", what, n, f.times[n/2].Round(time.Millisecond), f.times[n-1].Round(time.Millisecond),
		most)
	if f.times[n-1] > most {
		t.Errorf("%s took %s, more than %s; want f.times[n-1] at most %v", what, f.times[n-1], most, most)
	}
}

// until is how long a status takes to become another one, seen by a client that polls
// again and again.
func (p *plane) until(t *testing.T, id string, ok func(status string) bool) time.Duration {
	t.Helper()
	return eventually(t, id+" is otherwise", func() bool { return ok(p.status(t, id)) })
}

// TestSoakPresenceFigures measures how soon it is known that a node is gone, with the
// settings that people have who set nothing (docs/performance.md).
func TestSoakPresenceFigures(t *testing.T) {
	p := serve(t, t.TempDir(), "")
	const each = 6
	var dying, frozen []*real
	for i := range each {
		dying = append(dying, p.joinReal(t, t.TempDir(), fmt.Sprintf("dying-%d", i)))
		frozen = append(frozen, p.joinReal(t, t.TempDir(), fmt.Sprintf("frozen-%d", i)))
	}
	var suspect, unlisted, silent figures
	var all sync.WaitGroup
	for i, d := range frozen {
		all.Go(func() {
			<-time.After(time.Duration(i) * 5 * time.Second / each) // at any point between two heartbeats
			_ = d.cmd.Process.Signal(syscall.SIGSTOP)
			silent.add(p.until(t, d.id, func(status string) bool { return status == "" }))
		})
	}
	for _, d := range dying {
		_ = d.cmd.Process.Kill()
		died := time.Now()
		suspect.add(p.until(t, d.id, func(status string) bool { return status != "connected" }))
		p.until(t, d.id, func(status string) bool { return status == "" })
		unlisted.add(time.Since(died))
	}
	all.Wait()
	suspect.say(t, "killed, not routed to any more", 250*time.Millisecond)
	unlisted.say(t, "killed, unlisted (grace 5 s)", 6*time.Second)
	silent.say(t, "frozen, unlisted", 25*time.Second)
	var back figures
	for _, d := range frozen {
		_ = d.cmd.Process.Signal(syscall.SIGCONT)
		back.add(p.until(t, d.id, func(status string) bool { return status == "connected" }))
	}
	back.say(t, "thawed, listed again", 30*time.Second)
}
