package console

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/nodes/node"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// The three lists that grow with an installation. Their sizes are those of CONSOLE_TOOLS, CONSOLE_NODES and
// CONSOLE_RECORDS, or such that each has more than a page.
func TestLongLists(t *testing.T) {
	program := build(t)
	tools, nodes, records := size("CONSOLE_TOOLS", 2000), size("CONSOLE_NODES", 250), size("CONSOLE_RECORDS", 3000)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	home := filepath.Join(t.TempDir(), "home")
	writeRecords(ctx, t, home, records)
	address, _ := serve(ctx, t, program, home, "127.0.0.1:0")
	admin := dial(t, address, home, "admin")
	joinNodes(ctx, t, admin, address, nodes)
	offerTools(ctx, t, admin, tools)
	if err := admin.Do(ctx, http.MethodGet, "/api/v1/audit?user=agent:rare&limit=1", nil, nil); err != nil { // the index is made now
		t.Fatalf("reading the audit: %v", err)
	}

	settle(ctx, t, admin)

	var link struct{ URL string }
	if err := admin.Do(ctx, http.MethodPost, "/api/v1/console/codes", nil, &link); err != nil {
		t.Fatalf("asking for a link: %v", err)
	}
	driver := exec.CommandContext(ctx, "node", "lists.mjs", link.URL)
	driver.Stderr = os.Stderr
	out, err := driver.StdoutPipe()
	if err == nil {
		err = driver.Start()
	}
	if err != nil {
		t.Fatalf("starting the browser's script: %v", err)
	}
	wanted := map[string]int{"tools": tools, "nodes": nodes, "records": records}
	for scan := bufio.NewScanner(out); scan.Scan(); {
		var seen struct {
			List                           string
			Row, Filter, Longest           float64 // milliseconds
			Total, Shown, Matches, Largest int     // Total is 0 if the page does not count them
		}
		if err := json.Unmarshal(scan.Bytes(), &seen); err != nil {
			t.Fatalf("the script's answer: %v in %s", err, scan.Text())
		}
		total := wanted[seen.List]
		delete(wanted, seen.List)
		t.Logf("of %d %s: the first row after %.0f ms, a filter after %.0f ms, the longest task while %d rows are scrolled %.0f ms, the largest answer %d bytes",
			total, seen.List, seen.Row, seen.Filter, seen.Shown, seen.Longest, seen.Largest)
		if seen.Total != 0 && seen.Total < total || seen.Shown < min(total, 10_000) || seen.Matches == 0 || seen.Largest > 1<<20 {
			t.Errorf("%s: got %d, %d shown, %d that match, an answer of %d bytes; want %d, %d, some and 1 MiB at most",
				seen.List, seen.Total, seen.Shown, seen.Matches, seen.Largest, total, min(total, 10_000))
		}
		if seen.Row > atMost(500) || seen.Filter > atMost(200) || seen.Longest > atMost(100) {
			t.Errorf("%s: got a row after %.0f ms, a filter after %.0f ms, a task of %.0f ms; want %.0f ms, %.0f ms and %.0f ms at most",
				seen.List, seen.Row, seen.Filter, seen.Longest, atMost(500), atMost(200), atMost(100))
		}
	}
	if err := driver.Wait(); err != nil || len(wanted) > 0 {
		t.Errorf("the browser's script: got %v, without %v, want all lists", err, wanted)
	}
}

// settle waits until the catalog has not changed for five seconds: the joins are over.
func settle(ctx context.Context, t *testing.T, admin *client.Client) {
	t.Helper()
	since, last := time.Now(), uint64(0)
	for time.Since(since) < 5*time.Second {
		var now struct{ Generation uint64 }
		if err := admin.Do(ctx, http.MethodGet, "/api/v1/catalog/agent?action=none", nil, &now); err != nil {
			t.Fatalf("reading the catalog: %v", err)
		}
		if now.Generation != last {
			since, last = time.Now(), now.Generation
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the catalog changes all the time, want that it settles after the joins")
		}
	}
}

// size returns a number of the environment, or the usual one.
func size(variable string, usual int) int {
	n, _ := strconv.Atoi(os.Getenv(variable))
	return max(n, usual)
}

// writeRecords has the log of a home begin with the records of calls, one of 1000 by agent:rare.
func writeRecords(ctx context.Context, t *testing.T, home string, count int) {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	err := os.MkdirAll(filepath.Join(home, "state"), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(home, "state", "audit.key"), key, 0o600)
	}
	if err != nil {
		t.Fatalf("writing the key of the audit: %v", err)
	}
	segments, err := segment.Open(filepath.Join(home, "audit"), segment.Config{})
	if err != nil {
		t.Fatalf("opening the segments: %v", err)
	}
	log, err := audit.Open(ctx, audit.Config{Segments: segments, Key: key})
	if err != nil {
		t.Fatalf("opening the log: %v", err)
	}
	for i := range count {
		r := audit.Record{
			Event: audit.CapabilityExecuted, Action: "fs.readText", User: "agent:busy", Success: audit.OutcomeSuccess,
			Metadata: audit.Metadata{RunID: fmt.Sprintf("run_%d", i), CanonicalAction: "fs.readText", Surface: "mcp"},
		}
		if i%1000 == 0 {
			r.User = "agent:rare"
		}
		if _, err := log.Append(ctx, r, audit.Buffered); err != nil {
			t.Fatalf("appending record %d: %v", i, err)
		}
	}
	if err := errors.Join(log.Close(), segments.Close()); err != nil {
		t.Fatalf("closing the log: %v", err)
	}
}

// offerTools connects endpoints with so many tools in all.
func offerTools(ctx context.Context, t *testing.T, admin *client.Client, tools int) {
	t.Helper()
	const perModule, perEndpoint = 500, 20_000 // a manifest has 4 MiB at most
	for from := 0; from < tools; from += perEndpoint {
		var modules []host.Module
		for m := from; m < min(from+perEndpoint, tools); m += perModule {
			one := host.Module{ID: fmt.Sprintf("many%d", m), Name: fmt.Sprintf("@test/many%d", m)}
			for i := range perModule {
				one.Actions = append(one.Actions, host.Action{
					Name: fmt.Sprintf("TOOL_%d", m+i), Description: "One of many tools, with a description of a usual length.",
					Handle: func(context.Context, json.RawMessage, json.RawMessage) (host.ActionResult, error) {
						return host.ActionResult{}, nil
					},
				})
			}
			modules = append(modules, one)
		}
		endpoint, err := host.NewEndpoint(modules...)
		if err != nil {
			t.Fatalf("an endpoint with many tools: %v", err)
		}
		far := httptest.NewServer(endpoint.Handler(secret.New("")))
		t.Cleanup(far.Close)
		if err := admin.Do(ctx, http.MethodPost, "/api/capability-router/connect", map[string]any{
			"endpoint": map[string]any{"id": fmt.Sprintf("many%d", from), "baseUrl": far.URL},
		}, nil); err != nil {
			t.Fatalf("connecting an endpoint: %v", err)
		}
	}
}

// joinNodes has so many nodes join, which leave at the end of the test. Each has the same function.
func joinNodes(ctx context.Context, t *testing.T, admin *client.Client, address string, count int) {
	t.Helper()
	var made struct{ Token string }
	if err := admin.Do(ctx, http.MethodPost, "/api/v1/tokens", map[string]any{"role": "node"}, &made); err != nil {
		t.Fatalf("making a token of nodes: %v", err)
	}
	connect, err := natsdial.Dialer(address, nil)
	if err != nil {
		t.Fatalf("a dialer to %s: %v", address, err)
	}
	table := functions.New(0)
	if err := table.Register(functions.Function{
		Name: "measure", Description: "Measures something.", Effect: cmp.EffectRead,
		Handle: func(context.Context, functions.Call) (json.RawMessage, error) { return json.RawMessage("1"), nil },
	}, false); err != nil {
		t.Fatalf("registering a function: %v", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	joining := make(chan error, count)
	atOnce := make(chan struct{}, 64)
	for i := range count {
		id := fmt.Sprintf("node-%05d", i)
		n, err := node.New(node.Config{
			Dial: connect, Token: secret.New(made.Token), ID: id, Software: wire.Software{Name: "test", Version: "1"},
			Functions: table, Executor: functions.NewExecutor(functions.Config{Node: id, Functions: table}),
			Figures: func() (cpu, mem, gpu float64) { return 10, 10, 0 },
		})
		if err != nil {
			t.Fatalf("node %s: %v", id, err)
		}
		atOnce <- struct{}{}
		running.Go(func() {
			ended := make(chan error, 1)
			go func() { ended <- n.Run(ctx) }()
			select {
			case <-n.Joined():
				joining <- nil
				<-atOnce
				<-ended
			case err := <-ended:
				joining <- err
				<-atOnce
			}
		})
	}
	for range count {
		if err := <-joining; err != nil {
			t.Fatalf("joining: %v", err)
		}
	}
}

// atMost returns a limit of milliseconds that an idle machine keeps, with CONSOLE_TIMES=1. Other tests run beside
// this one otherwise, so the page may take any time.
func atMost(idle float64) float64 {
	if os.Getenv("CONSOLE_TIMES") != "" {
		return idle
	}
	return math.Inf(1)
}
