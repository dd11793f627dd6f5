package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// A browser opens at most six connections to a server without TLS, so twelve tabs with a feed each
// would be silent.
// Three of them watch a terminal: one takes it over, and a program writes more than a browser draws, for about as
// many seconds as CONSOLE_SECONDS.
func TestTwelveTabsShareOneFeed(t *testing.T) {
	program := build(t)
	seconds, _ := strconv.Atoi(os.Getenv("CONSOLE_SECONDS"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+10*time.Duration(seconds)*time.Second)
	defer cancel()
	home := filepath.Join(t.TempDir(), "home")
	address, _ := serve(ctx, t, program, home, "127.0.0.1:0")
	admin, agent := dial(t, address, home, "admin"), dial(t, address, home, "agent")
	const line = `head -n 1; end=$(($(date +%%s) + %d)); while [ $(date +%%s) -lt $end ]; do seq 1 1000000; done; seq 1 2000000; ` +
		`printf 'the very %%s\n' end; sleep 3600`
	for _, command := range []string{"sleep 3600", fmt.Sprintf(line, seconds)} {
		create := exec.CommandContext(ctx, program, "tasks", "create", command, "--agent", "shell", "--scratch")
		create.Env = append(os.Environ(), "JUNCTOR_HOME="+home)
		if out, err := create.CombinedOutput(); err != nil {
			t.Fatalf("creating a task: %v\n%s", err, out)
		}
	}
	var threads []struct{ ID, OriginalRequest string }
	if err := admin.Do(ctx, http.MethodGet, "/api/coding-agents/coordinator/threads", nil, &threads); err != nil || len(threads) != 2 {
		t.Fatalf("got %+v, %v, want two threads", threads, err)
	}
	quiet, loud := threads[0].ID, threads[1].ID
	if strings.HasPrefix(threads[0].OriginalRequest, "head") {
		quiet, loud = loud, quiet
	}

	// The browser reaches the server through this proxy, which counts the feeds.
	to, err := url.Parse(address)
	if err != nil {
		t.Fatalf("the server's address: %v", err)
	}
	var feeds, most atomic.Int32
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/events" {
			if n := feeds.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer feeds.Add(-1)
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()

	var link struct{ URL string }
	if err := admin.Do(ctx, http.MethodPost, "/api/v1/console/codes", nil, &link); err != nil {
		t.Fatalf("asking for a link: %v", err)
	}
	_, code, _ := strings.Cut(link.URL, "/console/")
	page := strings.Replace(front.URL, "127.0.0.1", "localhost", 1) + "/console/" + code
	driver := exec.CommandContext(ctx, "node", "tabs.mjs", page, quiet, loud, strconv.Itoa(seconds))
	driver.Stderr = os.Stderr
	stop, err := driver.StdinPipe()
	if err != nil {
		t.Fatalf("the script's input: %v", err)
	}
	lines, err := driver.StdoutPipe()
	if err == nil {
		err = driver.Start()
	}
	if err != nil {
		t.Fatalf("starting the browser's script: %v", err)
	}
	var seen struct {
		Live, Watching, Badges int
		Echo, Heap             float64
		HeldBack               bool
		Screens                []string
	}
	scan := bufio.NewScanner(lines)
	for scan.Scan() {
		if scan.Text() == "ask" {
			err := agent.Do(ctx, http.MethodPost, "/api/v1/invocations", map[string]any{"target": "memory.store", "input": map[string]any{"text": "x"}}, nil)
			if capability.CodeOf(err) != capability.CodeApprovalRequired {
				t.Errorf("a call that waits: got %v, want %s", err, capability.CodeApprovalRequired)
			}
			continue
		}
		if err := json.Unmarshal(scan.Bytes(), &seen); err != nil {
			t.Errorf("the script's answer: %v in %s", err, scan.Text())
		}
		if now, top := feeds.Load(), most.Load(); now != 1 || top != 1 {
			t.Errorf("got %d feeds, at most %d at once, want 1 for all tabs", now, top)
		}
		if _, err := stop.Write([]byte("stop\n")); err != nil {
			t.Errorf("stopping the script: %v", err)
		}
	}
	if err := driver.Wait(); err != nil {
		t.Errorf("the browser's script: %v", err)
	}
	if seen.Echo <= 0 || seen.Echo > atMost(250) || !seen.HeldBack {
		t.Errorf("95 of 100 keys were on the screen after %.0f ms, a key after giving back was held: %v; want %.0f ms at most, true",
			seen.Echo, seen.HeldBack, atMost(250))
	}
	t.Logf("the echo of a key took %.0f ms, the heap of a page has %.1f MB", seen.Echo, seen.Heap/1e6)
	const last = "1999998|1999999|2000000|the very end"
	if got := strings.Join(seen.Screens, " "); got != last+" "+last+" "+last || seen.Heap > 80e6 {
		t.Errorf("the screens of three watchers end with %q, the heap has %.0f bytes; want %q on each, and 80 MB at most", seen.Screens, seen.Heap, last)
	}
	if seen.Live != 13 || seen.Watching != 3 || seen.Badges != 13 {
		t.Errorf("got %+v, want 13 tabs that are live, 3 terminals, and the approval on all 13", seen)
	}
}
