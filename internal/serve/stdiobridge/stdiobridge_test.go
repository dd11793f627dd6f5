package stdiobridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a server of MCP's HTTP transport that forgets its sessions on demand.
type peer struct {
	mu       sync.Mutex
	session  string
	opened   int
	seen     []string // "METHOD session body"
	headers  []http.Header
	notices  chan string   // for the GET stream
	streams  chan struct{} // a GET stream has been opened
	deleted  chan string
	slow     chan struct{} // a slow call has begun
	slowDone chan struct{} // and ended because its request did
}

func newPeer() *peer {
	return &peer{
		notices: make(chan string), streams: make(chan struct{}, 8), deleted: make(chan string, 8), slow: make(chan struct{}, 8),
		slowDone: make(chan struct{}, 8),
	}
}

func (p *peer) forget() {
	p.mu.Lock()
	p.session = "gone"
	p.mu.Unlock()
}

func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	id := r.Header.Get("Mcp-Session-Id")
	p.mu.Lock()
	p.seen = append(p.seen, strings.TrimSpace(r.Method+" "+id+" "+string(body)))
	p.headers = append(p.headers, r.Header)
	session := p.session
	p.mu.Unlock()
	answer := func(result string) {
		var m struct{ ID json.RawMessage }
		_ = json.Unmarshal(body, &m)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer good":
		w.WriteHeader(http.StatusUnauthorized)
	case bytes.Contains(body, []byte(`"initialize"`)):
		p.mu.Lock()
		p.opened++
		p.session = fmt.Sprintf("s%d", p.opened)
		w.Header().Set("Mcp-Session-Id", p.session)
		p.mu.Unlock()
		answer(`{"protocolVersion":"2025-06-18"}`)
	case id != "" && id != session:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"session not found"}}`)
	case r.Method == http.MethodDelete:
		p.deleted <- id
	case r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		p.streams <- struct{}{}
		select {
		case n := <-p.notices:
			fmt.Fprintf(w, ": hello\n\nevent: message\ndata: %s\n\n", n)
		case <-r.Context().Done():
		}
	case bytes.Contains(body, []byte("slow")):
		p.slow <- struct{}{}
		<-r.Context().Done()
		p.slowDone <- struct{}{}
	case bytes.Contains(body, []byte("stream")):
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"id\":\"st\",\"result\":{}}\n\n")
	case bytes.Contains(body, []byte("pretty")):
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{\"jsonrpc\":\"2.0\",\r\n \"id\":\"p\",\n \"result\":{\"n\":9007199254740993}}")
	case !bytes.Contains(body, []byte(`"id"`)), bytes.Contains(body, []byte(`"action"`)):
		w.WriteHeader(http.StatusAccepted)
	default:
		answer(`{"ok":true}`)
	}
}

// pipe is a running bridge and its client's ends.
type pipe struct {
	t    *testing.T
	in   *io.PipeWriter
	out  <-chan string
	errs *bytes.Buffer
	done chan error
}

func start(t *testing.T, ctx context.Context, url, token string) *pipe {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	lines := make(chan string, 64)
	p := &pipe{t: t, in: inW, out: lines, errs: new(bytes.Buffer), done: make(chan error, 1)}
	go func() {
		p.done <- Run(ctx, Config{In: inR, Out: outW, Err: p.errs, URL: url, Token: secret.New(token)})
		outW.Close()
	}()
	go func() {
		defer close(lines)
		in := bufio.NewScanner(outR)
		in.Buffer(nil, 8<<20)
		for in.Scan() {
			lines <- in.Text()
		}
	}()
	return p
}

func (p *pipe) send(lines ...string) {
	p.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(p.in, l+"\n"); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *pipe) want(parts ...string) {
	p.t.Helper()
	got := receive(p.t, p.out)
	for _, part := range parts {
		if !strings.Contains(got, part) {
			p.t.Fatalf("%q lacks %q; want got with %v", got, part, part)
		}
	}
}

func (p *pipe) close() {
	p.t.Helper()
	p.in.Close()
	if err := receive(p.t, p.done); err != nil {
		p.t.Error(err)
	}
	for l := range p.out {
		p.t.Errorf("left over: %s", l)
	}
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
		panic("unreachable")
	}
}

const (
	initialize  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	modernMeta  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
)

func TestLegacySession(t *testing.T) {
	server := newPeer()
	web := httptest.NewServer(server)
	defer web.Close()
	p := start(t, t.Context(), web.URL+"/", "good")
	p.send(initialize)
	p.want(`"id":0`, "2025-06-18")
	p.send(initialized)
	receive(t, server.streams)
	server.notices <- `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	p.want("list_changed")
	receive(t, server.streams) // opened again after it ended, and said so
	p.want("list_changed")
	p.send(`{"jsonrpc":"2.0","id":"st","method":"stream"}`)
	p.want("progress")
	p.want(`"id":"st"`)
	p.send(`{"jsonrpc":"2.0","id":"p","method":"pretty"}`)
	p.want(`"n":9007199254740993`)
	// What the client answers is answered by nothing, also when it is not accepted.
	p.send(`{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}`, `{"jsonrpc":"2.0","id":"r","error":{"code":-1,"message":"no"}}`)
	p.send(`{"jsonrpc":"2.0","id":6,"method":"tools/list"}`)
	p.want(`"id":6`)
	// The server restarts and knows nothing of the session.
	server.forget()
	p.send(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`)
	p.want(`"id":5`, `"ok":true`)
	p.close()
	if got := receive(t, server.deleted); got != "s2" {
		t.Errorf(`deleted %s; want got = "s2"`, got)
	}
	if server.opened != 2 {
		t.Errorf("%d sessions: %q; want server.opened = 2", server.opened, server.seen)
	}
}

func TestModern(t *testing.T) {
	server := newPeer()
	web := httptest.NewServer(server)
	defer web.Close()
	p := start(t, t.Context(), web.URL, "good")
	p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"grüße",` + modernMeta + `}}`)
	p.want(`"id":1`)
	h := server.headers[0]
	if h.Get("Mcp-Protocol-Version") != "2026-07-28" || h.Get("Mcp-Method") != "tools/call" ||
		h.Get("Mcp-Name") != "=?base64?Z3LDvMOfZQ==?=" || h.Get("Mcp-Session-Id") != "" {
		t.Errorf(`%v; want h.Get("Mcp-Protocol-Version") = "2026-07-28", h.Get("Mcp-Method") = "tools/call", h.Get("Mcp-Name") `+
			`= "=?base64?Z3LDvMOfZQ==?=", h.Get("Mcp-Session-Id") = ""`, h)
	}
	p.send(`{"jsonrpc":"2.0","id":2,"method":"slow","params":{` + modernMeta + `}}`)
	receive(t, server.slow)
	p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	receive(t, server.slowDone)
	p.send(`{"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{"x":"slow",` + modernMeta + `}}`)
	receive(t, server.slow)
	p.close()
}

func TestFaults(t *testing.T) {
	server := newPeer()
	web := httptest.NewServer(server)
	defer web.Close()
	ping := `{"jsonrpc":"2.0","id":"x","method":"ping"}`

	p := start(t, t.Context(), web.URL, "bad")
	p.send(ping)
	p.want(`"id":"x"`, `"code":401`, "--token")
	p.send(initialize)
	p.want(`"id":0`, `"code":401`)
	p.send("{nonsense")
	p.want(`"id":null`, "-32700")
	p.send("", `{"a":"`+strings.Repeat("x", maxLine)+`"}`)
	p.want(`"id":null`, `"code":413`)
	p.close()
	if got := p.errs.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "token") {
		t.Errorf(`told: %q; want strings.Count(got, "\n") = 1, got with "token"`, got)
	}

	web.Close()
	p = start(t, t.Context(), web.URL, "good")
	p.send(ping, initialized)
	p.want(`"id":"x"`, `"code":503`, "junctor serve")
	p.close()
	if got := p.errs.String(); !strings.Contains(got, "junctor serve") {
		t.Errorf(`told: %q; want got with "junctor serve"`, got)
	}
}

func TestStopsWithItsContext(t *testing.T) {
	server := newPeer()
	web := httptest.NewServer(server)
	defer web.Close()
	ctx, cancel := context.WithCancel(t.Context())
	p := start(t, ctx, web.URL, "good")
	p.send(initialize)
	p.want(`"id":0`)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
	receive(t, server.slow)
	cancel()
	if err := receive(t, p.done); err == nil {
		t.Error("no error; want an error")
	}
	receive(t, server.slowDone)
	receive(t, server.deleted)
	p.in.Close()
}

func FuzzPeek(f *testing.F) {
	f.Add([]byte(`{"id":1,"method":"tools/call","params":{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":1}}}`))
	f.Add([]byte(`[1]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) == 0 {
			return
		}
		m, err := peek(body)
		if err == nil && !json.Valid(m.body) {
			t.Errorf("taken for JSON: %q; want not (err == nil && !json.Valid(m.body))", body)
		}
		h := http.Header{}
		m.modernHeaders(h)
		for name, values := range h {
			if strings.ContainsAny(values[0], "\r\n") {
				t.Errorf(`%s: %q; want values[0] without any of "\r\n"`, name, values[0])
			}
		}
	})
}
