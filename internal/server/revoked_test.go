package server_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/junctor-run/junctor/internal/endpoints/reference"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// What a token or a session of the console has opened ends with it: nothing is typed into a terminal and no event is
// read afterwards.
func TestWhatIsOpenEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	operator := func(name string) (id, token string) {
		t.Helper()
		var made struct{ ID, Token string }
		n.must(t, http.MethodPost, "/api/v1/tokens", map[string]any{"role": "operator", "name": name}, &made)
		return made.ID, made.Token
	}
	revoke := func(id string) { n.must(t, http.MethodDelete, "/api/v1/tokens/"+id, nil, nil) }
	// session signs a browser in with a token and returns the id of its session and a ticket for a terminal.
	session := func(token string) (id, ticket string) {
		t.Helper()
		var link struct{ URL string }
		if err := n.client(t, token).Do(t.Context(), http.MethodPost, "/api/v1/console/codes", nil, &link); err != nil {
			t.Fatalf("a code: got %v, want no error", err)
		}
		_, code, _ := strings.Cut(link.URL, "#c=")
		jar, _ := cookiejar.New(nil)
		b := newBrowser(t, n.url, jar)
		var got struct{ ID, Secret string }
		b.send(http.MethodPost, "/console/session", `{"code":"`+code+`"}`, &got)
		b.secret = got.Secret
		var made struct{ Ticket string }
		if status := b.send(http.MethodPost, "/console/tickets", "", &made); status != http.StatusCreated {
			t.Fatalf("a ticket: status %d, want 201", status)
		}
		return got.ID, made.Ticket
	}
	open := func(o websocket.DialOptions) *websocket.Conn {
		t.Helper()
		conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(n.url, "http")+"/api/task-agents/console", &o)
		if err != nil {
			t.Fatalf("open the console: got %v, want no error", err)
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		return conn
	}
	ask := func(conn *websocket.Conn) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"subscribe","session":"none"}`)); err != nil {
			return "", err
		}
		_, data, err := conn.Read(ctx)
		return string(data), err
	}
	bearer := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

	for name, start := range map[string]func() (conn *websocket.Conn, end func()){
		"a terminal of a revoked token": func() (*websocket.Conn, func()) {
			id, token := operator("ann")
			return open(websocket.DialOptions{HTTPHeader: bearer(token)}), func() { revoke(id) }
		},
		"a terminal of a browser whose token is revoked": func() (*websocket.Conn, func()) {
			id, token := operator("ben")
			_, ticket := session(token)
			return open(websocket.DialOptions{Subprotocols: []string{"junctor", "ticket." + ticket}}), func() { revoke(id) }
		},
		"a terminal of a browser whose session is ended": func() (*websocket.Conn, func()) {
			_, token := operator("eve")
			id, ticket := session(token)
			return open(websocket.DialOptions{Subprotocols: []string{"junctor", "ticket." + ticket}}), func() {
				n.must(t, http.MethodDelete, "/api/v1/console/sessions/"+id, nil, nil)
			}
		},
	} {
		conn, end := start()
		if got, err := ask(conn); err != nil || !strings.Contains(got, `"error"`) {
			t.Errorf("%s, before: got %s, %v, want an answer", name, got, err)
		}
		end()
		if got, err := ask(conn); err == nil {
			t.Errorf("%s, afterwards: got %s, want that the connection ends", name, got)
		}
	}

	id, token := operator("dan")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/api/v1/events", nil)
	if err != nil {
		t.Fatalf("a request: got %v, want no error", err)
	}
	req.Header = bearer(token)
	feed, err := http.DefaultClient.Do(req)
	if err != nil || feed.StatusCode != http.StatusOK {
		t.Fatalf("the feed: got %v, %v, want 200", feed, err)
	}
	defer feed.Body.Close()
	revoke(id) // which is an event
	operator("after")
	got, err := io.ReadAll(feed.Body)
	if err != nil || strings.Count(string(got), id) > 1 || strings.Contains(string(got), `"after"`) {
		t.Errorf("the feed of a revoked token: got %s, %v, want that it ends before the event about %s", got, err, id)
	}
}

// The stream of an MCP session of a revoked token sends nothing more.
func TestAnMCPStreamIsSilentWithoutItsCredential(t *testing.T) {
	t.Parallel()
	device, err := reference.New(reference.Config{})
	if err != nil {
		t.Fatalf("an endpoint: got %v, want no error", err)
	}
	t.Cleanup(func() { _ = device.Close() })
	far := httptest.NewServer(router.Handler(router.RequireToken(secret.Value{}, device), router.HandlerOptions{}))
	t.Cleanup(far.Close)
	n := serve(t, t.TempDir())
	listen := func(name string) (id string, stream io.ReadCloser) {
		t.Helper()
		var made struct{ ID, Token string }
		n.must(t, http.MethodPost, "/api/v1/tokens", map[string]any{"role": "agent", "name": name}, &made)
		send := func(method, session, body string) *http.Response {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, n.url+"/mcp", strings.NewReader(body))
			if err != nil {
				t.Fatalf("a request: got %v, want no error", err)
			}
			for k, v := range map[string]string{
				"Authorization": "Bearer " + made.Token, "Accept": "application/json, text/event-stream", "Content-Type": "application/json",
				"Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-11-25",
			} {
				if v != "" {
					req.Header.Set(k, v)
				}
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil || resp.StatusCode >= 300 {
				t.Fatalf("%s %s: got %v, %v, want success", method, body, resp, err)
			}
			t.Cleanup(func() { _ = resp.Body.Close() })
			return resp
		}
		first := send(http.MethodPost, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},`+
			`"clientInfo":{"name":"test","version":"1"}}}`)
		session := first.Header.Get("Mcp-Session-Id")
		_, _ = io.Copy(io.Discard, first.Body)
		send(http.MethodPost, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		return made.ID, send(http.MethodGet, session, "").Body
	}
	id, revoked := listen("ann")
	_, other := listen("ben")
	n.must(t, http.MethodDelete, "/api/v1/tokens/"+id, nil, nil)
	n.must(t, http.MethodPost, "/api/capability-router/connect", map[string]any{"endpoint": map[string]any{"id": "far", "baseUrl": far.URL}}, nil)
	for heard := bufio.NewScanner(other); !strings.Contains(heard.Text(), "list_changed"); {
		if !heard.Scan() {
			t.Fatalf("the stream of another token ended: %v, want a notice of the new tools", heard.Err())
		}
	}
	n.kill()
	if got, _ := io.ReadAll(revoked); strings.Contains(string(got), "list_changed") {
		t.Errorf("the stream of the revoked token: got %s, want nothing after its end", got)
	}
}
