package client_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/secret"
)

const token = "a-token-that-must-not-leak"

func dial(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := client.New(client.Config{URL: s.URL + "/", Token: secret.New(token)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAddressIsChecked(t *testing.T) {
	for _, url := range []string{"", "127.0.0.1:7777", "ftp://x", "http://", "http://user:pw@127.0.0.1", "::"} {
		if _, err := client.New(client.Config{URL: url}); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%q: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", url, err)
		}
	}
}

func TestInvoke(t *testing.T) {
	c := dial(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || r.URL.Path != "/api/v1/invocations" || r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf(`%s %s %v; want r.Method = http.MethodPost, r.URL.Path = "/api/v1/invocations", `+
				`r.Header.Get("Authorization") = "Bearer " + token`, r.Method, r.URL, r.Header)
		}
		if string(body) != `{"target":"fs.list","input":{"path":"."},"dry_run":true}` {
			t.Errorf(`body %s; want string(body) = "{\"target\":\"fs.list\",\"input\":{\"path\":\".\"},\"dry_run\":true}"`, body)
		}
		_, _ = io.WriteString(w, `{"ok":true,"result":[1],"invocation":{"id":"run_1"}}`)
	})
	var out client.Invoked
	if err := c.Invoke(t.Context(), client.Invocation{Target: "fs.list", Input: json.RawMessage(`{"path":"."}`), DryRun: true},
		&out); err != nil {
		t.Fatal(err)
	}
	if !out.OK || string(out.Result) != "[1]" {
		t.Errorf(`%+v; want out.OK = true, string(out.Result) = "[1]"`, out)
	}
}

// TestFailures: whatever a server answers becomes a typed error that holds no
// token; a redirect is not followed, for the token would go along.
func TestFailures(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer other.Close()
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want capability.Code
	}{
		"typed": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"error":{"code":"denied","reason":"forbidden","message":"no","hint":"ask"}}`)
		}, capability.CodeDenied},
		"HTML": {
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<h1>oops</h1>", http.StatusBadGateway) },
			capability.CodeFailed,
		},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, capability.CodeFailed},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}, capability.CodeFailed},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, capability.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			var out struct{ Any string }
			err := dial(t, c.h).Do(t.Context(), http.MethodGet, "/x", nil, &out)
			if capability.CodeOf(err) != c.want || strings.Contains(err.Error(), token) {
				t.Errorf("%v; want capability.CodeOf(err) = %v, err.Error() without %v", err, c.want, token)
			}
			for _, err := range dial(t, c.h).Lines(t.Context(), http.MethodGet, "/x", nil) {
				if err != nil && (capability.CodeOf(err) != c.want || strings.Contains(err.Error(), token)) {
					t.Errorf("lines: %v; want not (err != nil && (capability.CodeOf(err) != c.want || "+
						"strings.Contains(err.Error(), token)))", err)
				}
			}
		})
	}
}

func TestLines(t *testing.T) {
	c := dial(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "application/x-ndjson" {
			t.Errorf(`Accept %q; want r.Header.Get("Accept") = "application/x-ndjson"`, r.Header.Get("Accept"))
		}
		_, _ = io.WriteString(w, "{\"a\":1}\n\n{\"a\":2}\n{\"a\":3}\n")
	})
	var got []string
	for line, err := range c.Lines(t.Context(), http.MethodGet, "/x", nil) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, string(line)); len(got) == 2 {
			break
		}
	}
	if strings.Join(got, "") != `{"a":1}{"a":2}` {
		t.Errorf(`%q; want strings.Join(got, "") = "{\"a\":1}{\"a\":2}"`, got)
	}
}

func TestWait(t *testing.T) {
	asked := 0
	c := dial(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	if err := c.Wait(t.Context()); err != nil || asked != 3 {
		t.Errorf("%v after %d; want no error, asked = 3", err, asked)
	}
	never := dial(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := never.Wait(ctx); err == nil {
		t.Error("a server that is never ready is waited for with success; want an error")
	}
}

// TestEndOfContext tells an interrupted call from a late one.
func TestEndOfContext(t *testing.T) {
	c := dial(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Do(ctx, http.MethodGet, "/x", nil, nil); capability.CodeOf(err) != capability.CodeCancelled {
		t.Errorf("cancelled: %v; want capability.CodeOf(err) = capability.CodeCancelled", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Do(ctx, http.MethodGet, "/x", nil, nil); capability.CodeOf(err) != capability.CodeTimeout {
		t.Errorf("late: %v; want capability.CodeOf(err) = capability.CodeTimeout", err)
	}
}
