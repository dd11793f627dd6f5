package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/secret"
)

// perNode is how many entries of the catalog a node has: its seven functions and
// the door to all of them.
const perNode = 8

// idleTimeout is for how long nothing but heartbeats is measured.
const idleTimeout = time.Minute

// beServer is a server like that of `junctor serve`, which writes where its time goes
// and, beside it, what its memory holds at the end.
func beServer(home, profile string) error {
	cfg, err := config.Load(home, filepath.Join(home, "config.yaml"), false, nil, nil, nil)
	if err != nil {
		return err
	}
	cfg.Listen = "127.0.0.1:0"
	ctx, cancel := untilStopped()
	defer cancel()
	s, err := server.New(ctx, cfg, server.Options{Version: "bench"})
	if err != nil {
		return err
	}
	if profile != "" {
		stop, err := profiled(profile)
		if err != nil {
			return err
		}
		defer stop()
		heap, err := os.Create(profile + ".heap")
		if err != nil {
			return err
		}
		defer heap.Close()
		var written sync.WaitGroup
		defer written.Wait()
		written.Go(func() {
			<-ctx.Done() // while all is still there
			runtime.GC()
			if err := pprof.WriteHeapProfile(heap); err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
		})
	}
	return s.Run(ctx, func(line server.ReadyLine) error { return json.NewEncoder(os.Stdout).Encode(line) })
}

// crowd is many nodes in this process, and the server they join, which is another.
type crowd struct {
	server *process
	home   string
	admin  *client.Client
	token  string // the admin's
	cancel context.CancelFunc
	nodes  sync.WaitGroup
	failed chan error
}

// figures are what many found.
type figures struct {
	joined, listed, catalogued time.Duration
	perNode                    int64   // bytes of the server, for each idle node
	beating                    float64 // share of a core that the server uses while all are idle
	calls                      []result
}

func newCrowd(dir string, serve func(home string) (*process, error)) (*crowd, error) {
	c := &crowd{home: filepath.Join(dir, "home"), failed: make(chan error, 1), cancel: func() {}}
	var err error
	if c.server, err = serve(c.home); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(c.home, "run", "admin.token"))
	if err != nil {
		return c, err
	}
	c.token = strings.TrimSpace(string(raw))
	c.admin, err = client.New(client.Config{URL: c.server.url, Token: secret.New(c.token)})
	return c, err
}

func (c *crowd) end() {
	c.cancel()
	c.nodes.Wait()
	c.server.stop()
}

// join has count nodes join at once and returns when all were let in, when the list
// has them all, and when the catalog has.
func (c *crowd) join(dir string, count int) (f figures, err error) {
	token, err := nodeToken(context.Background(), c.server.url, c.token)
	if err != nil {
		return f, err
	}
	before, err := c.entries()
	if err != nil {
		return f, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	let := make(chan struct{}, count)
	began := time.Now()
	for i := range count {
		n, host, err := newNode(c.server.url, nameOf(i), token, dir)
		if err != nil {
			return f, err
		}
		c.nodes.Go(func() {
			defer host.Close()
			ended := make(chan error, 1)
			go func() { ended <- n.Run(ctx) }()
			select {
			case <-n.Joined():
				let <- struct{}{}
				err = <-ended
			case err = <-ended:
			}
			if err == nil && ctx.Err() == nil {
				err = errors.New("it left by itself")
			}
			if err != nil && ctx.Err() == nil {
				select {
				case c.failed <- fmt.Errorf("%s: %w", nameOf(i), err):
				default:
				}
			}
		})
	}
	deadline := time.After(15 * time.Minute)
	for range count {
		select {
		case <-let:
		case err := <-c.failed:
			return f, err
		case <-deadline:
			return f, errors.New("not all have joined within a quarter of an hour")
		}
	}
	f.joined = time.Since(began)
	for f.listed == 0 || f.catalogued == 0 {
		if f.listed == 0 {
			n, err := c.listed()
			if err != nil {
				return f, err
			}
			if n == count {
				f.listed = time.Since(began)
			}
		}
		n, err := c.entries()
		if err != nil {
			return f, err
		}
		if n-before == perNode*count {
			f.catalogued = time.Since(began)
		}
		select {
		case err := <-c.failed:
			return f, err
		case <-deadline:
			return f, fmt.Errorf("after a quarter of an hour the catalog has %d entries of %d", n-before, perNode*count)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return f, nil
}

func nameOf(i int) string { return fmt.Sprintf("node-%05d", i) }

// listed is how many nodes the list has.
func (c *crowd) listed() (int, error) {
	count, cursor := 0, ""
	for {
		var out struct {
			Nodes []struct {
				NodeID string `json:"node_id"`
			}
			Next string
		}
		if err := c.admin.Do(context.Background(), http.MethodGet, "/api/v1/nodes?limit=1000&cursor="+cursor, nil, &out); err != nil {
			return 0, err
		}
		count += len(out.Nodes)
		if cursor = out.Next; cursor == "" {
			return count, nil
		}
	}
}

// entries is how many entries the catalog has.
func (c *crowd) entries() (int, error) {
	var raw string
	req, err := http.NewRequest(http.MethodGet, c.server.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if raw, err = text(req); err != nil {
		return 0, err
	}
	for line := range strings.Lines(raw) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasSuffix(name, "catalog_entries") {
			var n float64
			_, err := fmt.Sscan(value, &n)
			return int(n), err
		}
	}
	return 0, errors.New("the metrics do not say how large the catalog is")
}

// many measures a server with count nodes of seven functions each.
func many(count, calls int, serve func(home string) (*process, error), quick bool) (f figures, err error) {
	dir, err := os.MkdirTemp("", "junctor-bench-")
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(dir)
	c, err := newCrowd(dir, serve)
	if c != nil {
		defer c.end()
	}
	if err != nil {
		return f, err
	}
	time.Sleep(2 * time.Second)
	before := c.server.rss()
	if f, err = c.join(filepath.Join(dir, "skills"), count); err != nil || quick {
		return f, err
	}
	time.Sleep(5 * time.Second) // what the storm left is over
	cpu, began := c.server.cpu(), time.Now()
	time.Sleep(idleTimeout)
	f.beating = (c.server.cpu() - cpu).Seconds() / time.Since(began).Seconds()
	f.perNode = (c.server.rss() - before) / int64(count)
	fmt.Fprintf(os.Stderr, "joined %s, catalogued %s, %d bytes each, %.3f of a core\n", f.joined, f.catalogued, f.perNode, f.beating)
	anyOf := door{"HTTP → engine → one of all", c.server, invocationDoor(c.server.url, c.token, func(int) client.Invocation {
		return client.Invocation{
			Target: "fn." + nodeRead, Input: json.RawMessage(nodeInput),
			Select: map[string]string{"node": nameOf(rand.IntN(count))},
		}
	})}
	for _, concurrency := range []int{1, 16, 128} {
		r, err := measure([]door{anyOf}, request{}, concurrency, 2*calls, 2)
		if err != nil {
			return f, err
		}
		f.calls = append(f.calls, r...)
	}
	n, err := c.listed()
	if err == nil && n != count {
		err = fmt.Errorf("%d of %d nodes are left", n, count)
	}
	select {
	case err = <-c.failed:
	default:
	}
	return f, err
}

// crowded is many with this program, which can write a profile, as the server.
func crowded(count, calls int, profile string, quick bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := many(count, calls, func(home string) (*process, error) {
		return start(self, "-serve", home, "-profile", profile)
	}, quick)
	f.print(count)
	return err
}

func (f figures) print(count int) {
	fmt.Printf("### %d nodes with seven functions each\n\n", count)
	fmt.Println("| what | measured |")
	fmt.Println("|---|---|")
	fmt.Printf("| all have joined, after | %.1f s |\n", f.joined.Seconds())
	fmt.Printf("| all are listed, after | %.1f s |\n", f.listed.Seconds())
	fmt.Printf("| all are in the catalog, after | %.1f s |\n", f.catalogued.Seconds())
	fmt.Printf("| memory of the server for each idle node | %d KiB |\n", f.perNode>>10)
	fmt.Printf("| processor of the server while all are idle | %.1f %% of a core |\n", 100*f.beating)
	for i, concurrency := range []int{1, 16, 128} {
		if i < len(f.calls) {
			r := f.calls[i]
			fmt.Printf("| calls over HTTP to any of them, %d at once | p50 %s, p99 %s, %.0f a second |\n", concurrency, us(r.p50), us(r.p99), r.rate)
		}
	}
	fmt.Println()
}
