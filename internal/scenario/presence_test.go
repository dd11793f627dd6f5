package scenario_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/client"
)

// figures are times of one kind.
type figures struct {
	mu    sync.Mutex
	times []time.Duration
}

func (f *figures) add(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.times = append(f.times, d)
}

// say prints them and holds the worst to a bound.
func (f *figures) say(t *testing.T, what string, most time.Duration) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.times)
	n := len(f.times)
	t.Logf("%s: %d times, p50 %s, worst %s (bound %s)", what, n, f.times[n/2].Round(time.Millisecond), f.times[n-1].Round(time.Millisecond), most)
	if f.times[n-1] > most {
		t.Errorf("%s took %s, more than %s", what, f.times[n-1], most)
	}
}

// until is how long a status takes to become another one, seen by somebody who asks
// again and again.
func (p *plane) until(t *testing.T, id string, ok func(status string) bool) time.Duration {
	t.Helper()
	return eventually(t, id+" is otherwise", 60*time.Second, func() bool { return ok(p.status(t, id)) })
}

// TestPresenceFigures measures how soon it is known that a node is gone, with the
// settings that people have who set nothing (docs/performance.md).
func TestPresenceFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	t.Parallel()
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

// watching keeps the ids of the nodes whose joining a watch has shown.
func (p *plane) watching(t *testing.T) func(id string) bool {
	t.Helper()
	var mu sync.Mutex
	seen := make(map[string]bool)
	go func() { // ends with the test's context
		for line, err := range p.admin.Lines(t.Context(), http.MethodGet, "/api/v1/nodes/watch", nil) {
			if err != nil {
				return
			}
			if e, ok := readSight(line); ok && e.NodeID != "" {
				mu.Lock()
				seen[e.NodeID] = true
				mu.Unlock()
			}
		}
	}()
	return func(id string) bool {
		mu.Lock()
		defer mu.Unlock()
		return seen[id]
	}
}

func TestTheBusOfTwoGatewaysComesAndGoes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.gateway(0), c.gateway(1)
	d := whole(a, b).join(t, options{id: "a", before: func(d *device) { d.says("hello", "hi") }})
	answers := func(p *plane, timeout string) error {
		return p.admin.Invoke(t.Context(), client.Invocation{Target: "device.function.invoke", Input: []byte(`{"function":"hello"}`), Select: map[string]string{"node": "a"}, Timeout: timeout}, nil)
	}
	b.known(t, "a")
	seen := b.watching(t)
	eventually(t, "the watch shows what is there", 5*time.Second, func() bool { return seen("a") })

	for i, s := range c.servers { // one after the other, as it is done to upgrade them
		s.kill()
		for name, p := range map[string]*plane{"A": a, "B": b} {
			took := eventually(t, "calls are answered without server "+fmt.Sprint(i), 15*time.Second, func() bool { return answers(p, "2s") == nil })
			t.Logf("without server %d calls to %s were answered after %s", i, name, took.Round(time.Millisecond))
		}
		s.run()
		eventually(t, "calls are answered", 15*time.Second, func() bool { return answers(a, "2s") == nil && answers(b, "2s") == nil })
	}

	for _, s := range c.servers {
		s.kill()
	}
	for range 3 { // nothing hangs, and it is said what is wrong
		began := time.Now()
		if err := answers(a, "2s"); err == nil || time.Since(began) > 4*time.Second {
			t.Errorf("without a bus: %v after %s", err, time.Since(began))
		}
	}
	late := a.device(t, options{id: "late"})
	var all sync.WaitGroup
	for _, s := range c.servers { // each waits for the others
		all.Go(s.run)
	}
	all.Wait()
	up := time.Now()
	for name, p := range map[string]*plane{"A": a, "B": b} {
		eventually(t, "calls are answered again", 20*time.Second, func() bool { return answers(p, "2s") == nil })
		t.Logf("calls to %s are answered %s after the servers are up", name, time.Since(up).Round(time.Millisecond))
	}
	<-late.Joined()
	joined := time.Now()
	took := eventually(t, "the watch of B shows who joined after it", 10*time.Second, func() bool { return seen("late") })
	t.Logf("who waited for the bus joined %s after it was up, and the watch of B showed it %s later; the first node joined %d times", joined.Sub(up).Round(time.Millisecond), took.Round(time.Millisecond), d.Status().Joins)
	if took > time.Second {
		t.Errorf("the watch recovered within %s, more than 1 s", took)
	}
}

// sight is a line of a watch.
type sight struct {
	Event  string
	NodeID string `json:"node_id"`
}

func readSight(line []byte) (s sight, ok bool) {
	err := json.Unmarshal(line, &s)
	return s, err == nil
}
