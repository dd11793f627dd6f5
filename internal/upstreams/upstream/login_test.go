package upstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/testkit/oauthclienttest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// guardedServer is an MCP server that wants tokens, with the authorization server that
// gives them at the same origin. It returns the URL of the one, and a way to withdraw
// all tokens of the other.
func guardedServer(t *testing.T) (address string, withdraw func()) {
	t.Helper()
	var mu sync.Mutex
	valid, count := []string{}, 0
	server := sdkServer()
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	mux := http.NewServeMux()
	var web *httptest.Server
	say := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /.well-known/oauth-protected-resource", func(w http.ResponseWriter, _ *http.Request) {
		say(w, map[string]any{"resource": web.URL, "authorization_servers": []string{web.URL}})
	})
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		say(w, map[string]any{
			"issuer": web.URL, "authorization_endpoint": web.URL + "/authorize", "token_endpoint": web.URL + "/token",
			"code_challenge_methods_supported": []string{"S256"},
		})
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {"the-code"}, "state": q["state"]}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if id, pass, _ := r.BasicAuth(); id != "me" || pass != "s3cret" || r.PostFormValue("grant_type") == "refresh_token" ||
			r.PostFormValue("subject_token_type") != "" && r.PostFormValue("subject_token") != "s3cret" {
			w.WriteHeader(http.StatusBadRequest)
			say(w, map[string]any{"error": "invalid_grant"})
			return
		}
		count++
		valid = append(valid, fmt.Sprintf("access-%d", count))
		say(w, map[string]any{"access_token": valid[len(valid)-1], "token_type": "bearer", "expires_in": 3600, "refresh_token": "refresh-1"})
	})
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		good := slices.Contains(valid, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		mu.Unlock()
		if !good {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
	web = httptest.NewServer(mux)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	return web.URL + "/mcp", func() {
		mu.Lock()
		defer mu.Unlock()
		valid = nil
	}
}

// consent visits the address of a login, and returns the query that comes back.
func consent(t testing.TB, address string) string {
	t.Helper()
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		t.Fatal(err)
	}
	return back.RawQuery
}

func oauthRig(t *testing.T, v *oauthclienttest.Vault) *rig {
	t.Helper()
	return newRig(t, func(c *upstream.Config) {
		c.Dial, c.Tokens = upstream.DialMCP, v
	})
}

func TestAnUpstreamIsLoggedInTo(t *testing.T) {
	address, withdraw := guardedServer(t)
	v := new(oauthclienttest.Vault)
	r := oauthRig(t, v)
	s := r.add("far", func(rec *record.Record) {
		rec.Command, rec.URL, rec.PrivateNetwork = nil, address, true
		rec.OAuth = &record.OAuth{ClientID: "me", ClientSecret: "key", Scopes: []string{"read"}}
	})
	if s.State != capability.StateUnauthorized || !strings.Contains(s.Reason, "a login") {
		t.Fatalf(`%+v; want s.State = capability.StateUnauthorized, s.Reason with "a login"`, s)
	}
	step := func(step upstream.LoginStep) (upstream.LoginResult, error) {
		return r.Login(t.Context(), admin(), "far", step)
	}
	for _, bad := range []upstream.LoginStep{
		{},
		{Redirect: "https://evil.example/"},
		{Redirect: "http://127.0.0.1.evil.example:1/"},
		{Redirect: "http://127.0.0.1/"},
		{Redirect: "http://me@127.0.0.1:1/"},
		{Answer: "code=the-code&state=none"},
		{Answer: "%zz"},
		{Redirect: "http://127.0.0.1:1/", Answer: "x"},
	} {
		if _, err := step(bad); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%+v: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", bad, err)
		}
	}
	login := func() {
		t.Helper()
		begun, err := step(upstream.LoginStep{Redirect: "http://127.0.0.1:1/callback"})
		if err != nil {
			t.Fatal(err)
		}
		done, err := step(upstream.LoginStep{Answer: consent(t, begun.URL)})
		if err != nil || done.Upstream == nil || done.Upstream.State != capability.StateReady || done.Upstream.Login.Issuer == "" {
			t.Fatalf("%+v %v; want no error, done.Upstream not nil, done.Upstream.State = capability.StateReady, "+
				`done.Upstream.Login.Issuer other than ""`, done, err)
		}
	}
	login()
	if out, err := r.tool("echo", `{"n":1}`); err != nil || !strings.Contains(out, "n") {
		t.Fatalf(`r.tool: err = %v, want nil; out = %q, want it to contain "n"`, err, out)
	}
	text, err := json.Marshal(r.List())
	if err != nil || strings.Contains(string(text), "access-") || strings.Contains(string(text), "s3cret") ||
		strings.Contains(v.Text(), "s3cret") || !strings.Contains(v.Text(), "access-1") {
		t.Errorf(`%s, %s; want no error, string(text) without "access-", string(text) without "s3cret", v.Text() without `+
			`"s3cret", v.Text() with "access-1"`, text, v.Text())
	}

	// What it takes back, a user has to give again; no call waits for it.
	withdraw()
	_, err = r.tool("echo", `{}`)
	if e := capability.AsError(err); err == nil || !strings.Contains(e.Message+e.Hint, "a login") {
		t.Errorf(`%+v; want an error, e.Message + e.Hint with "a login"`, err)
	}
	if s := r.List()[0]; s.State != capability.StateUnauthorized || !strings.Contains(s.Reason, "a login") {
		t.Errorf("after a call that needed a login the list has %s (%s), want %s with the reason", s.State, s.Reason,
			capability.StateUnauthorized)
	}
	login()
	if s := r.List()[0]; s.State != capability.StateReady {
		t.Errorf("after the login the list has %s (%s), want %s", s.State, s.Reason, capability.StateReady)
	}
	r.eventually("it can be called again", func() bool { _, err := r.tool("echo", `{}`); return err == nil })

	if err := r.Remove(t.Context(), admin(), "far"); err != nil {
		t.Fatal(err)
	}
	if text := v.Text(); strings.Contains(text, "access-") {
		t.Errorf(`tokens stay: %s; want text without "access-"`, text)
	}
	if _, err := step(upstream.LoginStep{Redirect: "http://127.0.0.1:1/"}); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
}

func TestUpstreamsThatNeedNobodyToLogIn(t *testing.T) {
	t.Run("client credentials", func(t *testing.T) {
		needsNobody(t, record.OAuth{Grant: "client_credentials", ClientID: "me", ClientSecret: "key"})
	})
	t.Run("token exchange", func(t *testing.T) {
		needsNobody(t, record.OAuth{Grant: "token_exchange", ClientID: "me", ClientSecret: "key", SubjectSecret: "key", SubjectType: "jwt"})
	})
}

func needsNobody(t *testing.T, oauth record.OAuth) {
	t.Helper()
	address, withdraw := guardedServer(t)
	r := oauthRig(t, new(oauthclienttest.Vault))
	s := r.add("far", func(rec *record.Record) {
		rec.Command, rec.URL, rec.PrivateNetwork = nil, address, true
		rec.OAuth = &oauth
	})
	if s.State != capability.StateReady || s.Counts.Tools == 0 {
		t.Fatalf("%+v; want s.State = capability.StateReady, s.Counts.Tools other than 0", s)
	}
	for range 3 {
		if _, err := r.tool("echo", `{}`); err != nil {
			t.Fatal(err)
		}
		withdraw() // the next call has a new one
	}
	_, err := r.Login(context.Background(), admin(), "far", upstream.LoginStep{Redirect: "http://127.0.0.1:1/"})
	if capability.AsError(err).Reason != "no_login" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "no_login"`, err)
	}
}

func TestOAuthThatCannotBe(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for name, change := range map[string]func(*record.Record){
		"for a command":       func(rec *record.Record) { rec.URL, rec.Command = "", []string{"server"} },
		"beside a token":      func(rec *record.Record) { rec.BearerSecret = "key" },
		"beside a header":     func(rec *record.Record) { rec.HeaderSecrets = map[string]string{"Authorization": "key"} },
		"an unknown grant":    func(rec *record.Record) { rec.OAuth.Grant = "password" },
		"no client id":        func(rec *record.Record) { rec.OAuth.Grant = "client_credentials" },
		"an exchange of none": func(rec *record.Record) { rec.OAuth.Grant, rec.OAuth.ClientID = "token_exchange", "me" },
		"a token not there": func(rec *record.Record) {
			rec.OAuth.Grant, rec.OAuth.ClientID, rec.OAuth.SubjectSecret = "token_exchange", "me", "nothing"
		},
		"a secret's value":    func(rec *record.Record) { rec.OAuth.ClientID, rec.OAuth.ClientSecret = "me", "no name!" },
		"a secret not there":  func(rec *record.Record) { rec.OAuth.ClientID, rec.OAuth.ClientSecret = "me", "nothing" },
		"an issuer over http": func(rec *record.Record) { rec.OAuth.Issuer = "http://issuer.example" },
		"too long a name":     func(rec *record.Record) { rec.Name = strings.Repeat("x", 101) },
		"a scope of two":      func(rec *record.Record) { rec.OAuth.Scopes = []string{"a b"} },
	} {
		rec := record.Record{Name: "far", URL: "https://far.example/mcp", OAuth: &record.OAuth{}}
		change(&rec)
		if _, err := r.Add(t.Context(), admin(), rec); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", name, err)
		}
	}
}

func TestTheAuthorizationServerOfAPublicUpstreamIsPublic(t *testing.T) {
	t.Parallel()
	reached := false
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer inside.Close()
	// Only what dials is asked here: a public upstream cannot be had in a test.
	client, err := upstream.AuthorizationClient("https://far.example/mcp")
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Get(inside.URL)
	if err == nil {
		resp.Body.Close()
	}
	if e := capability.AsError(err); reached || e.Reason != "address_denied" {
		t.Errorf(`%v %v; want reached = false, e.Reason = "address_denied"`, reached, err)
	}
}
