package oauth

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

// provider is an OpenID provider that answers as a test wants, mostly wrongly.
type provider struct {
	*issuer
	meta      map[string]any
	discovery http.HandlerFunc // replaces the metadata if set
	token     http.HandlerFunc // replaces the answer of the token endpoint if set
	info      map[string]any   // of the userinfo endpoint
	sign      func(claims map[string]any) string
	change    map[string]any // of the claims
	asked     url.Values     // by the last sign-in
	exchanges atomic.Int64
	auth      atomic.Pointer[string] // header of the last request to the token endpoint
	status    int                    // of the authorization endpoint
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{issuer: newIssuer(t), status: http.StatusFound}
	p.sign = func(claims map[string]any) string { return p.issuer.sign("RS256", "r", claims) }
	keys := p.url + "/keys"
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		if p.discovery != nil {
			p.discovery(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(p.meta)
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(p.status) })
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		p.exchanges.Add(1)
		header := r.Header.Get("Authorization")
		p.auth.Store(&header)
		w.Header().Set("Content-Type", "application/json")
		if p.token != nil {
			p.token(w, r)
			return
		}
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if r.FormValue("code") != "good" || b64(sum[:]) != p.asked.Get("code_challenge") || p.asked.Get("code_challenge_method") != "S256" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "at", "token_type": "Bearer", "id_token": p.sign(p.claims())})
	})
	mux.HandleFunc("/userinfo", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p.info)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p.url = server.URL
	p.meta = map[string]any{
		"issuer": p.url, "jwks_uri": keys, "authorization_endpoint": p.url + "/authorize", "token_endpoint": p.url + "/token",
	}
	return p
}

func (p *provider) claims() map[string]any {
	now := time.Now()
	c := map[string]any{
		"iss": p.url, "aud": "junctor", "sub": "u1", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "nonce": p.asked.Get("nonce"),
		"email": "ann@example.org", "email_verified": true, "groups": []string{"people", "ops"},
	}
	for k, v := range p.change {
		if from, ok := v.(time.Duration); ok { // from the time at which the token is made
			v = now.Add(from).Unix()
		}
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func (p *provider) login(change func(*LoginConfig)) *Login {
	p.t.Helper()
	cfg := LoginConfig{
		Issuer: p.url, ClientID: "junctor", GroupsClaim: "groups", Redirect: func() string { return "http://localhost:7777/console/oidc" },
		Rules: []Rule{{"group", "people", capability.RoleAgent}, {"group", "ops", capability.RoleOperator}},
	}
	if change != nil {
		change(&cfg)
	}
	l, err := NewLogin(cfg)
	if err != nil {
		p.t.Fatalf("NewLogin: got %v, want no error", err)
	}
	return l
}

// begin begins a sign-in and returns what the browser keeps.
func (p *provider) begin(l *Login) string {
	p.t.Helper()
	address, kept, err := l.Begin(p.t.Context())
	if err != nil {
		p.t.Fatalf("Begin: got %v, want no error", err)
	}
	u, err := url.Parse(address)
	if err != nil {
		p.t.Fatalf("the address %q: %v, want a URL", address, err)
	}
	p.asked = u.Query()
	return kept
}

// finish ends a sign-in that has begun.
func (p *provider) finish(l *Login, kept string) (Person, error) {
	return l.Finish(p.t.Context(), kept, Answer{Code: "good", State: p.asked.Get("state")})
}

// reasonOf returns the code and reason of an error.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	e := capability.AsError(err)
	return string(e.Code) + " " + e.Reason
}

func TestAPersonSignsIn(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	l := p.login(func(c *LoginConfig) {
		c.Secret = func() (secret.Value, error) { return secret.New("s:3cret"), nil }
		c.Scopes = []string{"groups"}
	})
	kept := p.begin(l)
	if got := p.asked; got.Get("response_type") != "code" || got.Get("scope") != "openid email profile groups" || got.Get("nonce") == "" ||
		got.Get("redirect_uri") != "http://localhost:7777/console/oidc" || len(got.Get("state")) < 32 {
		t.Errorf("the provider is asked with %v, want code, scopes, nonce, state and our address", got)
	}
	if strings.Contains(kept, p.asked.Get("state")) || len(kept) > maxSealed {
		t.Errorf("the browser keeps %q, want it encrypted", kept)
	}
	who, err := p.finish(l, kept)
	want := Person{Identity: who.Identity, Subject: "u1", Email: "ann@example.org", Role: capability.RoleOperator, Hint: who.Hint}
	if err != nil || who != want || len(who.Identity) != 12 {
		t.Errorf("got %+v, %v, want %+v with 12 digits", who, err, want)
	}
	if got := *p.auth.Load(); got != "Basic anVuY3RvcjpzJTNBM2NyZXQ=" {
		t.Errorf("the client shows itself with %q, want the escaped id and secret", got)
	}
	p.change = map[string]any{"sub": "u2"}
	kept = p.begin(l)
	if other, err := p.finish(l, kept); err != nil || other.Identity == who.Identity {
		t.Errorf("another person: got %+v, %v, want another identity than %s", other, err, who.Identity)
	}
}

func TestASignInIsGoodOnceForTheBrowserThatBeganIt(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	var ahead atomic.Int64
	l := p.login(func(c *LoginConfig) { c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	other := p.begin(l)
	kept := p.begin(l)
	state := p.asked.Get("state")
	const refused = "unauthenticated sign_in_state"
	try := func(what, kept string, a Answer, want string) {
		t.Helper()
		if _, err := l.Finish(t.Context(), kept, a); reasonOf(err) != want {
			t.Errorf("%s: got %v, want %q", what, err, want)
		}
	}
	try("a browser without a sign-in", "", Answer{Code: "good", State: state}, refused)
	try("the sign-in of another browser", other, Answer{Code: "good", State: state}, refused)
	try("a state that was changed", kept, Answer{Code: "good", State: state + "0"}, refused)
	try("what the browser keeps was changed", kept[:len(kept)-2]+"AA", Answer{Code: "good", State: state}, refused)
	try("what another server made", p.begin(p.login(nil)), Answer{Code: "good", State: p.asked.Get("state")}, refused)
	try("ten megabytes", strings.Repeat("A", 10<<20), Answer{Code: "good", State: state}, refused)
	if n := p.exchanges.Load(); n != 0 {
		t.Errorf("the provider received %d codes, want none so far", n)
	}
	kept = p.begin(l)
	state = p.asked.Get("state")
	elsewhere := Answer{Code: "good", State: state, Issuer: "https://evil.example"}
	try("the answer of another issuer", kept, elsewhere, "unauthenticated sign_in_token")
	try("a refusal of the provider", kept, Answer{State: state, Error: "access_denied"}, "denied sign_in_refused")
	try("a wrong code", kept, Answer{Code: "bad", State: state}, "denied sign_in_refused")
	try("a good code", kept, Answer{Code: "good", State: state, Issuer: p.url}, "")
	try("the same again", kept, Answer{Code: "good", State: state}, refused)
	kept = p.begin(l)
	ahead.Store(int64(loginTTL))
	try("after ten minutes", kept, Answer{Code: "good", State: p.asked.Get("state")}, refused)
}

func TestTokensOfAProviderThatDoNotHold(t *testing.T) {
	t.Parallel()
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatalf("making a key: %v", err)
	}
	const invalid, clock = "unauthenticated sign_in_token", "unauthenticated sign_in_clock"
	for name, c := range map[string]struct {
		change map[string]any
		alg    string
		want   string
	}{
		"of another issuer":               {change: map[string]any{"iss": "https://evil.example"}, want: invalid},
		"for another client":              {change: map[string]any{"aud": "other"}, want: invalid},
		"for several, made for another":   {change: map[string]any{"aud": []string{"other", "junctor"}, "azp": "other"}, want: invalid},
		"for several, made for we cannot": {change: map[string]any{"aud": []string{"other", "junctor"}}, want: invalid},
		"for several, made for us":        {change: map[string]any{"aud": []string{"other", "junctor"}, "azp": "junctor"}},
		"with another nonce":              {change: map[string]any{"nonce": "other"}, want: invalid},
		"without a nonce":                 {change: map[string]any{"nonce": nil}, want: invalid},
		"without a subject":               {change: map[string]any{"sub": nil}, want: invalid},
		"with an endless subject":         {change: map[string]any{"sub": strings.Repeat("a", 256)}, want: invalid},
		"with another access token":       {change: map[string]any{"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}, want: invalid},
		"expired":                         {change: map[string]any{"exp": -2 * time.Minute}, want: clock},
		"expired within the grace":        {change: map[string]any{"exp": -30 * time.Second}},
		"without an end":                  {change: map[string]any{"exp": nil}, want: invalid},
		"without a beginning":             {change: map[string]any{"iat": nil}, want: invalid},
		"made in the future":              {change: map[string]any{"iat": 2 * time.Minute}, want: clock},
		"valid in the future":             {change: map[string]any{"nbf": 2 * time.Minute}, want: clock},
		"valid within the grace":          {change: map[string]any{"nbf": 30 * time.Second, "iat": 30 * time.Second}},
		"unsigned":                        {alg: "none", want: invalid},
		"signed with the public key":      {alg: "HS256", want: invalid},
		"signed by a stranger":            {alg: "stranger", want: invalid},
		"elliptic":                        {alg: "ES256"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t)
			p.change = c.change
			switch c.alg {
			case "ES256":
				p.sign = func(claims map[string]any) string { return p.issuer.sign("ES256", "e", claims) }
			case "stranger":
				p.sign = func(claims map[string]any) string {
					forged := issuer{t: t, rsa: stranger}
					return forged.sign("RS256", "r", claims)
				}
			case "none", "HS256":
				p.sign = func(claims map[string]any) string { return p.issuer.sign(c.alg, "r", claims) }
			}
			l := p.login(nil)
			kept := p.begin(l)
			if _, err := p.finish(l, kept); reasonOf(err) != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestProvidersThatMisbehave(t *testing.T) {
	t.Parallel()
	const unavailable = "unavailable issuer_unavailable"
	for name, change := range map[string]func(p *provider){
		"metadata of ten megabytes": func(p *provider) {
			p.discovery = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 10<<20)) }
		},
		"metadata of another issuer": func(p *provider) { p.meta["issuer"] = "https://evil.example" },
		"metadata at another host": func(p *provider) {
			p.discovery = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
			}
		},
		"metadata that are not JSON":       func(p *provider) { p.meta = nil },
		"an authorization endpoint script": func(p *provider) { p.meta["authorization_endpoint"] = "javascript:alert(1)" },
		"a token endpoint without TLS":     func(p *provider) { p.meta["token_endpoint"] = "http://example.org/token" },
		"no keys":                          func(p *provider) { delete(p.meta, "jwks_uri") },
		"keys that cannot be fetched":      func(p *provider) { p.meta["jwks_uri"] = p.url + "/none" },
		"a token endpoint that redirects": func(p *provider) {
			p.token = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
			}
		},
		"a token endpoint with ten megabytes": func(p *provider) {
			p.token = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 10<<20)) }
		},
		"a userinfo endpoint that fails": func(p *provider) {
			p.change = map[string]any{"groups": nil}
			p.meta["userinfo_endpoint"] = p.url + "/none"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t)
			change(p)
			l := p.login(nil)
			address, kept, err := l.Begin(t.Context())
			if err == nil {
				u, _ := url.Parse(address)
				p.asked = u.Query()
				_, err = p.finish(l, kept)
			}
			if reasonOf(err) != unavailable {
				t.Errorf("got %v, want %q", err, unavailable)
			}
		})
	}
}

func TestAProviderThatHangsDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	entered, release := make(chan struct{}, maxLogins+1), make(chan struct{})
	p.discovery = func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}
	l := p.login(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer close(release)
	defer cancel()
	for range maxLogins {
		go func() { _, _, _ = l.Begin(ctx) }()
	}
	for deadline := time.Now().Add(time.Minute); len(l.busy) < maxLogins; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("requests that wait: got %d, want %d", len(l.busy), maxLogins)
		}
	}
	<-entered
	if _, _, err := l.Begin(ctx); capability.CodeOf(err) != capability.CodeOverloaded || capability.AsError(err).RetryAfter <= 0 {
		t.Errorf("one more than %d: got %v, want overloaded with a time", maxLogins, err)
	}
	if n := len(entered); n != 0 {
		t.Errorf("further fetches of the metadata at the same time: got %d, want 0", n)
	}
}

func TestARequestThatEndsDecidesForNoOneElse(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	var ahead atomic.Int64
	l := p.login(func(c *LoginConfig) { c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		_, _, _ = l.Begin(gone)
		if _, _, err := l.Begin(t.Context()); err != nil {
			t.Errorf("a sign-in after a request that ended: got %v, want no error", err)
		}
		ahead.Add(int64(metadataTTL))
	}
}

func TestAFailedRenewalKeepsTheProvider(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	var ahead, asked atomic.Int64
	l := p.login(func(c *LoginConfig) { c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	p.begin(l)
	entered, held := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	p.discovery = func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			close(entered)
			<-held
		}
		w.WriteHeader(http.StatusInternalServerError)
	}
	ahead.Store(int64(metadataTTL))
	done := make(chan error, 1)
	go func() {
		_, _, err := l.Begin(t.Context())
		done <- err
	}()
	<-entered
	p.begin(l) // does not wait for the renewal
	release()
	if err := <-done; err != nil {
		t.Errorf("the sign-in that renews: got %v, want no error", err)
	}
	p.begin(l)
	if n := asked.Load(); n != 1 {
		t.Errorf("the provider was asked %d times, want 1", n)
	}
	ahead.Add(int64(retryDelay))
	p.begin(l)
	if n := asked.Load(); n != 2 {
		t.Errorf("after a pause the provider was asked %d times, want 2", n)
	}
	if err := l.Check(t.Context()).Err; reasonOf(err) != "unavailable issuer_unavailable" {
		t.Errorf("Check: got %v, want issuer_unavailable", err)
	}
}

func TestARefusedProviderIsNotAskedAgainAtOnce(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	var asked atomic.Int64
	p.discovery = func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	}
	var ahead atomic.Int64
	l := p.login(func(c *LoginConfig) { c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	for range 5 {
		if _, _, err := l.Begin(t.Context()); reasonOf(err) != "unavailable issuer_unavailable" {
			t.Errorf("got %v, want issuer_unavailable", err)
		}
	}
	ahead.Store(int64(retryDelay))
	_, _, _ = l.Begin(t.Context())
	if n := asked.Load(); n != 2 {
		t.Errorf("the provider was asked %d times, want 2", n)
	}
}

func TestKeysOfAProviderAreRotated(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	l := p.login(nil)
	kept := p.begin(l)
	if _, err := p.finish(l, kept); err != nil {
		t.Fatalf("with the first key: got %v, want no error", err)
	}
	next := newIssuer(t)
	next.kid = "next"
	p.keys.Store(next)
	p.sign = func(claims map[string]any) string { return next.sign("RS256", "next", claims) }
	kept = p.begin(l)
	if _, err := p.finish(l, kept); err != nil {
		t.Errorf("with the next key: got %v, want no error", err)
	}
}

func TestRolesComeFromRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules  []string
		change map[string]any
		info   map[string]any
		claim  string
		want   capability.Role
	}{
		"a group":                         {rules: []string{"group:ops=operator"}, want: capability.RoleOperator},
		"the strongest of several":        {rules: []string{"group:ops=admin", "group:people=agent"}, want: capability.RoleAdmin},
		"another group":                   {rules: []string{"group:Ops=operator"}},
		"a group with an equals sign":     {rules: []string{"group:cn=ops=operator"}, change: map[string]any{"groups": []string{"cn=ops"}}, want: capability.RoleOperator},
		"groups as one text":              {rules: []string{"group:ops=operator"}, change: map[string]any{"groups": "ops"}, want: capability.RoleOperator},
		"groups of another type":          {rules: []string{"group:ops=operator"}, change: map[string]any{"groups": map[string]int{"ops": 1}}},
		"numbers among the groups":        {rules: []string{"group:ops=operator"}, change: map[string]any{"groups": []any{1, nil, "ops"}}, want: capability.RoleOperator},
		"a claim inside others":           {rules: []string{"group:ops=operator"}, claim: "realm.x.roles", change: map[string]any{"realm": map[string]any{"x": map[string]any{"roles": []string{"ops"}}}}, want: capability.RoleOperator},
		"a claim with dots":               {rules: []string{"group:ops=operator"}, claim: "a.b", change: map[string]any{"a.b": []string{"ops"}}, want: capability.RoleOperator},
		"an address":                      {rules: []string{"email:Ann@example.org=operator"}, want: capability.RoleOperator},
		"an address that is not verified": {rules: []string{"email:ann@example.org=operator"}, change: map[string]any{"email_verified": false}},
		"an address without a word":       {rules: []string{"email:ann@example.org=operator"}, change: map[string]any{"email_verified": nil}},
		"a verified address as a text":    {rules: []string{"email:ann@example.org=operator"}, change: map[string]any{"email_verified": "true"}, want: capability.RoleOperator},
		"a domain":                        {rules: []string{"domain:example.org=agent"}, want: capability.RoleAgent},
		"a domain that ends alike":        {rules: []string{"domain:ample.org=agent"}},
		"a domain in the local part":      {rules: []string{"domain:example.org=agent"}, change: map[string]any{"email": "ann@example.org@evil.example"}},
		"a subject":                       {rules: []string{"subject:u1=agent"}, want: capability.RoleAgent},
		"no rule":                         {},
		"groups of the userinfo endpoint": {
			rules: []string{"group:ops=operator"}, change: map[string]any{"groups": nil},
			info: map[string]any{"sub": "u1", "groups": []string{"ops"}}, want: capability.RoleOperator,
		},
		"an address of the userinfo endpoint": {
			rules: []string{"email:bea@example.org=operator"}, change: map[string]any{"email": nil},
			info: map[string]any{"sub": "u1", "email": "bea@example.org"}, // the word of the token is about another address
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t)
			p.change = c.change
			if p.info = c.info; c.info != nil {
				p.meta["userinfo_endpoint"] = p.url + "/userinfo"
			}
			l := p.login(func(cfg *LoginConfig) {
				cfg.Rules = nil
				if c.claim != "" {
					cfg.GroupsClaim = c.claim
				}
				for _, text := range c.rules {
					r, err := ParseRule(text)
					if err != nil {
						t.Fatalf("ParseRule(%q): got %v, want no error", text, err)
					}
					cfg.Rules = append(cfg.Rules, r)
				}
			})
			kept := p.begin(l)
			who, err := p.finish(l, kept)
			want := ""
			if c.want == "" {
				want = "denied no_role"
			}
			if who.Role != c.want || reasonOf(err) != want || who.Identity == "" {
				t.Errorf("got %+v, %v; want the role %q and the error %q, with the identity", who, err, c.want, want)
			}
		})
	}
	p := newProvider(t)
	p.change, p.info = map[string]any{"groups": nil}, map[string]any{"sub": "u2", "groups": []string{"ops"}}
	p.meta["userinfo_endpoint"] = p.url + "/userinfo"
	l := p.login(nil)
	kept := p.begin(l)
	if _, err := p.finish(l, kept); reasonOf(err) != "unauthenticated sign_in_token" {
		t.Errorf("the groups of another person: got %v, want sign_in_token", err)
	}
}

func TestRulesThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "=", "ops=operator", "group:=operator", "group:ops", "group:ops=", "group:ops=root", "group:ops=node", "everyone:x=agent"} {
		if r, err := ParseRule(text); err == nil {
			t.Errorf("ParseRule(%q) = %+v, want an error", text, r)
		}
	}
}

func TestAProgramSignsInThroughAnotherDevice(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	l := p.login(func(c *LoginConfig) { c.Secret = func() (secret.Value, error) { return secret.New("x"), nil } })
	if _, err := l.BeginDevice(t.Context()); reasonOf(err) != "unavailable device_login_unsupported" {
		t.Errorf("a provider without the flow: got %v, want device_login_unsupported", err)
	}
	answer := map[string]any{
		"device_code": "dc", "user_code": "ABCD", "verification_uri": p.url + "/device", "expires_in": -5, "interval": -1,
		"verification_uri_complete": "javascript:alert(1)",
	}
	var header atomic.Pointer[string]
	devices := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("Authorization")
		header.Store(&got)
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(devices.Close)
	p.meta["device_authorization_endpoint"] = devices.URL
	p.asked = url.Values{}
	var pending atomic.Int64
	p.token = func(w http.ResponseWriter, r *http.Request) {
		if pending.Add(1) == 1 || r.FormValue("device_code") != "dc" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"authorization_pending"}`))
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "at", "token_type": "Bearer", "id_token": p.sign(p.claims())})
	}
	l = p.login(func(c *LoginConfig) { c.Secret = func() (secret.Value, error) { return secret.New("x"), nil } })
	d, err := l.BeginDevice(t.Context())
	if err != nil || d.Code != "ABCD" || d.Complete != "" || time.Until(d.Expires) < time.Minute {
		t.Fatalf("got %+v, %v; want the code, an end in the future, and no address that is a script", d, err)
	}
	if got := *header.Load(); !strings.HasPrefix(got, "Basic ") {
		t.Errorf("the client shows itself with %q, want its id and secret", got)
	}
	answer["interval"] = 1
	if d, err = l.BeginDevice(t.Context()); err != nil {
		t.Fatalf("BeginDevice: got %v, want no error", err)
	}
	who, ok, err := l.FinishDevice(t.Context(), d.Login)
	if err != nil || !ok || who.Email != "ann@example.org" || pending.Load() != 2 {
		t.Errorf("got %+v, %v, %v after %d questions; want the person after two", who, ok, err, pending.Load())
	}
	if _, err := l.Finish(t.Context(), d.Login, Answer{Code: "good"}); reasonOf(err) != "unauthenticated sign_in_state" {
		t.Errorf("a browser with the sign-in of a program: got %v, want sign_in_state", err)
	}
	if _, _, err := l.FinishDevice(t.Context(), p.begin(l)); reasonOf(err) != "unauthenticated sign_in_state" {
		t.Errorf("a program with the sign-in of a browser: got %v, want sign_in_state", err)
	}
	p.token = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"access_denied"}`))
	}
	if _, _, err := l.FinishDevice(t.Context(), d.Login); reasonOf(err) != "denied sign_in_refused" {
		t.Errorf("a person who refuses: got %v, want sign_in_refused", err)
	}
	answer["verification_uri"] = "http://evil.example/"
	if _, err := l.BeginDevice(t.Context()); reasonOf(err) != "unavailable issuer_unavailable" {
		t.Errorf("an address without TLS: got %v, want issuer_unavailable", err)
	}
}

func TestTheDoctorLooksAtTheProvider(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	var ahead atomic.Int64
	l := p.login(func(c *LoginConfig) { c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	if got := l.Check(t.Context()); got.Err != nil || got.Refused != 0 || got.Skew.Abs() > 2*time.Second || got.Devices {
		t.Errorf("got %+v, want nothing wrong, and browsers only", got)
	}
	p.status = http.StatusBadRequest
	ahead.Store(int64(time.Hour))
	if got := l.Check(t.Context()); got.Err != nil || got.Refused != 400 || got.Skew > -59*time.Minute {
		t.Errorf("got %+v, want the status 400 and an hour behind", got)
	}
	p.meta["end_session_endpoint"] = p.url + "/nothing"
	if got := l.Check(t.Context()); got.EndRefused != http.StatusNotFound {
		t.Errorf("got %+v, want the status 404 of the sign-out", got)
	}
	p.meta["issuer"] = "https://evil.example"
	if got := l.Check(t.Context()); reasonOf(got.Err) != "unavailable issuer_unavailable" {
		t.Errorf("got %+v, want issuer_unavailable", got)
	}
}

func TestTheAddressOfASignOutIsTheProvidersOwn(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	signedOut := func() string { return "http://localhost:7777/console/signed-out" }
	end := func(endpoint any, hint string) string {
		p.meta["end_session_endpoint"] = endpoint
		return p.login(func(c *LoginConfig) { c.SignedOut = signedOut }).EndSession(t.Context(), hint, "st")
	}
	got, err := url.Parse(end(p.url+"/end?tenant=a", "hint"))
	if err != nil {
		t.Fatalf("the address: %v, want one", err)
	}
	want := url.Values{
		"tenant": {"a"}, "client_id": {"us"}, "id_token_hint": {"hint"}, "post_logout_redirect_uri": {signedOut()}, "state": {"st"},
	}
	for name := range want {
		if name != "client_id" && got.Query().Get(name) != want.Get(name) || got.Query().Get(name) == "" {
			t.Errorf("%s: got %q, want %q", name, got.Query().Get(name), want.Get(name))
		}
	}
	if got.Path != "/end" || "http://"+got.Host != p.url || len(got.Query()) != len(want) {
		t.Errorf("the address: got %s, want %s/end with %d parameters", got, p.url, len(want))
	}
	if got := end(p.url+"/end", ""); strings.Contains(got, "id_token_hint") || got == "" {
		t.Errorf("without a token: got %q, want an address without a hint", got)
	}
	for name, endpoint := range map[string]any{
		"none": "", "another host": "https://evil.example/end", "another port": "http://127.0.0.1:1/end", "a script": "javascript:alert(1)",
		"a user in the address": strings.Replace(p.url, "//", "//me@", 1) + "/end", "too long": p.url + "/" + strings.Repeat("a", 5000),
		"another type": 7, "not an address": "://", "another scheme": strings.Replace(p.url, "http:", "https:", 1) + "/end",
	} {
		if got := end(endpoint, "hint"); got != "" {
			t.Errorf("%s: got %q, want no address", name, got)
		}
	}
	p.discovery = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	if got := end(p.url+"/end", "hint"); got != "" {
		t.Errorf("a provider that does not answer: got %q, want no address", got)
	}
}

func TestTheTokenOfASignInIsTheHintForItsEnd(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	l := p.login(nil)
	who, err := p.finish(l, p.begin(l))
	if parts := strings.Split(who.Hint, "."); err != nil || len(parts) != 3 {
		t.Errorf("the hint: got %q, %v, want the token of the provider", who.Hint, err)
	}
	p.sign = func(claims map[string]any) string {
		claims["filler"] = strings.Repeat("a", maxHint)
		return p.issuer.sign("RS256", "r", claims)
	}
	if who, err = p.finish(l, p.begin(l)); err != nil || who.Hint != "" {
		t.Errorf("the hint of a long token: got %d bytes, %v, want none", len(who.Hint), err)
	}
}
