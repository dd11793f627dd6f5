package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// names is a resolver; each answer is used up, the last one stays.
type names struct {
	mu    sync.Mutex
	table map[string][][]string
	asked int
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	answers := n.table[host]
	if len(answers) == 0 {
		return nil, errors.New("no such host")
	}
	if len(answers) > 1 {
		n.table[host] = answers[1:]
	}
	var list []netip.Addr
	for _, a := range answers[0] {
		list = append(list, netip.MustParseAddr(a))
	}
	return list, nil
}

// world dials every address to one server, and remembers which were asked for.
type world struct {
	mu     sync.Mutex
	server string
	dialed []string
}

func (w *world) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, address)
	w.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, w.server)
}

type rig struct {
	url       *url.URL
	names     *names
	world     *world
	decisions chan Decision
}

func start(t *testing.T, policy Policy, answer http.HandlerFunc) *rig {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	r := &rig{
		names: &names{table: map[string][][]string{
			"a.test": {{"93.184.216.34"}}, "b.test": {{"93.184.216.35"}}, "inside.test": {{"127.0.0.1"}},
			"mixed.test":    {{"93.184.216.34", "10.0.0.1"}},
			"metadata.test": {{"169.254.169.254"}}, "turning.test": {{"93.184.216.34"}, {"127.0.0.1"}},
		}},
		world:     &world{server: server.Listener.Addr().String()},
		decisions: make(chan Decision, 100),
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = &url.URL{Scheme: "http", Host: l.Addr().String()}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, l, Config{Policy: policy, Resolver: r.names, Dialer: r.world, OnDecision: func(d Decision) { r.decisions <- d }})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) client(t *testing.T) *http.Client {
	transport := &http.Transport{Proxy: http.ProxyURL(r.url), DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func TestForwardingByPolicy(t *testing.T) {
	t.Parallel()
	r := start(t, Policy{Allow: []string{"a.test", "*.test:80", "10.0.0.9", "turning.test"}, Deny: []string{"b.test"}},
		func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Proxy-Authorization") != "" || req.Header.Get("X-Hop") != "" {
				w.WriteHeader(500)
			}
			fmt.Fprintf(w, "%s %s", req.Host, req.URL.Path)
		})
	client := r.client(t)
	tests := []struct {
		url    string
		status int
		event  string
	}{
		{"http://a.test/x", 200, "egress_allowed"},
		{"http://A.TEST./x", 200, "egress_allowed"},
		{"http://b.test/x", 403, "egress_denied"},
		{"http://a.test:22/x", 403, "egress_denied"},
		{"http://inside.test/x", 403, "egress_denied"},
		{"http://mixed.test/x", 403, "egress_denied"},
		{"http://metadata.test/x", 403, "egress_denied"},
		{"http://127.0.0.1/x", 403, "egress_denied"},
		{"http://[::1]/x", 403, "egress_denied"},
		{"http://10.0.0.9/x", 403, "egress_denied"}, // the pattern admits it, the address rule does not
		{"http://2130706433/x", 403, "egress_denied"},
		{"http://unknown.test/x", 502, ""},
	}
	for _, tt := range tests {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Proxy-Authorization", "Basic eA==")
		req.Header.Set("Connection", "X-Hop")
		req.Header.Set("X-Hop", "1")
		resp, err := client.Do(req)
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%s: status %d, want %d", tt.url, resp.StatusCode, tt.status)
		}
		if tt.event == "" {
			continue
		}
		if d := <-r.decisions; d.Event() != tt.event || (d.Reason == "") != d.Allowed {
			t.Errorf(`%s: decision %+v; want d.Event() = %v, (d.Reason == "") = %v`, tt.url, d, tt.event, d.Allowed)
		}
	}
}

// A name is asked for once per connection, and what was judged is what is
// dialled: the second answer comes too late.
func TestTheJudgedAddressIsDialled(t *testing.T) {
	t.Parallel()
	r := start(t, Policy{Allow: []string{"turning.test"}}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	resp, err := r.client(t).Get("http://turning.test/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if r.names.asked != 1 || len(r.world.dialed) != 1 || r.world.dialed[0] != "93.184.216.34:80" {
		t.Errorf(`asked %d times, dialled %v; want r.names.asked = 1, len(r.world.dialed) = 1, r.world.dialed[0] = "93.184.216.34:80"`,
			r.names.asked, r.world.dialed)
	}
	resp, err = r.client(t).Get("http://turning.test/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden || len(r.world.dialed) != 1 {
		t.Errorf("after it turned inside: %d, %v; want resp.StatusCode = http.StatusForbidden, len(r.world.dialed) = 1",
			resp.StatusCode, r.world.dialed)
	}
}

func connectTo(t *testing.T, r *rig, target string) (net.Conn, *bufio.Reader, string) {
	t.Helper()
	conn, err := net.Dial("tcp", r.url.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	reader := bufio.NewReader(conn)
	line, err := reader.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return conn, reader, line
}

func TestTunnels(t *testing.T) {
	t.Parallel()
	r := start(t, Policy{Allow: []string{"a.test"}}, func(w http.ResponseWriter, req *http.Request) {
		data, _ := io.ReadAll(req.Body)
		fmt.Fprintf(w, "got %d", len(data))
	})
	for _, target := range []string{
		"b.test:443", "127.0.0.1:443", "[::1]:443", "a.test:25", "a.test:0", "a.test:x", "user@a.test:443",
		"inside.test:443",
	} {
		if _, _, line := connectTo(t, r, target); !strings.Contains(line, " 403 ") && !strings.Contains(line, " 400 ") {
			t.Errorf(`%s: %s; want not (!strings.Contains(line, " 403 ") && !strings.Contains(line, " 400 "))`, target, line)
		}
	}
	conn, reader, line := connectTo(t, r, "a.test:443")
	if !strings.Contains(line, " 200 ") {
		t.Fatalf(`line = %v, want strings.Contains(line, " 200 ")`, line)
	}
	if _, err := reader.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("x", 300000)
	go fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	answer, err := io.ReadAll(reader)
	if err != nil || !strings.HasSuffix(string(answer), "got 300000") {
		t.Errorf(`got %q, %v; want no error, string(answer) ending with "got 300000"`, answer, err)
	}
}

// An open tunnel ends with the proxy.
func TestStoppingEndsTunnels(t *testing.T) {
	t.Parallel()
	r := start(t, Policy{Allow: []string{"a.test"}}, func(http.ResponseWriter, *http.Request) {})
	if _, _, line := connectTo(t, r, "a.test:443"); !strings.Contains(line, " 200 ") {
		t.Fatalf(`line = %v, want strings.Contains(line, " 200 ")`, line)
	}
}

func TestTheRateIsHeld(t *testing.T) {
	t.Parallel()
	r := start(t, Policy{Allow: []string{"a.test"}, BytesPerSecond: 100_000}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 75_000))
	})
	began := time.Now()
	resp, err := r.client(t).Get("http://a.test/")
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if err != nil || n != 75_000 {
		t.Fatalf("n = %v, err = %v, want err == nil && n == 75_000", n, err)
	}
	if spent := time.Since(began); spent < 400*time.Millisecond {
		t.Errorf("75 kB at 100 kB/s with a burst of 25 kB took %s; want spent at least 400 * time.Millisecond", spent)
	}
}

func TestWhatIsNoProxyRequest(t *testing.T) {
	t.Parallel()
	r := start(t, Policy{Allow: []string{"*"}}, func(http.ResponseWriter, *http.Request) {})
	for _, line := range []string{
		"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET ftp://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
		"GET http://u:p@a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", r.url.Host)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, line)
		status, _ := bufio.NewReader(conn).ReadString('\n')
		conn.Close()
		if !strings.Contains(status, " 400 ") && !strings.Contains(status, " 403 ") {
			t.Errorf(`%q: %q; want not (!strings.Contains(status, " 400 ") && !strings.Contains(status, " 403 "))`, line, status)
		}
		select {
		case d := <-r.decisions:
			if d.Allowed || d.Reason == "" {
				t.Errorf("decision on %q = %+v, want a denial with its reason", line, d)
			}
		default:
			t.Errorf("%q: no decision was recorded, want a denial", line)
		}
	}
	if len(r.world.dialed) != 0 {
		t.Errorf("dialled %v; want len(r.world.dialed) = 0", r.world.dialed)
	}
}
