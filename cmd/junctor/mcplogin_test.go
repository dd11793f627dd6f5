package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUpstreamFlagsOfOAuth(t *testing.T) {
	t.Parallel()
	var got struct{ OAuth map[string]any }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.OAuth = nil
		_ = json.NewDecoder(r.Body).Decode(&got)
		_, _ = io.WriteString(w, `{"name":"far","state":"unauthenticated","login":{}}`)
	}))
	t.Cleanup(server.Close)
	for _, c := range []struct {
		args []string
		want map[string]any
	}{
		{nil, nil},
		{[]string{"--oauth"}, map[string]any{}},
		{[]string{"--login", "each"}, map[string]any{"login": "each"}},
		{
			[]string{"--client-id", "me", "--client-secret", "key", "--client-credentials"},
			map[string]any{"client_id": "me", "client_secret": "key", "grant": "client_credentials"},
		},
		{
			[]string{"--client-id", "me", "--exchange", "ours", "--exchange-type", "id_token"},
			map[string]any{"client_id": "me", "grant": "token_exchange", "subject_secret": "ours", "subject_type": "id_token"},
		},
		{
			[]string{"--issuer", "https://i", "--scope", "a", "--scope", "b", "--client-metadata", "https://m/c"},
			map[string]any{"issuer": "https://i", "scopes": []any{"a", "b"}, "client_metadata": "https://m/c"},
		},
	} {
		var out bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &out}
		args := append([]string{"--server", server.URL, "--token", "t", "upstreams", "add", "far", "--url", "https://far.example/mcp"}, c.args...)
		if status := a.execute(t.Context(), args); status != 0 {
			t.Errorf("%v: %d %s; want status = 0", c.args, status, out.String())
		}
		if diff := cmp.Diff(c.want, got.OAuth); diff != "" {
			t.Errorf(`%v: %s; want diff = ""`, c.args, diff)
		}
		if !strings.Contains(out.String(), "junctor mcp login far") {
			t.Errorf("output = %q, want it to name junctor mcp login far", out.String())
		}
	}
}

// TestUpstreamsLogin goes the way of a person: to the address that is shown, and from
// there to the one that listens. What strangers send there meanwhile is not taken.
func TestUpstreamsLogin(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var redirect, answer string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var step struct{ Redirect, Answer string }
		_ = json.NewDecoder(r.Body).Decode(&step)
		if r.URL.Path != "/api/v1/upstreams/far/login" {
			t.Errorf("path = %q, want /api/v1/upstreams/far/login", r.URL.Path)
		}
		if step.Redirect != "" {
			redirect = step.Redirect
			_, _ = io.WriteString(w, `{"url":"https://login.example/authorize?state=right"}`)
			return
		}
		answer = step.Answer
		_, _ = io.WriteString(w, `{"upstream":{"name":"far","state":"ready","counts":{"tools":3}}}`)
	}))
	t.Cleanup(server.Close)
	said, errs := io.Pipe()
	var out bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: errs}
	status := make(chan int, 1)
	go func() {
		status <- a.execute(t.Context(), []string{"--server", server.URL, "--token", "t", "upstreams", "login", "far"})
		errs.Close()
	}()
	lines := bufio.NewReader(said)
	until(t, lines, "https://login.example/authorize?state=right")
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	mu.Lock()
	to := redirect
	mu.Unlock()
	if u, err := url.Parse(to); err != nil || u.Hostname() != "127.0.0.1" || u.Port() == "" || u.Path != "/callback" {
		t.Fatalf("redirect = %q, want http://127.0.0.1:PORT/callback", to)
	}
	for query, want := range map[string]int{
		"?code=evil&state=wrong": http.StatusNotFound, "?code=evil": http.StatusNotFound,
		"x?code=evil&state=right": http.StatusNotFound,
	} {
		resp, err := http.Get(to + query)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d; want resp.StatusCode = %v", query, resp.StatusCode, want)
		}
	}
	resp, err := http.Get(to + "?code=good&state=right&iss=https%3A%2F%2Flogin.example")
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "close this window") {
		t.Errorf(`%d %s; want resp.StatusCode = http.StatusOK, string(page) with "close this window"`, resp.StatusCode, page)
	}
	if got := <-status; got != 0 || !strings.Contains(out.String(), "logged in to far: 3 tools") {
		t.Errorf(`%d %s; want got = 0, out.String() with "logged in to far: 3 tools"`, got, out.String())
	}
	mu.Lock()
	defer mu.Unlock()
	if answer != "code=good&state=right&iss=https%3A%2F%2Flogin.example" {
		t.Errorf("answer = %q, want the code, the state and the issuer of the redirect", answer)
	}
}
