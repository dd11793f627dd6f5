package scenario_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
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
		return p.admin.Invoke(t.Context(), client.Invocation{
			Target: "device.function.invoke", Input: []byte(`{"function":"hello"}`),
			Select: map[string]string{"node": "a"}, Timeout: timeout,
		}, nil)
	}
	b.known(t, "a")
	seen := b.watching(t)
	eventually(t, "the watch shows what is there", func() bool { return seen("a") })

	for i, s := range c.servers { // one after the other, as it is done to upgrade them
		s.kill()
		for name, p := range map[string]*plane{"A": a, "B": b} {
			took := eventually(t, "calls are answered without server "+fmt.Sprint(i),
				func() bool { return answers(p, "2s") == nil })
			t.Logf("without server %d calls to %s were answered after %s", i, name, took.Round(time.Millisecond))
		}
		s.run()
		eventually(t, "calls are answered", func() bool { return answers(a, "2s") == nil && answers(b, "2s") == nil })
	}

	for _, s := range c.servers {
		s.kill()
	}
	for range 3 { // nothing hangs, and it is said what is wrong
		began := time.Now()
		if err := answers(a, "2s"); err == nil || time.Since(began) > hangTimeout {
			t.Errorf("without a bus: %v after %s; want an error, time.Since(began) at most hangTimeout", err, time.Since(began))
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
		eventually(t, "calls are answered again", func() bool { return answers(p, "2s") == nil })
		t.Logf("calls to %s are answered %s after the servers are up", name, time.Since(up).Round(time.Millisecond))
	}
	<-late.Joined()
	joined := time.Now()
	took := eventually(t, "the watch of B shows who joined after it", func() bool { return seen("late") })
	t.Logf("who waited for the bus joined %s after it was up, and the watch of B showed it %s later; the first node joined %d times",
		joined.Sub(up).Round(time.Millisecond), took.Round(time.Millisecond), d.Status().Joins)
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
