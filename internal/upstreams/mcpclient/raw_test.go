package mcpclient_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
)

// call is one POST to a server written by hand.
type call struct {
	method string
	id     string // raw
	params string // raw
	body   []byte
	w      http.ResponseWriter
	r      *http.Request
}

// result answers with JSON, byte for byte.
func (x call) result(raw string) {
	x.w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(x.w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, x.id, raw)
}

func (x call) fault(status int, raw string) {
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(status)
	fmt.Fprintf(x.w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, x.id, raw)
}

// events begins a stream; what is said on it goes out at once.
func (x call) events() func(format string, args ...any) {
	x.w.Header().Set("Content-Type", "text/event-stream")
	return func(format string, args ...any) {
		fmt.Fprintf(x.w, format, args...)
		x.w.(http.Flusher).Flush()
	}
}

// raw is a server written by hand; serve gets what is not part of the handshake, and
// may answer parts of that as well, by returning true.
type raw struct {
	*httptest.Server
	era     string // "legacy", "modern", or "" when serve does it all
	session atomic.Value
	greeted atomic.Int32 // sessions begun
	probed  atomic.Int32
	serve   func(x call) bool
	deleted atomic.Int32
}

func newRaw(t *testing.T, era string, serve func(x call) bool) *raw {
	t.Helper()
	s := &raw{era: era, serve: serve}
	s.session.Store("")
	s.Server = httptest.NewServer(http.HandlerFunc(s.handle))
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s
}

func (s *raw) handle(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete {
		s.deleted.Add(1)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	_ = json.Unmarshal(body, &m)
	x := call{method: m.Method, id: string(m.ID), params: string(m.Params), body: body, w: w, r: r}
	if r.Method == http.MethodGet {
		x.method = "GET"
	}
	if m.Method == "server/discover" {
		s.probed.Add(1)
	}
	if s.serve != nil && s.serve(x) {
		return
	}
	want := s.session.Load().(string)
	switch {
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case m.Method == "server/discover" && s.era == "modern":
		x.result(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"}`)
	case m.Method == "initialize" && s.era == "legacy":
		n := s.greeted.Add(1)
		id := fmt.Sprint("session-", n)
		s.session.Store(id)
		w.Header().Set("Mcp-Session-Id", id)
		x.result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"extra":{"n":9007199254740993}},"serverInfo":{"name":"raw","version":"1"}}`)
	case s.era == "legacy" && m.Method != "server/discover" && r.Header.Get("Mcp-Session-Id") != want:
		w.WriteHeader(http.StatusNotFound)
	case len(m.ID) == 0:
		w.WriteHeader(http.StatusAccepted)
	default:
		x.fault(http.StatusBadRequest, `{"code":-32601,"message":"no such method"}`)
	}
}

// client connects to the server.
func (s *raw) client(t *testing.T, change ...func(*mcpclient.Config)) *rig {
	t.Helper()
	return s.idle(t, change...).connect(t)
}

// idle is a client that has not connected yet.
func (s *raw) idle(t *testing.T, change ...func(*mcpclient.Config)) *rig {
	t.Helper()
	g := &rig{}
	cfg := mcpclient.Config{Name: "raw", URL: s.URL, HTTP: httpClient(t)}
	for _, f := range change {
		f(&cfg)
	}
	newClient(t, g, cfg)
	return g
}

// playRaw is a program written by hand: a legacy server whose tools break the rules of
// its transport. The role states how it begins.
func playRaw(role string) {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	say := func(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }
	if role == "orphan" { // a child of its own that holds on to the output
		orphan()
	}
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			if role == "stubborn" {
				asked := make(chan os.Signal, 1)
				signal.Notify(asked, syscall.SIGTERM)
				_ = os.WriteFile("waiting", []byte(strconv.Itoa(os.Getpid())), 0o600)
				<-asked
				_ = os.WriteFile("asked", nil, 0o600)
				<-asked // for ever
			}
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
			Result json.RawMessage
		}
		if json.Unmarshal(line, &m) != nil {
			say(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not JSON: %d bytes"}}`, len(line))
			continue
		}
		ok := func(result string) { say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result) }
		var p struct{ Name string }
		_ = json.Unmarshal(m.Params, &p)
		switch m.Method {
		case "server/discover":
			switch role {
			case "mute", "stubborn":
				continue
			case "touchy":
				os.Exit(1)
			}
			say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"what?"}}`, m.ID)
		case "initialize":
			version := "2024-11-05"
			if role == "strange" {
				version = "1999-01-01"
			}
			ok(`{"protocolVersion":"` + version + `","capabilities":{"tools":{}},"serverInfo":{"name":"by hand","version":"1"}}`)
		case "tools/call":
			playTool(p.Name, string(m.ID), m.Params, say, ok)
		case "":
			if m.Result != nil {
				say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%s}}`, m.Result)
				say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, bytes.TrimPrefix(m.ID[1:len(m.ID)-1], []byte("q-")))
			}
		}
	}
}

func playTool(name, id string, params json.RawMessage, say func(string, ...any), ok func(string)) {
	switch name {
	case "echo":
		ok(`{"content":[],"params":` + string(params) + `}`)
	case "garbage":
		for range 9 {
			say("Listening on port 3000 ...")
		}
		ok(`{"content":[]}`)
	case "flood":
		for range 10 {
			say("not a message")
		}
	case "strangers": // answers to nothing, an answer twice, a line break and empty lines
		say(`{"jsonrpc":"2.0","id":987654,"result":{}}`)
		say(`{"jsonrpc":"2.0","id":"x","result":{}}`)
		say("")
		ok(`{"content":[1]}`)
		ok(`{"content":[2]}`)
	case "batch":
		say(`[{"jsonrpc":"2.0","method":"notifications/tools/list_changed"},{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}]`, id)
	case "huge":
		ok(`{"content":"` + strings.Repeat("x", 17<<20) + `"}`)
	case "question": // its answer comes when the question has one
		say(`{"jsonrpc":"2.0","id":"q-%s","method":"elicitation/create","params":{"message":"well?"}}`, id)
	case "roots":
		say(`{"jsonrpc":"2.0","id":"q-%s","method":"roots/list"}`, id)
	case "ping":
		say(`{"jsonrpc":"2.0","id":"q-%s","method":"ping"}`, id)
	case "die":
		os.Exit(1)
	case "never":
	}
}
