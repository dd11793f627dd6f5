package mcpclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
)

func TestTheEraIsDecidedByTheAnswerToTheProbe(t *testing.T) {
	for name, tt := range map[string]struct {
		status  int
		body    string // with ID for the id
		version string // "" is an error
		code    capability.Code
		reason  string
	}{
		"modern": {
			200, `{"jsonrpc":"2.0","id":ID,"result":{"supportedVersions":["2027-01-01","2026-07-28"]}}`, "2026-07-28",
			"", "",
		},
		"discovers its old self": {200, `{"jsonrpc":"2.0","id":ID,"result":{"supportedVersions":["2025-11-25"]}}`, "2025-11-25", "", ""},
		"says which it speaks": {
			400, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"","data":{"supported":["2025-06-18"]}}}`,
			"2025-11-25", "", "",
		},
		"speaks only the future": {
			400, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"","data":{"supported":["2027-01-01"]}}}`,
			"", capability.CodeUnavailable, "unsupported_version",
		},
		"modern and displeased": {
			400, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32021,"message":"needs more"}}`, "",
			capability.CodeUnavailable, "upstream_error",
		},
		"no such method":          {200, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"?"}}`, "2025-11-25", "", ""},
		"not initialized":         {400, `Bad Request: Server not initialized`, "2025-11-25", "", ""},
		"not found":               {404, ``, "2025-11-25", "", ""},
		"accepted without a word": {202, ``, "2025-11-25", "", ""},
		"nonsense":                {200, `<html>`, "2025-11-25", "", ""},
		"unauthorized":            {401, ``, "", capability.CodeUnavailable, "unauthenticated"},
		"forbidden":               {403, ``, "", capability.CodeUnavailable, "unauthenticated"},
		"too many":                {429, ``, "", capability.CodeOverloaded, "upstream_overloaded"},
		"timed out":               {408, ``, "", capability.CodeUnavailable, "upstream_error"},
		"broken": {
			500, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"?"}}`, "", capability.CodeUnavailable,
			"connection_failed",
		},
		"bad gateway": {502, ``, "", capability.CodeUnavailable, "connection_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRaw(t, "legacy", func(x call) bool {
				if x.method != "server/discover" {
					return false
				}
				if x.r.Header.Get("Mcp-Method") != "server/discover" || x.r.Header.Get("Mcp-Protocol-Version") != "2026-07-28" {
					t.Errorf(`%v; want x.r.Header.Get("Mcp-Method") = "server/discover", x.r.Header.Get("Mcp-Protocol-Version") `+
						`= "2026-07-28"`, x.r.Header)
				}
				x.w.Header().Set("Content-Type", "application/json")
				x.w.WriteHeader(tt.status)
				_, _ = io.WriteString(x.w, strings.ReplaceAll(tt.body, "ID", x.id))
				return true
			})
			g := s.idle(t)
			server, err := g.Connect(t.Context())
			if server.Version != tt.version {
				t.Errorf("%q %v, want %q", server.Version, err, tt.version)
			}
			if tt.version == "" {
				wantCode(t, err, tt.code, tt.reason)
				_, err = g.Call(t.Context(), tool("x", "{}"))
				wantCode(t, err, capability.CodeUnavailable, "connection_failed")
				if _, err := g.Connect(t.Context()); err == nil || s.probed.Load() != 2 {
					t.Errorf("%v after %d probes; want an error, s.probed.Load() = 2", err, s.probed.Load())
				}
			}
		})
	}
}

func TestConnectIsSharedByAll(t *testing.T) {
	s := newRaw(t, "legacy", nil)
	g := s.idle(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if server, err := g.Connect(t.Context()); err != nil || string(server.Capabilities) != `{"tools":{},"extra":{"n":9007199254740993}}` {
				t.Errorf(`%s %v; want no error, string(server.Capabilities) = "{\"tools\":{},\"extra\":{\"n\":9007199254740993}}"`,
					server.Capabilities, err)
			}
		})
	}
	all.Wait()
	if s.greeted.Load() != 1 || s.probed.Load() != 1 {
		t.Errorf("%d sessions, %d probes; want s.greeted.Load() = 1, s.probed.Load() = 1", s.greeted.Load(), s.probed.Load())
	}
	g.Close()
	if s.deleted.Load() != 1 {
		t.Errorf("%d sessions deleted; want s.deleted.Load() = 1", s.deleted.Load())
	}
	_, err := g.Connect(t.Context())
	wantCode(t, err, capability.CodeUnavailable, "connection_failed")
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

func TestAServerThatChangesItsEra(t *testing.T) {
	var modern atomic.Bool
	ran := make(chan string, 16)
	s := newRaw(t, "", nil)
	s.serve = func(x call) bool {
		if modern.Load() {
			switch {
			case x.method == "server/discover":
				x.result(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
			case x.method == "tools/call" && strings.Contains(x.params, "clientCapabilities"):
				ran <- "modern"
				x.result(`{"modern":1}`)
			case x.method == "GET":
				x.w.WriteHeader(http.StatusMethodNotAllowed)
			default:
				x.fault(400, `{"code":-32020,"message":"headers"}`)
			}
			return true
		}
		switch {
		case x.method == "tools/call" && x.r.Header.Get("Mcp-Protocol-Version") == "2026-07-28":
			x.fault(400, `{"code":-32022,"message":"no","data":{"supported":["2025-11-25"]}}`)
		case x.method == "tools/call":
			ran <- "legacy"
			x.result(`{"modern":0}`)
		case x.method == "initialize":
			x.result(`{"protocolVersion":"2025-03-26","capabilities":{}}`)
		default:
			return false
		}
		return true
	}
	g := s.client(t)
	for _, now := range []bool{false, true, false, true} {
		modern.Store(now)
		out, err := g.Call(t.Context(), tool("x", "{}"))
		if want := map[bool]string{true: `{"modern":1}`, false: `{"modern":0}`}[now]; err != nil || string(out) != want {
			t.Fatalf("%s %v, want %s", out, err, want)
		}
		if len(ran) != 1 {
			t.Errorf("the call ran %d times; want len(ran) = 1", len(ran))
		}
		<-ran
	}
}

func TestErrorsOfCalls(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(x call)
		code   capability.Code
		reason string
		says   string
	}{
		"their error": {
			func(x call) { x.fault(200, `{"code":-32000,"message":"dis`+"\u202e"+`k is full"}`) }, capability.CodeFailed,
			"upstream_error", "raw answered: disk is full",
		},
		"bad parameters": {
			func(x call) { x.fault(200, `{"code":-32602,"message":"no"}`) }, capability.CodeInvalidInput,
			"upstream_invalid_params", "raw answered: no",
		},
		"session in words": {
			func(x call) { x.fault(200, `{"code":-32000,"message":"session not found"}`) }, capability.CodeFailed,
			"upstream_error", "session",
		},
		"URL first": {
			func(x call) { x.fault(200, `{"code":-32042,"message":"open","data":{"elicitations":[]}}`) }, capability.CodeFailed,
			"upstream_error", "open",
		},
		"a long message": {
			func(x call) { x.fault(200, `{"code":1,"message":"`+strings.Repeat("x", 4096)+`"}`) }, capability.CodeFailed,
			"upstream_error", "xxx",
		},
		"credentials": {func(x call) { x.w.WriteHeader(401) }, capability.CodeUnavailable, "unauthenticated", "401"},
		"busy": {
			func(x call) { x.w.Header().Set("Retry-After", "7"); x.w.WriteHeader(429) }, capability.CodeOverloaded,
			"upstream_overloaded", "",
		},
		"out of service": {func(x call) { x.w.WriteHeader(503) }, capability.CodeUnavailable, "connection_failed", "503"},
		"broken": {
			func(x call) { x.w.WriteHeader(500); _, _ = io.WriteString(x.w, "stack trace") }, capability.CodeFailed,
			"upstream_error", "raw answered HTTP 500",
		},
		"hung up": {func(x call) {
			c, _, _ := x.w.(http.Hijacker).Hijack()
			c.Close()
		}, capability.CodeFailed, "connection_failed", "lost"},
		"half a stream":  {func(x call) { x.events()("data: {\"jsonrpc\"") }, capability.CodeFailed, "connection_failed", "lost"},
		"another's":      {func(x call) { x.id = "77777"; x.result(`{}`) }, capability.CodeFailed, "upstream_error", "another question"},
		"twice the same": {func(x call) { x.result(`{},"result":{}`) }, capability.CodeFailed, "upstream_error", "JSON-RPC"},
		"nothing":        {func(x call) { x.w.WriteHeader(202) }, capability.CodeFailed, "upstream_error", "content type"},
		"a page":         {func(x call) { _, _ = io.WriteString(x.w, "<html>") }, capability.CodeFailed, "upstream_error", "content type"},
		"33 MiB": {func(x call) {
			x.result(`{"x":"` + strings.Repeat("x", 33<<20) + `"}`)
		}, capability.CodeTooLarge, "", "32 MiB"},
		"33 MiB of event": {func(x call) {
			x.events()("data: {\"x\":\"%s\"}\n\n", strings.Repeat("x", 33<<20))
		}, capability.CodeTooLarge, "", "32 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			var ran atomic.Int32
			s := newRaw(t, "legacy", func(x call) bool {
				if x.method != "tools/call" {
					return false
				}
				ran.Add(1)
				tt.answer(x)
				return true
			})
			g := s.client(t)
			out, err := g.Call(t.Context(), tool("x", "{}"))
			wantCode(t, err, tt.code, tt.reason)
			e := capability.AsError(err)
			if !strings.Contains(e.Message, tt.says) || len(e.Message) > 700 || strings.Contains(e.Message, "stack") ||
				strings.ContainsRune(e.Message, '\u202e') {
				t.Errorf("%q, want %q; %s", e.Message, tt.says, out)
			}
			if n := ran.Load(); n != 1 {
				t.Errorf("the call ran %d times; want n = 1", n)
			}
		})
	}
}

func TestNobodyThere(t *testing.T) {
	s := newRaw(t, "legacy", nil)
	g := s.client(t)
	s.CloseClientConnections()
	s.Close()
	_, err := g.Call(t.Context(), tool("x", "{}"))
	if capability.CodeOf(err) == capability.CodeFailed { // it went out on a connection that had just ended
		_, err = g.Call(t.Context(), tool("x", "{}"))
	}
	wantCode(t, err, capability.CodeUnavailable, "connection_failed")
}

func TestCredentialsThatCannotBeHad(t *testing.T) {
	s := newRaw(t, "legacy", nil)
	g := s.idle(t, func(c *mcpclient.Config) {
		c.Header = func(context.Context) (http.Header, error) { return nil, errors.New("vault: s3cret") }
	})
	_, err := g.Connect(t.Context())
	wantCode(t, err, capability.CodeUnavailable, "unauthenticated")
	if strings.Contains(capability.AsError(err).Message, "s3cret") || s.probed.Load() != 0 {
		t.Errorf(`%v; want capability.AsError(err).Message without "s3cret", s.probed.Load() = 0`, err)
	}
}

func TestBadConfigurations(t *testing.T) {
	for _, cfg := range []mcpclient.Config{
		{},
		{Name: "x"},
		{Name: "x", Command: []string{"a"}, URL: "http://x"},
		{Name: "x", Command: []string{"a"}, SSE: true},
		{Name: "x", URL: "http://x"},
		{Name: "x", URL: "ftp://x", HTTP: http.DefaultClient},
		{Name: "x", URL: "http://u:p@x", HTTP: http.DefaultClient},
		{Name: "x", Command: []string{"a"}, Roots: []string{"rel"}},
	} {
		if _, err := mcpclient.New(cfg); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%+v: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", cfg, err)
		}
	}
}
