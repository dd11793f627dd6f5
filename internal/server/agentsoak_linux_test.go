//go:build soak

package server_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSoakTerminals runs 50 sessions that together print 200 KB a second, for ten minutes or
// SOAK_AGENTS (such as 3m). The server must use less than one core, and its memory must not
// grow after the first minute, when the buffers of each session are full.
func TestSoakTerminals(t *testing.T) {
	const (
		agents = 50
		each   = 4_000 // bytes a second
		slack  = 32 << 10
	)
	long := 10 * time.Minute
	if text := os.Getenv("SOAK_AGENTS"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	_, env := agentHome(t)
	n := serve(t, t.TempDir(), append(env, "JUNCTOR_AGENTS_MAX_SESSIONS="+strconv.Itoa(agents))...)
	began := time.Now()
	var ids []string
	for i := range agents {
		ids = append(ids, n.spawnAgent(t, fmt.Sprintf(`{"agentType":"claude","task":"stream %d","metadata":{"label":"soak %d"}}`, each, i)).ID)
	}
	t.Logf("FIGURES %d sessions are spawned in %s", agents, time.Since(began).Round(time.Millisecond))
	for _, id := range ids {
		eventually(t, "it works", func() bool { return n.shown(t, id).Status == "busy" })
	}
	pid := n.Process.Pid
	<-time.After(time.Minute)
	before, spent, at := resident(t, pid), processor(t, pid), time.Now()
	printed := n.printed(t, ids)
	most := before
	for end := time.Now().Add(long - time.Minute); time.Now().Before(end); {
		<-time.After(long / 100)
		most = max(most, resident(t, pid))
	}
	after, elapsed := resident(t, pid), time.Since(at)
	cores := (processor(t, pid) - spent).Seconds() / elapsed.Seconds()
	rate := float64(n.printed(t, ids)-printed) / elapsed.Seconds()
	t.Logf("FIGURES %d sessions print %.0f KB/s for %s: %.2f cores; %d MiB in memory before, %d after, %d at most", agents, rate/1000,
		elapsed.Round(time.Second), cores, before>>10, after>>10, most>>10)
	if rate < agents*each*8/10 {
		t.Errorf("they print %.0f bytes a second; want rate at least agents * each * 8 / 10", rate)
	}
	if cores >= 1 {
		t.Errorf("the server takes %.2f cores; want cores less than 1", cores)
	}
	if after > before+slack {
		t.Errorf("it had %d KiB, and has %d; want after at most before + slack", before, after)
	}
	for _, id := range ids {
		if s := n.shown(t, id); s.Status != "busy" {
			t.Errorf(`%s is %s; want s.Status = "busy"`, id, s.Status)
		}
	}
	n.terminate(t)
}

// printed is how many bytes sessions have printed together.
func (n *node) printed(t *testing.T, ids []string) (total uint64) {
	t.Helper()
	for _, id := range ids {
		a := n.request(t, "GET", "/api/coding-agents/"+id+"/buffered-output?since=1", n.token(t, "admin"), "")
		_, rest, _ := strings.Cut(a.body, `"seq":`)
		digits, _, _ := strings.Cut(rest, ",")
		seq, err := strconv.ParseUint(strings.TrimRight(digits, "}\n"), 10, 64)
		if err != nil {
			t.Fatalf("%v: %.200s", err, a.body)
		}
		total += seq
	}
	return total
}

// resident is what a process has in memory, in KiB.
func resident(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// processor is the time that a process has had, without its children's.
func processor(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	total := 0
	for _, f := range fields[11:13] { // user and system, in hundredths
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return time.Duration(total) * 10 * time.Millisecond
}
