package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// rogue is an endpoint that is in order until its action is called.
func rogue(t *testing.T, onCall http.HandlerFunc) *httptest.Server {
	t.Helper()
	good := router.Handler(router.RequireToken(secret.Value{}, trial{"trial"}), router.HandlerOptions{})
	return serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`plugin.action.invoke`)) {
			onCall(w, r)
			return
		}
		good.ServeHTTP(w, r)
	})
}

func serveHTTP(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// behaviours are what a broken or hostile endpoint answers.
func behaviours(t *testing.T) map[string]http.HandlerFunc {
	hits := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed to another server, with Authorization %q", r.Header.Get("Authorization"))
	})
	reply := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	return map[string]http.HandlerFunc{
		"no JSON":       reply(200, "<html>It works!</html>"),
		"nothing":       reply(200, ""),
		"half a JSON":   reply(200, `{"ok":true,"result":{"text`),
		"another shape": reply(200, `[1,2,3]`),
		"null":          reply(200, `null`),
		"not UTF-8":     reply(200, "{\"ok\":true,\"result\":\"\xff\xfe\"}"),
		"deep":          reply(200, `{"ok":true,"result":`+strings.Repeat("[", 1<<20)),
		"an HTML error": reply(500, "<h1>oops</h1>"),
		"teapot":        reply(418, `{}`),
		"an odd error":  reply(200, `{"ok":false,"error":"nope"}`),
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, hits.URL, http.StatusTemporaryRedirect)
		},
		"redirect loop": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) },
		"hangs up":      hangUp,
		"lies in length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "{")
		},
	}
}

func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		conn.Close()
	}
}

func (n *node) ping(t testing.TB, timeout string) error {
	t.Helper()
	var out client.Invoked
	return n.admin.Invoke(t.Context(), client.Invocation{Target: "trial:action:PING", Timeout: timeout}, &out)
}

// TestBrokenEndpointCannotBeConnected: whatever it answers, the answer is a
// typed error and nothing of the endpoint stays.
func TestBrokenEndpointCannotBeConnected(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	for name, h := range behaviours(t) {
		t.Run(name, func(t *testing.T) {
			body := map[string]any{"endpoint": map[string]any{"id": "bad", "baseUrl": serveHTTP(t, h).URL, "token": "given-in-confidence"}}
			err := n.admin.Do(t.Context(), http.MethodPost, "/api/capability-router/connect", body, nil)
			e := capability.AsError(err)
			if err == nil || e.Code == capability.CodeInternal || e.Message == "" {
				t.Errorf(`%v; want an error, e.Code other than capability.CodeInternal, e.Message other than ""`, err)
			}
			if strings.Contains(err.Error(), "given-in-confidence") {
				t.Errorf(`the token is in the error: %v; want err.Error() without "given-in-confidence"`, err)
			}
		})
	}
	for path, want := range map[string]string{"/api/capability-router/endpoints": `{"endpoints":[]}`, "/api/v1/secrets": `{"secrets":[]}`} {
		if a := n.request(t, "GET", path, n.token(t, "admin"), ""); a.body != want {
			t.Errorf("%s after failed connects: %s; want a.body = %v", path, a.body, want)
		}
	}
}

// TestBrokenAnswerFailsThatCall: an endpoint that was in order when it was
// connected and then answers nonsense costs its own calls only.
func TestBrokenAnswerFailsThatCall(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	for name, h := range behaviours(t) {
		t.Run(name, func(t *testing.T) {
			n.connect(t, "bad", rogue(t, h).URL, false)
			err := n.ping(t, "5s")
			e := capability.AsError(err)
			if err == nil || e.Code == capability.CodeInternal || e.Code == capability.CodeTimeout || e.Message == "" {
				t.Errorf("%v; want an error, e.Code other than capability.CodeInternal, e.Code other than "+
					`capability.CodeTimeout, e.Message other than ""`, err)
			}
			if a := n.request(t, "POST", "/api/v1/invocations", n.token(t, "admin"), `{"target":"fs.list"}`); a.status != http.StatusOK {
				t.Errorf("local files: %d %s; want a.status = http.StatusOK", a.status, a.body)
			}
		})
	}
	n.verify(t)
}

func TestSilentEndpointTimesOut(t *testing.T) {
	n := serve(t, t.TempDir())
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	began := time.Now()
	body := map[string]any{"endpoint": map[string]any{"id": "silent", "baseUrl": serveHTTP(t, hang).URL}, "requestTimeoutMs": 300}
	err := n.admin.Do(t.Context(), http.MethodPost, "/api/capability-router/connect", body, nil)
	if code := capability.CodeOf(err); code != capability.CodeTimeout && code != capability.CodeUnavailable {
		t.Errorf("connect: %v; want not (code != capability.CodeTimeout && code != capability.CodeUnavailable)", err)
	}
	n.connect(t, "silent", rogue(t, hang).URL, false)
	if err := n.ping(t, "300ms"); capability.CodeOf(err) != capability.CodeTimeout {
		t.Errorf("call: %v; want capability.CodeOf(err) = capability.CodeTimeout", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s; want took at most a minute", took)
	}
	ends := n.records(t, "event=capability_timeout")
	if len(ends) != 1 {
		t.Errorf("%d records of the timeout; want len(ends) = 1", len(ends))
	}
}

// TestEndlessAnswerIsCutOff: a gigabyte is refused at the limit, and what was
// read of it is given back.
func TestEndlessAnswerIsCutOff(t *testing.T) {
	t.Parallel()
	const (
		limit = 4 << 20
		calls = 100
		// What a connection holds that the server does not read: the buffers of both sockets.
		unread = 16 << 20
	)
	n := serve(t, t.TempDir(), "JUNCTOR_LIMITS_ENDPOINT_ANSWER=4MiB")
	var answers, taken atomic.Int64
	flood := func(prefix string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			answers.Add(1)
			_, _ = io.WriteString(w, prefix)
			chunk := bytes.Repeat([]byte("x"), 1<<20)
			for range 1 << 10 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
				taken.Add(1 << 20)
			}
		}
	}
	n.connect(t, "flood", rogue(t, flood(`{"ok":true,"result":"`)).URL, false)
	before := n.memory(t)
	for range calls {
		if err := n.ping(t, "20s"); capability.CodeOf(err) == "" || capability.CodeOf(err) == capability.CodeTimeout {
			t.Errorf(`call: %v; want capability.CodeOf(err) other than "", capability.CodeOf(err) other than capability.CodeTimeout`,
				err)
		}
	}
	// Kept answers would be at least their bytes; how much garbage there is at a time depends on load.
	if grew := n.memory(t) - before; grew >= limit*calls {
		t.Errorf("the server grew by %d MiB; want less than the %d MiB of all answers up to their limit", grew>>20, limit*calls>>20)
	}
	body := map[string]any{"endpoint": map[string]any{"id": "flood2", "baseUrl": serveHTTP(t, flood(`{"ok":true,"result":{"modules":["`)).URL}}
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/capability-router/connect", body, nil); err == nil {
		t.Error("it was connected; want an error")
	}
	if sent := taken.Load() / max(answers.Load(), 1); answers.Load() < calls || sent > limit+unread {
		t.Errorf("%d answers, of which %d bytes each were taken; want at least %d answers, at most %d bytes each", answers.Load(), sent, calls, limit+unread)
	}
}

// memory is the server's highest resident size so far, in bytes.
func (n *node) memory(t testing.TB) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.Process.Pid))
	if err != nil {
		t.Skip("no /proc to read the memory from")
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Skip("no VmHWM here")
	return 0
}
