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
	"testing"
	"time"

	"github.com/junctor-run/junctor/secret"
)

// echo returns its parameters.
func echo(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(`{"data":` + string(params) + `}`), nil
}

// speak sends bytes to the server and returns all that comes until it hangs up;
// the test's own patience is far beyond the server's.
func speak(t *testing.T, srv *httptest.Server, request string) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, request) // the server may have hung up already
	got, err := io.ReadAll(conn)
	if e, ok := err.(net.Error); ok && e.Timeout() { //nolint:errorlint // as it comes from the connection
		t.Fatalf("the server still waits after %q; want not (ok && e.Timeout())", got)
	}
	return string(got)
}

// A body that never ends, for any sender and any method, holds a connection
// for a while only.
func TestSlowBodiesAreCutOff(t *testing.T) {
	srv := serve(t, "s3cret", HandlerOptions{BodyTimeout: 20 * time.Millisecond, MaxBody: pace - 1}, echo)
	for name, c := range map[string]struct{ head, body, want string }{
		"declared": {"POST " + PathInvoke + " HTTP/1.1\r\nAuthorization: Bearer s3cret\r\nContent-Length: 1000", `{"method":`, " 400 "},
		"chunked": {
			"POST " + PathInvoke + " HTTP/1.1\r\nAuthorization: Bearer s3cret\r\nTransfer-Encoding: chunked", "5\r\n{\"met\r\n",
			" 400 ",
		},
		"a stranger's": {"POST " + PathInvoke + " HTTP/1.1\r\nContent-Length: 1000", `{`, " 401 "},
		"to nowhere":   {"POST /nowhere HTTP/1.1\r\nAuthorization: Bearer s3cret\r\nContent-Length: 1000", `{`, " 404 "},
		"of a GET":     {"GET " + PathAvailability + " HTTP/1.1\r\nAuthorization: Bearer s3cret\r\nContent-Length: 1000", `{`, " 200 "},
		"never began": {
			"POST " + PathInvoke + " HTTP/1.1\r\nAuthorization: Bearer s3cret\r\nExpect: 100-continue\r\nContent-Length: 1000",
			``, " 400 ",
		},
		"of a chunk row": {
			"POST " + PathInvoke + " HTTP/1.1\r\nAuthorization: Bearer s3cret\r\nTransfer-Encoding: chunked", "1\r\n{\r\n0000",
			" 400 ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := speak(t, srv, c.head+"\r\nHost: x\r\n\r\n"+c.body)
			if !strings.Contains(got, "HTTP/1.1"+c.want) {
				t.Errorf(`%s; want got with "HTTP/1.1" + c.want`, got)
			}
		})
	}
}

// deadlines is a ResponseWriter that keeps what was last set.
type deadlines struct {
	*httptest.ResponseRecorder
	read, write time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error  { d.read = at; return nil }
func (d *deadlines) SetWriteDeadline(at time.Time) error { d.write = at; return nil }

// What bounds a body must not bound the call: the server watches the connection
// while it lasts, and a deadline would look like the caller's leaving.
func TestTheTimeForABodyEndsWithIt(t *testing.T) {
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	h := Handler(RequireToken(secret.Value{}, scripted(func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		if !w.read.IsZero() || !w.write.IsZero() {
			t.Errorf("during the call there are deadlines: %s and %s; want w.read.IsZero(), w.write.IsZero()", w.read, w.write)
		}
		return json.RawMessage(`{"ok":true,"provider":"` + strings.Repeat("x", 64<<10) + `"}`), nil
	})), HandlerOptions{})
	r := httptest.NewRequest(http.MethodPost, PathInvoke, readFunc(func(p []byte) (int, error) {
		if w.read.IsZero() {
			t.Error("the body is read without a deadline")
		}
		return copy(p, `{"method":"model.status"}`), io.EOF
	}))
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"ok":true,"result"`) || w.write.IsZero() {
		t.Errorf(`%d %s, deadline %s; want w.Code = http.StatusOK, w.Body.String() with "\"ok\":true,\"result\"", not w.write.IsZero()`,
			w.Code, w.Body, w.write)
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// A caller that takes no answer is given up: its connection and its buffers are
// free again.
func TestAnswersNobodyReadsAreGivenUp(t *testing.T) {
	big := json.RawMessage(`{"text":"` + strings.Repeat("x", 8<<20) + `"}`)
	ended := make(chan struct{})
	inner := Handler(RequireToken(secret.Value{}, scripted(func(context.Context, string, json.RawMessage) (json.RawMessage,
		error,
	) {
		return big, nil
	})),
		HandlerOptions{BodyTimeout: 20 * time.Millisecond})
	inner.(*handler).pace = 1 << 40
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner.ServeHTTP(w, r)
		close(ended)
	}))
	t.Cleanup(srv.Close)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	body := `{"method":"plugin.provider.get","params":{"moduleId":"m","provider":"P"}}`
	_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", PathInvoke, len(body), body)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the handler still writes")
	}
}

func TestHostileRequestsGetATypedRefusal(t *testing.T) {
	srv := serve(t, "", HandlerOptions{MaxBody: 1 << 20}, echo)
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	_, _ = zip.Write(bytes.Repeat([]byte(" "), 8<<20))
	_ = zip.Close()
	call := func(content string) string {
		return `{"method":"plugin.action.invoke","params":{"moduleId":"m","action":"A","content":` + content + `}}`
	}
	for name, c := range map[string]struct{ head, body, want string }{
		"deep":                       {"", call(strings.Repeat(`{"a":`, 50_000)), "levels deep"},
		"deep where nobody looks":    {"", `{"x":` + strings.Repeat("[", 50_000), "levels deep"},
		"two methods":                {"", `{"method":"fs.list","method":"fs.writeText","params":{}}`, `\"method\" is given twice`},
		"two methods, one escaped":   {"", `{"method":"fs.list","m\u0065thod":"fs.writeText","params":{}}`, `\"method\" is given twice`},
		"two params":                 {"", `{"method":"fs.list","params":{},"params":{"path":"/"}}`, `\"params\" is given twice`},
		"not UTF-8":                  {"", call("\"\xff\""), "UTF-8"},
		"half a surrogate as method": {"", `{"method":"\ud800"}`, CodeUnavailable},
		"huge number":                {"", `{"method":"fs.readText","params":{"path":"a","maxBytes":1e999}}`, "finite"},
		"huge digits": {
			"", `{"method":"fs.readText","params":{"path":"a","maxBytes":` + strings.Repeat("9", 500_000) + `}}`,
			"finite",
		},
		"compressed":         {"Content-Encoding: gzip\r\n", bomb.String(), CodeDecodeFailed},
		"nothing but blanks": {"", strings.Repeat(" ", 1<<19), CodeDecodeFailed},
		"too large":          {"", strings.Repeat(" ", 1<<21), "limit of 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := speak(t, srv, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%sContent-Length: %d\r\n\r\n%s", PathInvoke,
				c.head, len(c.body), c.body))
			if !strings.Contains(got, `{"ok":false,"error":{`) || !strings.Contains(got, c.want) {
				t.Errorf(`%.300s; want got with "{\"ok\":false,\"error\":{", got with %v`, got, c.want)
			}
		})
	}
	for name, head := range map[string]string{
		"two lengths":            "Content-Length: 2\r\nContent-Length: 3\r\n",
		"negative length":        "Content-Length: -1\r\n",
		"length and chunks":      "Content-Length: 5\r\nTransfer-Encoding: chunked, identity\r\n",
		"giant header":           "X-A: " + strings.Repeat("a", 2<<20) + "\r\n",
		"a header name of blank": "X A: b\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := speak(t, srv, "POST "+PathInvoke+" HTTP/1.1\r\nHost: x\r\n"+head+"\r\n{}")
			if line, _, _ := strings.Cut(got, "\r\n"); got != "" && !strings.HasPrefix(line, "HTTP/1.1 4") &&
				!strings.HasPrefix(line, "HTTP/1.1 501") {
				t.Errorf("%.300s", got)
			}
		})
	}
}

// Chunks without end are read up to the limit.
func TestEndlessRequestIsReadUpToTheLimitOnly(t *testing.T) {
	srv := serve(t, "", HandlerOptions{MaxBody: 100_000}, echo)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.WriteString(conn, "POST "+PathInvoke+" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
		chunk := "3e8\r\n" + strings.Repeat(" ", 1000) + "\r\n"
		for {
			if _, err := io.WriteString(conn, chunk); err != nil {
				return // the server has hung up
			}
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Fatalf("%v, %v; want no error, resp.StatusCode = http.StatusRequestEntityTooLarge", resp, err)
	}
	_ = resp.Body.Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the server reads on")
	}
}

// A length is only a claim: nothing is set aside for what has not come.
func TestADeclaredLengthIsNotAllocated(t *testing.T) {
	h := &handler{opts: HandlerOptions{MaxBody: DefaultMaxBody}}
	r := httptest.NewRequest(http.MethodPost, PathInvoke, strings.NewReader("{}"))
	r.ContentLength = DefaultMaxBody
	var buf bytes.Buffer
	if e := h.readBody(&buf, r); e != nil || buf.Cap() > 1<<17 {
		t.Errorf("%d bytes for a body of %d: %v; want e = nil, buf.Cap() at most 1 << 17", buf.Cap(), buf.Len(), e)
	}
}
