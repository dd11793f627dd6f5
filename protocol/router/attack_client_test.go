package router

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

// liar is a server that answers every connection with the same bytes, and then
// does what then says; it returns its URL.
func liar(t *testing.T, answer string, then func(net.Conn)) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the test is over
			}
			go func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				if _, err := io.WriteString(conn, answer); err == nil && then != nil {
					then(conn)
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// forever repeats a text until no reader takes it.
func forever(text string) func(net.Conn) {
	return func(conn net.Conn) {
		for {
			if _, err := io.WriteString(conn, text); err != nil {
				return
			}
		}
	}
}

// hold keeps the connection open and silent until the other side ends it.
func hold(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func TestHostileAnswersBecomeTypedErrors(t *testing.T) {
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	_, _ = zip.Write([]byte(`{"ok":true,"result":{"text":"`))
	_, _ = zip.Write(bytes.Repeat([]byte("x"), 16<<20))
	_, _ = zip.Write([]byte(`"}}`))
	_ = zip.Close()
	with := func(head, body string) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
	}
	const open = "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct {
		answer string
		then   func(net.Conn)
		code   capability.Code
		says   string
	}{
		"gzip bomb": {with("Content-Encoding: gzip\r\n", bomb.String()), nil, capability.CodeFailed, "not JSON"},
		"endless chunks": {
			open + "Transfer-Encoding: chunked\r\n\r\n", forever("3e8\r\n" + strings.Repeat(" ", 1000) + "\r\n"),
			capability.CodeTooLarge, "limit of 1048576",
		},
		"endless without length": {
			open + "Connection: close\r\n\r\n", forever(strings.Repeat(" ", 1000)), capability.CodeTooLarge,
			"limit of 1048576",
		},
		"a length of terabytes": {open + "Content-Length: 4398046511104\r\n\r\n", hold, capability.CodeTooLarge, "limit of 1048576"},
		"shorter than declared": {open + "Content-Length: 1000000\r\n\r\n{}", nil, capability.CodeFailed, "broke"},
		"longer than declared":  {open + "Content-Length: 2\r\n\r\n{}{\"ok\":false}", nil, "", ""},
		"two lengths":           {open + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", nil, capability.CodeFailed, "broke"},
		"negative length":       {open + "Content-Length: -2\r\n\r\n{}", nil, capability.CodeFailed, "broke"},
		"endless headers":       {open, forever("X-A: " + strings.Repeat("a", 1000) + "\r\n"), capability.CodeFailed, "broke"},
		"one giant header":      {open + "X-A: ", forever(strings.Repeat("a", 1000)), capability.CodeFailed, "broke"},
		"endless hints":         {"", forever("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), capability.CodeFailed, "broke"},
		"not HTTP":              {"SSH-2.0-OpenSSH_9.2\r\n", nil, capability.CodeFailed, "broke"},
		"nothing":               {"", nil, capability.CodeFailed, "broke"},
		"switching protocols": {
			"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", hold, capability.CodeFailed,
			"another protocol",
		},
		"a body that drips": {open + "Content-Length: 1000\r\n\r\n{", hold, capability.CodeTimeout, "in time"},
		"headers that drip": {open + "X-A: a", hold, capability.CodeTimeout, "in time"},
		"deep":              {with("", `{"ok":true,"result":`+strings.Repeat(`{"a":`, 100_000)), nil, capability.CodeFailed, "not JSON"},
		"deep and well-formed": {
			with("", `{"ok":true,"result":{"data":`+strings.Repeat(`[`, 5000)+strings.Repeat(`]`, 5000)+`}}`), nil,
			capability.CodeFailed, "not JSON",
		},
		"deep in an error": {with("", `{"ok":false,"error":{"code":"CAPABILITY_UNAVAILABLE","message":"m","details":`+
			strings.Repeat(`[`, 990)+strings.Repeat(`]`, 990)+`}}`), nil, capability.CodeUnavailable, "m"},
		"yes and no": {
			with("", `{"ok":false,"error":{"code":"CAPABILITY_UNAVAILABLE","message":"m"},"ok":true,"result":{}}`), nil,
			capability.CodeFailed, "not JSON",
		},
		"two results":    {with("", `{"ok":true,"result":{},"result":{"text":"x"}}`), nil, capability.CodeFailed, "not JSON"},
		"a member twice": {with("", `{"ok":true,"result":{"text":"a","text":"b"}}`), nil, capability.CodeFailed, "given twice"},
		"not UTF-8":      {with("", "{\"ok\":true,\"result\":{\"text\":\"\xff\"}}"), nil, capability.CodeFailed, "UTF-8"},
		"not UTF-8 in an error": {
			with("", "{\"ok\":false,\"error\":{\"code\":\"CAPABILITY_UNAVAILABLE\",\"message\":\"\xff\"}}"), nil,
			capability.CodeFailed, "",
		},
		"a number without end": {
			with("", `{"ok":true,"result":{"text":`+strings.Repeat("9", 900_000)+`}}`), nil, capability.CodeFailed,
			"must be a string",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := connect(t, ClientConfig{BaseURL: liar(t, c.answer, c.then), MaxResponse: 1 << 20, Timeout: 2 * time.Second})
			_, err := client.Invoke(t.Context(), "plugin.provider.get", json.RawMessage(`{"moduleId":"m","provider":"P"}`))
			if c.code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if e := wireOf(t, err); e.ToCapability("").Code != c.code || !strings.Contains(e.Message, c.says) || len(e.Message) > maxMessage {
				t.Errorf(`%.300v is %s; want e.ToCapability("").Code = %v, e.Message with %v, len(e.Message) at most %v`,
					e, e.ToCapability("").Code, c.code, c.says, maxMessage)
			}
		})
	}
}

// No redirect is followed, and the token goes nowhere else.
func TestARedirectTakesTheTokenNowhere(t *testing.T) {
	var reached atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(other.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		srv := httptest.NewServer(http.RedirectHandler(other.URL+PathInvoke, status))
		t.Cleanup(srv.Close)
		client := connect(t, ClientConfig{BaseURL: srv.URL, Token: secret.New("s3cret")})
		_, err := client.Invoke(t.Context(), "model.status", nil)
		if e := wireOf(t, err); e.Status != status || e.ToCapability("").Reason != "redirect_refused" || strings.Contains(e.Error(), "s3cret") {
			t.Errorf(`%d: %+v; want e.Status = %v, e.ToCapability("").Reason = "redirect_refused", e.Error() without "s3cret"`,
				status, e, status)
		}
		if _, err := client.Availability(t.Context()); err == nil {
			t.Errorf("%d: the availability is read elsewhere; want an error", status)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the other server was reached %d times; want n = 0", n)
	}
}

// What an endpoint says about its failure is bounded, whatever it says.
func TestFailuresAreBounded(t *testing.T) {
	long := strings.Repeat("ü", 1<<20)
	answer, err := marshal(map[string]any{"ok": false, "error": map[string]any{
		"code": CodeRequestFailed, "message": long, "method": long, "capability": long,
		"details": map[string]any{"code": "overloaded", "retry_after_ms": int64(1) << 62, "hint": long},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range []int{200, 500} {
		_, err := readEnvelope(status, answer, PathInvoke)
		e := wireOf(t, err)
		if len(e.Message) > maxMessage || len(e.Method) > maxName || len(e.Capability) > maxName || len(e.Details) > maxDetails+64 ||
			!strings.HasPrefix(e.Message, "üü") {
			t.Errorf("%d: %d, %d, %d, %d bytes; want len(e.Message) at most %v, len(e.Method) at most %v, len(e.Capability) at "+
				`most %v, len(e.Details) at most maxDetails + 64, e.Message beginning with "üü"`, status, len(e.Message),
				len(e.Method), len(e.Capability), len(e.Details), maxMessage, maxName, maxName)
		}
	}
	for _, ms := range []string{"9223372036854775807", "4611686018427387904", "1e18"} {
		e := &Error{Code: CodeRequestFailed, Details: json.RawMessage(`{"code":"overloaded","retry_after_ms":` + ms + `}`)}
		if got := e.ToCapability("").RetryAfter; got < 0 || got > 24*time.Hour {
			t.Errorf("%s ms are %s; want got at least 0, got at most 24 * time.Hour", ms, got)
		}
	}
}

// A caller's own transport may unpack answers; the limit is on what comes out.
func TestUnpackedAnswersAreBoundedToo(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		_, _ = zip.Write(bytes.Repeat([]byte(" "), 8<<20))
		_ = zip.Close()
	}))
	t.Cleanup(srv.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := connect(t, ClientConfig{BaseURL: srv.URL, Transport: transport, MaxResponse: 1 << 20})
	_, err := client.Invoke(context.WithoutCancel(t.Context()), "model.status", nil)
	if e := wireOf(t, err); e.ToCapability("").Code != capability.CodeTooLarge {
		t.Errorf(`%+v; want e.ToCapability("").Code = capability.CodeTooLarge`, e)
	}
}
