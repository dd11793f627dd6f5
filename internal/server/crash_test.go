package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
)

// An endpoint that is killed in the middle of a call costs that call, with one
// typed error and a closed record, and nothing else. When it is back on its
// port, the next call finds it.
func TestKilledEndpointFailsOneCall(t *testing.T) {
	n := serve(t, t.TempDir())
	victim, other := spawn(t, "endpoint", nil, "127.0.0.1:0", "victim"), spawn(t, "endpoint", nil, "127.0.0.1:0", "other")
	n.connect(t, "victim", victim.first, true)
	n.connect(t, "other", other.first, true)

	mark := filepath.Join(t.TempDir(), "called")
	failed := make(chan error, 2)
	go func() {
		var out client.Invoked
		failed <- n.admin.Invoke(t.Context(), client.Invocation{
			Target: "victim:action:HANG", Input: json.RawMessage(fmt.Sprintf(`{"file":%q}`, mark)),
		}, &out)
	}()
	eventually(t, "the endpoint is called", func() bool { return exists(mark) })
	victim.kill()
	err := <-failed
	if code := capability.CodeOf(err); code != capability.CodeFailed {
		t.Errorf("the interrupted call ended as %s (%v), want failed: it was sent, and nobody knows what came of it", code, err)
	}

	begins, ends := n.records(t, "event=capability_started"), n.records(t, "event=capability_failed")
	if len(begins) != 1 || len(ends) != 1 || begins[0].Metadata.RunID != ends[0].Metadata.RunID {
		t.Errorf("records of the interrupted call: begins %+v, ends %+v; want len(begins) = 1, len(ends) = 1, "+
			"begins[0].Metadata.RunID = ends[0].Metadata.RunID", begins, ends)
	}
	if len(ends) == 1 && ends[0].Metadata.Code != string(capability.CodeFailed) {
		t.Errorf("its end has code %q; want not (len(ends) == 1 && ends[0].Metadata.Code != string(capability.CodeFailed))",
			ends[0].Metadata.Code)
	}

	ping := func(endpoint string) error {
		var out client.Invoked
		return n.admin.Invoke(t.Context(), client.Invocation{Target: endpoint + ":action:PING"}, &out)
	}
	if err := ping("other"); err != nil {
		t.Errorf("another endpoint suffers: %v", err)
	}
	var out client.Invoked
	if err := n.admin.Invoke(t.Context(), client.Invocation{Target: "fs.list"}, &out); err != nil {
		t.Errorf("the local files suffer: %v", err)
	}
	if code := capability.CodeOf(ping("victim")); code != capability.CodeUnavailable {
		t.Errorf("a call to the dead endpoint is %s, want unavailable", code)
	}

	spawn(t, "endpoint", nil, strings.TrimPrefix(victim.first, "http://"), "victim")
	if err := ping("victim"); err != nil {
		t.Errorf("the first call after the endpoint came back: %v", err)
	}
	n.verify(t)
}

// answered is a call the server has answered, with a result or a refusal.
type answered struct {
	id             string
	write, refused bool
}

// TestKilledServerLosesNothingAnswered kills the server under a thousand calls
// at once, ten times over on one home.
func TestKilledServerLosesNothingAnswered(t *testing.T) {
	t.Parallel()
	rounds := 4 // TestSoakKills has 100
	if testing.Short() {
		rounds = 2
	}
	killAgainAndAgain(t, rounds, 1000)
}

func killAgainAndAgain(t *testing.T, rounds, calls int) {
	t.Helper()
	home := t.TempDir()
	ep := spawn(t, "endpoint", nil, "127.0.0.1:0", "trial")
	n := serve(t, home)
	n.connect(t, "far", ep.first, true)
	var all []answered
	for round := range rounds {
		all = append(all, killUnder(t, n, round, calls)...)
		n = serve(t, home)
		n.verify(t)
		if t.Failed() {
			return
		}
	}
	n.terminate(t)
	checkLog(t, home, all)
	t.Logf("%d calls were answered in %d rounds", len(all), rounds)
}

const killGrace = time.Minute

// killUnder sends calls and kills the server when a part of them is answered.
func killUnder(t *testing.T, n *node, round, calls int) []answered {
	t.Helper()
	var mu sync.Mutex
	var got []answered
	killAt := calls/20 + round%11*calls/12
	reached := make(chan struct{})
	work := make(chan int)
	var wg sync.WaitGroup
	transport := &http.Transport{MaxIdleConnsPerHost: calls}
	defer transport.CloseIdleConnections()
	tokens := map[string]string{"admin": n.token(t, "admin"), "agent": n.token(t, "agent")}
	for range calls {
		wg.Go(func() {
			for i := range work {
				role, inv := mixed(round, i)
				id, refused := n.answer(t, transport, tokens[role], inv)
				if id == "" {
					continue // the server was killed first
				}
				mu.Lock()
				got = append(got, answered{id, inv.Target != "fs.list", refused})
				if len(got) == killAt {
					close(reached)
				}
				mu.Unlock()
			}
		})
	}
	for i := range calls {
		work <- i
	}
	close(work)
	ended := make(chan struct{})
	go func() {
		wg.Wait()
		close(ended)
	}()
	select {
	case <-reached:
	case <-ended:
		t.Errorf("round %d: only %d calls were answered", round, len(got))
	}
	n.kill()
	<-ended
	if len(got) == 0 {
		t.Errorf("round %d: nothing was answered; want len(got) other than 0", round)
	}
	return got
}

// answer sends one call and reads its whole answer: the invocation's id, or ""
// when there was no answer.
func (n *node) answer(t *testing.T, transport http.RoundTripper, token string, inv client.Invocation) (id string, refused bool) {
	body, err := json.Marshal(inv)
	if err != nil {
		t.Error(err)
		return "", false
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.url+"/api/v1/invocations", bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return "", false
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", false
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", false
	}
	var out struct{ Invocation struct{ ID string } }
	if err := json.Unmarshal(data, &out); err != nil || out.Invocation.ID == "" {
		t.Errorf(`%d %s: %v; want no error, out.Invocation.ID other than ""`, resp.StatusCode, data, err)
	}
	return out.Invocation.ID, resp.StatusCode != http.StatusOK
}

// mixed is the i-th call of a round: an agent's or the admin's, a read, a write
// or a call to the endpoint.
func mixed(round, i int) (role string, inv client.Invocation) {
	switch i % 5 {
	case 0:
		return "agent", client.Invocation{Target: "fs.list"}
	case 1:
		return "admin", client.Invocation{Target: "fs.list"}
	case 2:
		return "agent", client.Invocation{Target: "fs.writeText", Input: json.RawMessage(`{"path":"never.txt","text":"x"}`)}
	case 3:
		return "admin", client.Invocation{Target: "trial:action:PING", Input: json.RawMessage(`{}`)}
	default:
		input := fmt.Sprintf(`{"path":"r%d-%d.txt","text":"x"}`, round, i%50)
		return "admin", client.Invocation{Target: "fs.writeText", Input: json.RawMessage(input)}
	}
}

// checkLog reads the files themselves: each answered call has its end in the
// log, and each begin has exactly one.
func checkLog(t *testing.T, home string, all []answered) {
	t.Helper()
	begins, ends := make(map[string]int), make(map[string]int)
	names, err := filepath.Glob(filepath.Join(home, "audit", "*.jsonl"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no audit files: %v; want no error, len(names) other than 0", err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var r record
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				t.Fatalf("%s: %v", lines.Bytes(), err)
			}
			switch r.Event {
			case "capability_started":
				begins[r.Metadata.RunID]++
			case "capability_executed", "capability_failed", "capability_timeout", "capability_cancelled", "permission_denied",
				"approval_required":
				if r.Metadata.RunID != "" {
					ends[r.Metadata.RunID]++
				}
			}
		}
	}
	for _, a := range all {
		if ends[a.id] != 1 {
			t.Errorf("the answered call %s has %d ends in the log; want ends[a.id] = 1", a.id, ends[a.id])
		}
		if a.write && !a.refused && begins[a.id] != 1 {
			t.Errorf("the answered call %s has %d begins in the log; want not (a.write && !a.refused && begins[a.id] != 1)",
				a.id, begins[a.id])
		}
	}
	for id, n := range begins {
		if n != 1 || ends[id] != 1 {
			t.Errorf("%s has %d begins and %d ends; want n = 1, ends[id] = 1", id, n, ends[id])
		}
	}
}
