package scenario_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/testkit/porttest"
)

// mayhem is one server with devices, all of them the binary in a home of its own,
// and what is done to them.
type mayhem struct {
	t       testing.TB
	random  *rand.Rand
	env     []string
	address string

	mu      sync.Mutex // held while a process is another
	gateway *plane
	nodes   []*real
	logs    []string // of each node, what its action was asked for
}

// leaseTTL is after how long a silent node is gone, in these tests.
const leaseTTL = 2 * time.Second

func newMayhem(t testing.TB, seed uint64, nodes int) *mayhem {
	t.Helper()
	m := &mayhem{t: t, random: rand.New(rand.NewPCG(seed, 0)), address: porttest.Address(t)}
	m.env = []string{
		"JUNCTOR_GATEWAY_HEARTBEAT=500ms", "JUNCTOR_GATEWAY_HEARTBEAT_TIMEOUT=" + leaseTTL.String(),
		"JUNCTOR_GATEWAY_GRACE=500ms",
	}
	m.gateway = serve(t, t.TempDir(), m.address, m.env...)
	t.Cleanup(func() {
		if text := m.gateway.stderr.String(); t.Failed() {
			t.Logf("the last gateway said: …%s", text[max(0, len(text)-4000):])
		}
	})
	for i := range nodes {
		home := t.TempDir()
		m.logs = append(m.logs, filepath.Join(home, "log"))
		// One write of one line; it is there before the answer.
		action(t, home, "note", `line=$(cat); printf '%s\n' "$line" >> '`+m.logs[i]+`'; printf '`+m.id(i)+`'`)
		m.nodes = append(m.nodes, m.join(i, home))
		m.gateway.known(t, m.id(i))
		if _, err := ask(t.Context(), m.gateway.admin, "device.skill.install", map[string]any{"skill_payload": pack("s", "note")},
			m.id(i)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (*mayhem) id(i int) string { return fmt.Sprintf("n%d", i) }

func (m *mayhem) join(i int, home string) *real {
	return m.gateway.joinReal(m.t, home, m.id(i))
}

// restart puts a new process in the place of a node that has ended; a gateway that is
// away is waited for.
func (m *mayhem) restart(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[i] = m.join(i, m.nodes[i].home)
}

func (m *mayhem) serveAgain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gateway = serve(m.t, m.gateway.home, m.address, m.env...)
}

func (m *mayhem) pause(least, most time.Duration) {
	select {
	case <-time.After(least + time.Duration(m.random.Int64N(int64(most-least)))):
	case <-m.t.Context().Done():
	}
}

// freezeDelay is the longest time for which the gateway is stopped.
const freezeDelay = 1500 * time.Millisecond

// strike does one thing to one process and states what it was. Everything runs again
// when it returns.
func (m *mayhem) strike() string {
	i := m.random.IntN(len(m.nodes))
	bus := filepath.Join(m.gateway.home, "state", "nats")
	freeze := func(p *process, least, most time.Duration) {
		_ = p.cmd.Process.Signal(syscall.SIGSTOP)
		m.pause(least, most)
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
	}
	switch n := m.random.IntN(10); {
	case n < 3:
		m.nodes[i].kill()
		m.restart(i)
		return "kill a node"
	case n == 3:
		freeze(m.nodes[i].process, 10*time.Millisecond, leaseTTL/2)
		return "freeze a node for a moment"
	case n == 4:
		freeze(m.nodes[i].process, leaseTTL, 2*leaseTTL)
		return "freeze a node for longer than its lease"
	case n == 5:
		freeze(m.gateway.process, 10*time.Millisecond, freezeDelay)
		return "freeze the gateway"
	case n == 6:
		m.gateway.end(m.t)
		m.serveAgain()
		return "restart the gateway and its bus"
	case n == 7:
		m.gateway.kill()
		if err := os.RemoveAll(bus); err != nil {
			m.t.Error(err)
		}
		m.serveAgain()
		return "kill the gateway and remove its bus's folder"
	case n == 8:
		_ = os.RemoveAll(bus) // the bus may put a file into it meanwhile: that is left
		return "remove the folder of the bus while it runs"
	default:
		m.gateway.kill()
		m.serveAgain()
		return "kill the gateway"
	}
}

// load calls nodes in turn until ctx ends; every other call has a key and is repeated
// with it, as a disconnected user would.
func (m *mayhem) load(ctx context.Context, f *traffic, worker int) {
	for i := 0; ctx.Err() == nil; i++ {
		what := fmt.Sprintf("w%d-%d", worker, i)
		at := m.id((worker + i) % len(m.nodes))
		key := ""
		if i%2 == 0 {
			key = what
		}
		for range 5 {
			m.mu.Lock()
			c := m.gateway.admin
			m.mu.Unlock()
			input, _ := json.Marshal(map[string]any{"function": "user.note", "args": map[string]any{"what": what}})
			began := time.Now()
			var out client.Invoked
			err := c.Invoke(context.WithoutCancel(ctx), client.Invocation{
				Target: "device.function.invoke", Input: input, Select: map[string]string{"node": at}, IdempotencyKey: key,
				Timeout: callTimeout.String(),
			}, &out)
			f.count(m.t, what, key, err, time.Since(began))
			if err == nil && !strings.Contains(string(out.Result), at) {
				m.t.Errorf("%s was asked and %s answered; want not (err == nil && !strings.Contains(string(out.Result), at))",
					at, out.Result)
			}
			if err == nil || key == "" || ctx.Err() != nil {
				break
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// done is what the devices' own logs say.
func (m *mayhem) done() map[string]int {
	m.t.Helper()
	out := make(map[string]int)
	for _, file := range m.logs {
		data, err := os.ReadFile(file)
		if err != nil {
			m.t.Fatal(err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			if lines.Text() == "" { // its node died before it had told the action what is wanted
				continue
			}
			var asked struct{ Kwargs struct{ What string } }
			if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
				m.t.Errorf("%q %v", lines.Text(), err)
			}
			out[asked.Kwargs.What]++
		}
	}
	return out
}

// rage strikes for a while under load. Whatever was answered is in a device's log,
// exactly once; no call hangs; in the end every node is back.
func rage(t *testing.T, seed uint64, nodes int, long time.Duration) {
	t.Helper()
	t.Logf("seed %d", seed)
	m := newMayhem(t, seed, nodes)
	f := newTraffic()
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() { m.load(ctx, f, w) })
	}
	defer workers.Wait()
	defer cancel()
	struck := make(map[string]int)
	for began := time.Now(); time.Since(began) < long && t.Context().Err() == nil; {
		m.pause(50*time.Millisecond, 500*time.Millisecond)
		struck[m.strike()]++
	}
	var slowest time.Duration
	for i := range m.nodes {
		slowest += eventually(t, m.id(i)+" is back and answers", func() bool {
			out, err := ask(t.Context(), m.gateway.admin, "device.function.invoke",
				map[string]any{"function": "user.note", "args": map[string]any{"what": fmt.Sprint("end-", i, time.Now().UnixNano())}}, m.id(i))
			return err == nil && strings.Contains(string(out), m.id(i))
		})
	}
	cancel()
	workers.Wait()
	for what, n := range struck {
		t.Logf("%d × %s", n, what)
	}
	t.Logf("all nodes answered within %s of the last", slowest.Round(time.Millisecond))
	if got := m.gateway.nodes(t, m.gateway.admin, ""); len(got) != nodes {
		t.Errorf("%d nodes are listed, of %d; want len(got) = %v", len(got), nodes, nodes)
	}
	f.judge(t, m.done())
	if len(f.answered) < 10 {
		t.Errorf("there was no load; got len(f.answered) = %v; want len(f.answered) at least 10", len(f.answered))
	}
	if out, stderr, code := m.gateway.cli(t, "audit", "verify"); code != 0 {
		t.Errorf(`m.gateway.cli(t, "audit", "verify"): code = %v, want 0; out = %q; stderr = %q`, code, out, stderr)
	}
}

func TestChaos(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("JUNCTORTEST_SEED"); text != "" { // one that failed
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	rage(t, seed, 3, 20*time.Second)
}
