package upstream_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/testkit/oauthclienttest"
	"github.com/junctor-run/junctor/internal/upstreams/oauthclient"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
	"github.com/junctor-run/junctor/secret"
)

// accounts is an MCP server whose tool whoami answers with the account of the access token, and the
// authorization server that gives the tokens. /authorize consents for the account in the query.
type accounts struct {
	url string

	mu       sync.Mutex
	codes    map[string]string // account of a code
	access   map[string]string // account of an access token
	refresh  map[string]string // account of a refresh token
	refused  map[string]bool   // accounts whose refresh tokens are refused
	sessions map[string]string // account that opened an MCP session
	mixed    []string          // uses of a session with the token of another account
	count    int
}

func newAccounts(t *testing.T) *accounts {
	t.Helper()
	a := &accounts{
		codes: make(map[string]string), access: make(map[string]string), refresh: make(map[string]string), refused: make(map[string]bool),
		sessions: make(map[string]string),
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "accounts", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "whoami", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "account " + r.Extra.Header.Get("X-Account")}}}, nil
		})
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	say := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-protected-resource", func(w http.ResponseWriter, _ *http.Request) {
		say(w, 200, map[string]any{"resource": a.url, "authorization_servers": []string{a.url}})
	})
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		say(w, 200, map[string]any{
			"issuer": a.url, "authorization_endpoint": a.url + "/authorize", "token_endpoint": a.url + "/token",
			"code_challenge_methods_supported": []string{"S256"},
		})
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		a.mu.Lock()
		a.count++
		code := fmt.Sprintf("code-%d", a.count)
		a.codes[code] = q.Get("account")
		a.mu.Unlock()
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": q["state"]}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		account, ok := a.codes[r.PostFormValue("code")]
		if old := r.PostFormValue("refresh_token"); old != "" {
			account, ok = a.refresh[old]
			ok = ok && !a.refused[account]
			delete(a.refresh, old)
		}
		if !ok {
			say(w, 400, map[string]any{"error": "invalid_grant"})
			return
		}
		a.count++
		access, refresh := fmt.Sprintf("access-%d-%s", a.count, account), fmt.Sprintf("refresh-%d-%s", a.count, account)
		a.access[access], a.refresh[refresh] = account, account
		say(w, 200, map[string]any{"access_token": access, "token_type": "bearer", "expires_in": 3600, "refresh_token": refresh})
	})
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		account := a.of(r.Header)
		if account == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Header.Set("X-Account", account)
		if session := r.Header.Get("Mcp-Session-Id"); session != "" {
			a.mu.Lock()
			if was, ok := a.sessions[session]; ok && was != account {
				a.mixed = append(a.mixed, was+" and "+account)
			}
			a.sessions[session] = account
			a.mu.Unlock()
		}
		inner.ServeHTTP(w, r)
	})
	web := httptest.NewServer(mux)
	a.url = web.URL
	t.Cleanup(func() {
		for session := range server.Sessions() { // of connections that could not end them without a token
			_ = session.Close()
		}
		web.CloseClientConnections()
		web.Close()
	})
	return a
}

func (a *accounts) of(h http.Header) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.access[strings.TrimPrefix(h.Get("Authorization"), "Bearer ")]
}

// withdraw makes the access tokens of an account invalid, and its refresh tokens too if refuse is set.
func (a *accounts) withdraw(account string, refuse bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused[account] = refuse
	for token, of := range a.access {
		if of == account {
			delete(a.access, token)
		}
	}
}

type eachRig struct {
	*rig
	far      *accounts
	vault    *oauthclienttest.Vault
	ann, bob capability.Principal
	helper   capability.Principal // acts for ann
}

func newEachRig(t *testing.T) *eachRig {
	t.Helper()
	r := &eachRig{far: newAccounts(t), vault: new(oauthclienttest.Vault)}
	r.rig = newRig(t, func(c *upstream.Config) { c.Dial, c.Tokens = upstream.DialMCP, r.vault })
	r.ann, r.bob = r.token(capability.RoleAgent, "ann", nil), r.token(capability.RoleAgent, "bob", nil)
	r.helper = r.token(capability.RoleTask, "helper", &r.ann)
	s := r.add("far", func(rec *record.Record) {
		rec.Command, rec.URL, rec.PrivateNetwork = nil, r.far.url+"/mcp", true
		rec.OAuth = &record.OAuth{ClientID: "me", Login: record.LoginEach}
	})
	if s.State != capability.StateUnauthorized || s.Isolation != record.PerPrincipal || !strings.Contains(s.Reason, "a login") {
		t.Fatalf("after add: got %s, isolation %s (%s), want %s, %s and a reason with a login", s.State, s.Isolation, s.Reason,
			capability.StateUnauthorized, record.PerPrincipal)
	}
	return r
}

func (r *eachRig) token(role capability.Role, name string, of *capability.Principal) capability.Principal {
	r.Helper()
	made, _, err := r.rules.CreateToken(r.Context(), admin(), policy.TokenRequest{Role: role, Name: name, OnBehalfOf: of})
	if err != nil {
		r.Fatalf("making the token %s: %v, want no error", name, err)
	}
	return made.Principal()
}

// begin begins a login, and returns the answer of the browser for an account.
func (r *eachRig) begin(by capability.Principal, of, account string) string {
	r.Helper()
	begun, err := r.Login(r.Context(), by, "far", upstream.LoginStep{Redirect: "http://127.0.0.1:1/callback", For: of})
	if err != nil {
		r.Fatalf("beginning the login of %s%s: %v, want no error", by.ID, of, err)
	}
	return consent(r.TB, begun.URL+"&account="+account)
}

func (r *eachRig) login(by capability.Principal, of, account string) {
	r.Helper()
	done, err := r.Login(r.Context(), by, "far", upstream.LoginStep{Answer: r.begin(by, of, account), For: of})
	if err != nil || done.Principal != cmp.Or(of, by.ID) || done.Upstream != nil {
		r.Fatalf("finishing the login of %s%s: got %+v, %v, want the principal and no record", by.ID, of, done, err)
	}
}

// whoami returns the account with which a call of a principal was made.
func (r *eachRig) whoami(who capability.Principal) (string, error) {
	r.Helper()
	reply, err := r.engine.Invoke(r.Context(), capability.Invocation{
		Surface: "test", Principal: who, Audience: capability.AudienceInternal, Input: json.RawMessage(`{}`),
		Target: capability.Target{Member: capability.Member{Module: "mcp.far", Kind: "tool", Name: "whoami"}},
	})
	_, account, _ := strings.Cut(string(reply.Result), "account ")
	account, _, _ = strings.Cut(account, `"`)
	return account, err
}

func (r *eachRig) is(who capability.Principal, want string) {
	r.Helper()
	if got, err := r.whoami(who); err != nil || got != want {
		r.Fatalf("a call of %s: got the account %q, %v, want %q", who.ID, got, err, want)
	}
}

func (r *eachRig) needsLogin(who capability.Principal, hint string) {
	r.Helper()
	got, err := r.whoami(who)
	if e := capability.AsError(err); err == nil || e.Code != capability.CodeUnavailable || e.Reason != oauthclient.ReasonLogin ||
		!strings.Contains(e.Hint, hint) {
		r.Fatalf("a call of %s: got the account %q and %+v, want the reason %s with the hint %q", who.ID, got, e, oauthclient.ReasonLogin, hint)
	}
}

func TestEachPrincipalCallsWithItsOwnLogin(t *testing.T) {
	r := newEachRig(t)
	r.login(r.ann, "", "account-a")
	r.listed("tool whoami")
	r.is(r.ann, "account-a")
	r.is(r.helper, "account-a") // it acts for ann
	r.needsLogin(r.bob, "junctor mcp login far --for agent:bob")
	r.needsLogin(admin(), "admin:root runs: junctor mcp login far")
	r.login(admin(), "agent:bob", "account-b")
	r.is(r.bob, "account-b")
	r.is(r.ann, "account-a")

	s := r.List()[0]
	if len(s.Logins) != 2 || s.Logins[0].Principal != "agent:ann" || !s.Logins[0].Lists || s.Logins[1].Principal != "agent:bob" ||
		s.Logins[1].Lists || s.Logins[1].Issuer != r.far.url || s.State != capability.StateReady {
		t.Errorf("the list: got %s and %+v, want %s and the logins of ann, which reads the lists, and bob", s.State, s.Logins, capability.StateReady)
	}
	text, err := json.Marshal(s)
	if err != nil || strings.Contains(string(text), "access-") || strings.Contains(string(text), "refresh-") {
		t.Errorf("the list: got %s, %v, want no token", text, err)
	}
	kept := r.vault.Text()
	if strings.Contains(kept, "access-") || strings.Contains(kept, "refresh-") || !strings.Contains(kept, "agent:bob") {
		t.Errorf("the store: got %s, want encrypted tokens with the names of their principals", kept)
	}
	r.audited(audit.CapabilityExecuted, "login agent:ann", 3)
	r.audited(audit.CapabilityExecuted, "login agent:bob", 1)
	r.audited(audit.UpstreamLoggedIn, "login agent:bob", 1)
}

// audited counts the records of an event with an attribute, "KEY VALUE".
func (r *eachRig) audited(event audit.Event, attr string, want int) {
	r.Helper()
	lines, err := r.log.Query(r.Context(), audit.Query{Event: event, Limit: 1000})
	key, value, _ := strings.Cut(attr, " ")
	got := 0
	for _, line := range lines {
		if strings.Contains(string(line), "access-") || strings.Contains(string(line), "refresh-") {
			r.Errorf("a record of %s: got %s, want no token", event, line)
		}
		if strings.Contains(string(line), `"`+key+`": "`+value+`"`) {
			got++
		}
	}
	if err != nil || got != want {
		r.Errorf("records of %s with %s: got %d of %d, %v, want %d", event, attr, got, len(lines), err, want)
	}
}

func TestNoPrincipalLogsInForAnother(t *testing.T) {
	r := newEachRig(t)
	person := capability.Principal{ID: "agent:oidc-cleo-123", Role: capability.RoleAgent}
	for name, c := range map[string]struct {
		by   capability.Principal
		of   string
		code capability.Code
	}{
		"an agent for another":            {r.ann, "agent:bob", capability.CodeDenied},
		"a task agent for its person":     {r.helper, "", capability.CodeDenied},
		"an operator for a person":        {admin(), person.ID, capability.CodeDenied},
		"an operator for an operator":     {admin(), "operator:olga", capability.CodeDenied},
		"an operator for a task agent":    {admin(), "task:helper", capability.CodeDenied},
		"an operator for an unknown name": {admin(), "agent:unknown", capability.CodeNotFound},
	} {
		_, err := r.Login(t.Context(), c.by, "far", upstream.LoginStep{Redirect: "http://127.0.0.1:1/", For: c.of})
		if capability.CodeOf(err) != c.code {
			t.Errorf("login of %s: got %v, want %s", name, err, c.code)
		}
		if _, err = r.Logout(t.Context(), c.by, "far", upstream.LogoutRequest{For: c.of}); capability.CodeOf(err) != c.code {
			t.Errorf("logout of %s: got %v, want %s", name, err, c.code)
		}
	}
	// The answer to a login of one principal does not log in another.
	answer := r.begin(r.ann, "", "account-a")
	if _, err := r.Login(t.Context(), r.bob, "far", upstream.LoginStep{Answer: answer}); capability.AsError(err).Reason != "unknown_login" {
		t.Errorf("bob with the answer to ann's login: got %v, want the reason unknown_login", err)
	}
	if got := r.vault.Text(); got != "" {
		t.Errorf("the store: got %s, want nothing", got)
	}
}

func TestTokensOfEachAreRenewedOrNeedALoginAgain(t *testing.T) {
	r := newEachRig(t)
	r.login(r.ann, "", "account-a")
	r.login(r.bob, "", "account-b")
	r.is(r.bob, "account-b")
	r.far.withdraw("account-a", false)
	r.is(r.ann, "account-a") // with another token
	r.far.withdraw("account-a", true)
	r.needsLogin(r.ann, "--for agent:ann")
	r.needsLogin(r.helper, "--for agent:ann")
	r.is(r.bob, "account-b")
	// The lists are read with the login of bob from now on.
	if _, err := r.Restart(t.Context(), admin(), "far"); err != nil {
		t.Fatalf("a restart with one of two logins: %v, want no error", err)
	}
	s := r.List()[0]
	if s.State != capability.StateReady || len(s.Logins) != 2 || s.Logins[1].Principal != "agent:bob" || !s.Logins[1].Lists ||
		s.Logins[0].Issuer != "" {
		t.Errorf("the list: got %s and %+v, want bob's login for the lists, and ann's without an issuer", s.State, s.Logins)
	}
	r.far.withdraw("", false)
	r.far.mu.Lock()
	r.far.refused = make(map[string]bool)
	r.far.mu.Unlock()
	r.login(r.ann, "", "account-a")
	r.is(r.ann, "account-a")
}

func TestALoginEndsWithTheTokenOfItsPrincipal(t *testing.T) {
	r := newEachRig(t)
	r.login(r.ann, "", "account-a")
	r.login(r.bob, "", "account-b")
	r.is(r.ann, "account-a")
	r.is(r.bob, "account-b")
	if _, err := r.rules.RevokeToken(t.Context(), admin(), "ann"); err != nil {
		t.Fatalf("revoking the token of ann: %v, want no error", err)
	}
	again := r.token(capability.RoleAgent, "ann", nil) // another principal of the same name
	r.needsLogin(again, "--for agent:ann")
	if err := r.EndLogins(t.Context()); err != nil {
		t.Fatalf("EndLogins: %v, want no error", err)
	}
	if kept := r.vault.Text(); strings.Contains(kept, "agent:ann") || !strings.Contains(kept, "agent:bob") {
		t.Errorf("the store: got %s, want bob's login only", kept)
	}
	r.audited(audit.UpstreamLoggedOut, "login agent:ann", 1)
	r.eventually("the lists are read with bob's login", func() bool {
		s := r.List()[0]
		return s.State == capability.StateReady && len(s.Logins) == 1 && s.Logins[0].Lists
	})
	r.is(r.bob, "account-b")

	if _, err := r.Logout(t.Context(), r.bob, "far", upstream.LogoutRequest{}); err != nil {
		t.Fatalf("logout of bob: %v, want no error", err)
	}
	r.needsLogin(r.bob, "--for agent:bob")
	if _, err := r.Logout(t.Context(), r.bob, "far", upstream.LogoutRequest{}); capability.AsError(err).Reason != "not_logged_in" {
		t.Errorf("another logout of bob: got %v, want the reason not_logged_in", err)
	}
	if kept := r.vault.Text(); kept != "" {
		t.Errorf("the store: got %s, want nothing", kept)
	}
	r.login(again, "", "account-c")
	r.is(again, "account-c")
	if err := r.Remove(t.Context(), admin(), "far"); err != nil || r.vault.Text() != "" {
		t.Errorf("after the removal: %v and %s, want no error and an empty store", err, r.vault.Text())
	}
}

func TestStoredLoginsAreOfTheirPrincipalOnly(t *testing.T) {
	far, vault, key, db := newAccounts(t), new(oauthclienttest.Vault), []byte(strings.Repeat("k", 32)), database(t)
	open := func() *eachRig {
		r := &eachRig{far: far, vault: vault}
		r.rig = newRigOn(t, db, newFar(), func(c *upstream.Config) { c.Dial, c.Tokens, c.LoginKey = upstream.DialMCP, vault, key })
		return r
	}
	r := open()
	r.ann, r.bob = r.token(capability.RoleAgent, "ann", nil), r.token(capability.RoleAgent, "bob", nil)
	r.add("far", func(rec *record.Record) {
		rec.Command, rec.URL, rec.PrivateNetwork = nil, far.url+"/mcp", true
		rec.OAuth = &record.OAuth{ClientID: "me", Login: record.LoginEach}
	})
	r.login(r.ann, "", "account-a")
	ann, bob := r.ann, r.bob
	r.halt()

	// A program that can write to the store cannot give ann's tokens to bob.
	rec := record.Record{Name: "far"}
	stolen, err := vault.Get(rec.LoginKey("agent:ann"))
	if err != nil {
		t.Fatalf("the login of ann: %v, want it stored", err)
	}
	_ = vault.Set(rec.LoginKey("agent:bob"), secret.New(strings.Replace(stolen.Reveal(), "agent:ann", "agent:bob", 1)))
	_ = vault.Set(rec.LoginKey("agent:cleo"), secret.New("damaged"))
	r = open()
	r.eventually("it is connected", func() bool { return r.List()[0].State == capability.StateReady })
	r.is(ann, "account-a")
	r.needsLogin(bob, "--for agent:bob")
}

func TestCallsOfManyPrincipalsAtOnceKeepTheirLogins(t *testing.T) {
	r := newEachRig(t)
	r.login(r.ann, "", "account-a")
	r.login(r.bob, "", "account-b")
	r.listed("tool whoami")
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 15 {
				who, want := r.ann, "account-a"
				switch i % 3 {
				case 1:
					who, want = r.bob, "account-b"
				case 2:
					who = r.helper
				}
				got, err := r.whoami(who)
				if got != want && (got != "" || capability.CodeOf(err) != capability.CodeUnavailable) {
					t.Errorf("a call of %s: got the account %q, %v, want %q or unavailable", who.ID, got, err, want)
				}
			}
		})
	}
	group.Go(func() { // tokens are renewed, logins end and are made again
		for range 5 {
			r.far.withdraw("account-a", false)
			r.far.withdraw("account-b", false)
			if _, err := r.Logout(t.Context(), r.bob, "far", upstream.LogoutRequest{}); err != nil {
				t.Errorf("logout of bob: %v, want no error", err)
			}
			r.login(r.bob, "", "account-b")
		}
	})
	group.Wait()
	r.is(r.ann, "account-a")
	r.is(r.bob, "account-b")
	r.far.mu.Lock()
	defer r.far.mu.Unlock()
	if len(r.far.mixed) > 0 {
		t.Errorf("sessions with the tokens of two accounts: got %q, want none", r.far.mixed)
	}
}
