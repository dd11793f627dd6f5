package oauthclient_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/oauthclient"
	"github.com/junctor-run/junctor/secret"
)

func machine(_ *rig, cfg *oauthclient.Config) {
	cfg.ClientID = "me"
	cfg.ClientSecret = func() (secret.Value, error) { return secret.New(pass), nil }
	cfg.Grant, cfg.Visit = oauthclient.ClientCredentials, nil
}

func exchanging(_ *rig, cfg *oauthclient.Config) {
	cfg.ClientID, cfg.Grant, cfg.Visit = "me", oauthclient.TokenExchange, nil
	cfg.Subject = func() (secret.Value, error) { return secret.New(subject), nil }
}

func TestATokenOfAnotherIssuerIsExchanged(t *testing.T) {
	t.Parallel()
	kind := "urn:ietf:params:oauth:token-type:"
	r := newRig(t, func(r *rig, cfg *oauthclient.Config) {
		exchanging(r, cfg)
		cfg.SubjectType = "id_token"
	})
	r.works()
	form := r.by.last(t)
	want := url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token": {subject}, "subject_token_type": {kind + "id_token"},
		"requested_token_type": {kind + "access_token"}, "resource": {r.cfg.Resource}, "scope": {"read"}, "client_id": {"me"},
	}
	if form.Encode() != want.Encode() {
		t.Errorf("asked for with %v; want form.Encode() = want.Encode()", form)
	}
	r.pass(2 * time.Hour) // it is exchanged again, without being refused first
	before := len(r.up.seen)
	if r.works(); len(r.up.seen) != before+1 {
		t.Errorf("%v; want len(r.up.seen) = before + 1", r.up.seen)
	}
	if slices.Contains(r.up.seen, subject) {
		t.Errorf("the upstream was shown what is exchanged; want r.up.seen without %v", subject)
	}
	r.silent(nil)

	other := newRig(t, exchanging)
	other.by.set(func() { other.by.issued = kind + "saml2" })
	other.fails("unauthenticated", "something else than an access token")
	other.by.set(func() { other.by.refuse = "invalid_target" })
	other.fails("unauthenticated", "invalid_target")

	missing := newRig(t, func(r *rig, cfg *oauthclient.Config) {
		exchanging(r, cfg)
		cfg.Subject = func() (secret.Value, error) {
			return secret.Value{}, capability.Errorf(capability.CodeUnavailable, "secrets", "there is no secret ours").With("secret_missing", "")
		}
	})
	missing.fails("secret_missing", "no secret ours")
}

func TestClientCredentialsInEveryForm(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, method  string
		basic, inBody bool
		change        func(*rig, *oauthclient.Config)
	}{
		{"basic", "client_secret_basic", true, false, machine},
		{"post", "client_secret_post", false, true, machine},
		{"none", "none", false, false, func(r *rig, cfg *oauthclient.Config) {
			machine(r, cfg)
			cfg.ClientSecret = nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tc.change)
			r.by.set(func() { r.by.methods = []string{tc.method} })
			r.works()
			form := r.by.last(t)
			if form.Get("grant_type") != "client_credentials" || form.Get("scope") != "read" || form.Get("resource") != r.cfg.Resource {
				t.Errorf(`%v; want form.Get("grant_type") = "client_credentials", form.Get("scope") = "read", form.Get("resource") = %v`,
					form, r.cfg.Resource)
			}
			if got := r.by.basic[0] != ""; got != tc.basic {
				t.Errorf("basic: %v; want got = %v", got, tc.basic)
			}
			if got := form.Get("client_secret") == pass; got != tc.inBody {
				t.Errorf("in the body: %v; want got = %v", got, tc.inBody)
			}
			if !tc.basic && form.Get("client_id") != "me" {
				t.Errorf(`%v; want not (!tc.basic && form.Get("client_id") != "me")`, form)
			}
			r.pass(2 * time.Hour) // it ends, and another one is asked for without being refused first
			before := len(r.up.seen)
			r.works()
			if len(r.up.seen) != before+1 || r.up.seen[before] == r.up.seen[before-1] {
				t.Errorf("%v; want len(r.up.seen) = before + 1, r.up.seen[before] other than r.up.seen[before-1]", r.up.seen)
			}
			r.silent(nil)
		})
	}
}

func TestALoginLastsOverARestartAndIsRefreshed(t *testing.T) {
	t.Parallel()
	for _, rotate := range []bool{false, true} {
		r := newRig(t, nil)
		r.by.set(func() { r.by.rotate, r.by.methods = rotate, []string{"none"} })
		r.works()
		if got := r.by.authorized[0]; got.Get("scope") != "read" || got.Get("resource") != r.cfg.Resource ||
			got.Get("client_id") != "registered-1" {
			t.Errorf(`%v; want got.Get("scope") = "read", got.Get("resource") = %v, got.Get("client_id") = "registered-1"`,
				got, r.cfg.Resource)
		}
		if got := r.by.registered[0]; got["token_endpoint_auth_method"] != "none" || got["application_type"] != "native" {
			t.Errorf(`%v; want got["token_endpoint_auth_method"] = "none", got["application_type"] = "native"`, got)
		}
		r.cfg.Visit = nil
		r.open()
		r.works()
		for range 2 { // also where the refresh token stays the same
			r.pass(time.Hour)
			r.works()
			if form := r.by.last(t); form.Get("grant_type") != "refresh_token" || form.Get("resource") != r.cfg.Resource ||
				form.Get("client_id") != "registered-1" {
				t.Errorf(`%v; want form.Get("grant_type") = "refresh_token", form.Get("resource") = %v, form.Get("client_id") = `+
					`"registered-1"`, form, r.cfg.Resource)
			}
		}
		if asked, authorized, registered := r.by.counts(); asked != 3 || authorized != 1 || registered != 1 {
			t.Errorf("%d %d %d; want asked = 3, authorized = 1, registered = 1", asked, authorized, registered)
		}
		r.by.set(func() { r.by.tokens = nil }) // withdrawn before its time
		r.works()
		r.by.set(func() { r.by.tokens, r.by.refreshes = nil, map[string]bool{} })
		r.fails(oauthclient.ReasonLogin, "it needs a login")
		if text := r.vault.Text(); strings.Contains(text, "access") {
			t.Errorf(`what is of no use any more is kept: %s; want text without "access"`, text)
		}
		if s := r.State(); s.Issuer != "" {
			t.Errorf(`%+v; want s.Issuer = ""`, s)
		}
	}
}

func TestALoginInTwoSteps(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *rig, cfg *oauthclient.Config) { cfg.Visit = nil })
	begin := func() (string, url.Values) {
		address, err := r.Begin(t.Context(), "http://127.0.0.1:7/callback")
		if err != nil {
			t.Fatal(err)
		}
		query, err := r.visit(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		return address, query
	}
	refused := func(query url.Values, reason string) {
		t.Helper()
		err := r.Finish(t.Context(), query)
		if err == nil || capability.AsError(err).Reason != reason {
			t.Fatalf("%+v; want an error, capability.AsError(err).Reason = %v", err, reason)
		}
		r.silent(err)
	}
	r.fails(oauthclient.ReasonLogin, "needs a login")
	_, query := begin()
	foreign := url.Values{"code": query["code"], "state": {"made-up"}}
	refused(foreign, "unknown_login")
	if err := r.Finish(t.Context(), query); err != nil {
		t.Fatal(err)
	}
	r.works()
	if s := r.State(); s.Issuer != r.by.URL || !s.Renewed || len(s.Scopes) != 1 {
		t.Errorf("%+v; want s.Issuer = %v, s.Renewed = true, len(s.Scopes) = 1", s, r.by.URL)
	}
	refused(query, "unknown_login") // once only

	_, query = begin()
	refused(url.Values{"error": {"access_denied"}, "state": query["state"]}, oauthclient.ReasonRefused)
	refused(query, "unknown_login") // the refusal was its answer
	_, query = begin()
	r.pass(11 * time.Minute)
	refused(query, "unknown_login")
	r.works() // what there was is still good

	_, first := begin()
	for range 8 {
		r.pass(time.Second)
		begin()
	}
	refused(first, "unknown_login") // the oldest gives way
}

func TestTheIssuerOfAnAnswerIsChecked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		advertised bool
		iss        func(*giver) *string
		ok         bool
	}{
		"named and right":          {true, func(g *giver) *string { return &g.URL }, true},
		"named and missing":        {true, func(*giver) *string { return nil }, false},
		"named and another":        {true, func(*giver) *string { s := "https://evil.example"; return &s }, false},
		"named and nearly right":   {true, func(g *giver) *string { s := g.URL + "/"; return &s }, false},
		"not named and another":    {false, func(*giver) *string { s := "https://evil.example"; return &s }, false},
		"not named and not there":  {false, func(*giver) *string { return nil }, true},
		"not named and there anew": {false, func(g *giver) *string { return &g.URL }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.by.set(func() {
				r.by.change["authorization_response_iss_parameter_supported"] = tc.advertised
				r.by.iss = tc.iss(r.by)
			})
			if tc.ok {
				r.works()
				return
			}
			r.fails(oauthclient.ReasonRefused, "the login to it")
			if asked, _, _ := r.by.counts(); asked != 0 {
				t.Errorf("the code was shown to the token endpoint; got asked = %v; want asked = 0", asked)
			}
		})
	}
}

func TestAnotherAuthorizationServerGetsNothingOfTheFormer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.by.set(func() { r.by.methods = []string{"client_secret_post"} })
	r.works()
	second := newGiver(t)
	second.set(func() { second.methods = []string{"none"} })
	r.up.set(func() { r.up.by = second })
	r.works()
	if form := second.last(t); form.Get("grant_type") != "authorization_code" || form.Get("client_id") != "registered-1" ||
		strings.Contains(form.Encode(), "refresh-") {
		t.Errorf(`%v; want form.Get("grant_type") = "authorization_code", form.Get("client_id") = "registered-1", form.Encode() `+
			`without "refresh-"`, form)
	}
	if _, _, registered := second.counts(); registered != 1 {
		t.Errorf("the client of the former one was used; got registered = %v; want registered = 1", registered)
	}
	if text := r.vault.Text(); !strings.Contains(text, second.URL) || strings.Contains(text, r.by.URL) {
		t.Errorf("r.vault.Text() = %q, want it to contain %q and it not to contain %q", text, second.URL, r.by.URL)
	}
}

func TestAClientBelongsToItsIssuer(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig, cfg *oauthclient.Config) {
		machine(r, cfg)
		cfg.Issuer = "https://mine.example"
	})
	r.fails(oauthclient.ReasonRefused, "names no authorization server that may be used")
	if asked, _, _ := r.by.counts(); asked != 0 {
		t.Errorf("the client's secret was shown to another server; got asked = %v; want asked = 0", asked)
	}
}

func TestAClientStaysWithItsFirstIssuer(t *testing.T) {
	t.Parallel()
	r := newRig(t, machine)
	r.works()
	second := newGiver(t)
	first := r.by
	r.up.set(func() { r.up.by = second })
	for range 2 { // also after a restart
		r.fails(oauthclient.ReasonRefused, "its client belongs to "+first.URL)
		r.open()
	}
	if asked, _, _ := second.counts(); asked != 0 {
		t.Errorf("the client's secret was shown to another server; got asked = %v; want asked = 0", asked)
	}
	r.up.set(func() { r.up.by = first })
	r.works()
}

func TestALoginWithMoreScopes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.works()
	r.cfg.Visit = nil
	r.open()
	r.up.set(func() { r.up.more = "write" })
	for range 5 { // waiting for a user costs no attempts
		r.fails(oauthclient.ReasonLogin, "needs a login")
	}
	address, err := r.Begin(t.Context(), "http://127.0.0.1:7/callback")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil || u.Query().Get("scope") != "read write" {
		t.Fatalf("address = %q, err = %v; want scope read write", address, err)
	}
	query, err := r.visit(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	r.up.set(func() { r.up.more = "" })
	if err := r.Finish(t.Context(), query); err != nil {
		t.Fatal(err)
	}
	r.works()
}

func TestASilentAuthorizationServerIsNotAskedByAll(t *testing.T) {
	t.Parallel()
	r := newRig(t, machine)
	var mu sync.Mutex
	count := 0
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		count++
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer broken.Close()
	was := r.by.URL
	r.by.set(func() { r.by.change["token_endpoint"] = broken.URL })
	for range 5 {
		r.fails("connection_failed", "for now (HTTP 503)")
	}
	mu.Lock()
	if count != 1 {
		t.Errorf("asked %d times; want count = 1", count)
	}
	mu.Unlock()
	r.by.set(func() { r.by.change["token_endpoint"] = was + "/token" })
	r.pass(3 * time.Second)
	r.works()

	// While a token is good it is used, even if servers are silent.
	r.by.set(func() { r.by.change["token_endpoint"] = broken.URL })
	r.pass(time.Hour - 10*time.Second)
	r.works()
}

func TestMetadataIsJudged(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*rig)
		says   string
	}{
		"of another resource":          {func(r *rig) { r.up.resource = "https://evil.example/mcp" }, "of another resource"},
		"of a resource below":          {func(r *rig) { r.up.resource = r.up.URL + "/mcp/below" }, "of another resource"},
		"of another issuer":            {func(r *rig) { r.by.change["issuer"] = "https://evil.example" }, "is that of"},
		"without PKCE":                 {func(r *rig) { r.by.change["code_challenge_methods_supported"] = nil }, "PKCE"},
		"with plain PKCE":              {func(r *rig) { r.by.change["code_challenge_methods_supported"] = []string{"plain"} }, "PKCE"},
		"with a script as address":     {func(r *rig) { r.by.change["authorization_endpoint"] = "javascript:alert(1)" }, "may not be used"},
		"with a password in it":        {func(r *rig) { r.by.change["token_endpoint"] = "http://me:me@127.0.0.1/token" }, "may not be used"},
		"without a token endpoint":     {func(r *rig) { r.by.change["token_endpoint"] = nil }, "names no token endpoint"},
		"without registration":         {func(r *rig) { r.by.change["registration_endpoint"] = nil }, "needs a client id"},
		"too large":                    {func(r *rig) { r.by.change["issuer"] = strings.Repeat("x", 1<<20) }, "more than 1024 KiB"},
		"refusing by its token server": {func(r *rig) { r.by.refuse = "invalid_client" }, "invalid_client"},
		"with an error of its own":     {func(r *rig) { r.by.refuse = "look: code-1" }, "an error without a name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			tc.change(r)
			r.fails(oauthclient.ReasonRefused, tc.says)
		})
	}
}

func TestHTTPIsForLocalAddresses(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *rig, cfg *oauthclient.Config) { cfg.Plain = false })
	r.fails(oauthclient.ReasonRefused, "may not be used")
}

func TestAServerOf2025IsItsOwnIssuer(t *testing.T) {
	t.Parallel()
	// It has no metadata of either kind, and its endpoints are where they used to be.
	r := newRig(t, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /register", r.by.register)
	mux.HandleFunc("GET /authorize", r.by.authorize)
	mux.HandleFunc("POST /token", r.by.token)
	mux.HandleFunc("/mcp", r.up.serve)
	old := httptest.NewServer(mux)
	defer old.Close()
	r.cfg.Resource = old.URL + "/mcp"
	r.open()
	r.works()
	if s := r.State(); s.Issuer != old.URL {
		t.Errorf("%+v; want s.Issuer = %v", s, old.URL)
	}
}

func TestMoreScopesAreAskedForOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.works()
	r.up.set(func() { r.up.more = "write" })
	r.fails(oauthclient.ReasonRefused, "asked for and not given")
	if _, authorized, _ := r.by.counts(); authorized != 2 {
		t.Errorf("%d logins; want authorized = 2", authorized)
	}
	if got := r.by.authorized[1].Get("scope"); got != "read write" {
		t.Errorf(`%q; want got = "read write"`, got)
	}
	r.fails(oauthclient.ReasonRefused, "asked for and not given")
	if _, authorized, _ := r.by.counts(); authorized != 2 {
		t.Errorf("%d logins after another request; want authorized = 2", authorized)
	}
	r.up.set(func() { r.up.more = "" })
	r.works()
}

func TestAServerThatWantsEverMoreIsGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, machine)
	r.works()
	for _, scope := range []string{"a", "b", "c"} {
		r.up.set(func() { r.up.more = scope })
		r.fails(oauthclient.ReasonRefused, "")
	}
	asked, _, _ := r.by.counts()
	r.up.set(func() { r.up.more = "d" })
	r.fails(oauthclient.ReasonRefused, "wanted more scopes 3 times")
	if again, _, _ := r.by.counts(); again != asked || asked != 4 {
		t.Errorf("%d, then %d; want again = %v, asked = 4", asked, again, asked)
	}
	r.pass(11 * time.Minute)
	r.up.set(func() { r.up.more = "e" })
	r.fails(oauthclient.ReasonRefused, "asked for and not given")
}

func TestAServerThatIsNeverContentCostsTwoTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t, machine)
	other := newGiver(t) // its tokens count, the others do not
	r.up.set(func() { r.up.by = r.by })
	r.by.set(func() { r.by.tokens = nil })
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+r.up.URL+`/.well-known/oauth-protected-resource/mcp"`)
		w.WriteHeader(http.StatusUnauthorized)
	})
	never := httptest.NewServer(mux)
	defer never.Close()
	r.cfg.Resource = never.URL + "/mcp"
	r.up.set(func() { r.up.resource = r.cfg.Resource })
	r.open()
	r.fails(oauthclient.ReasonRefused, "not content with any token")
	if asked, _, _ := r.by.counts(); asked != 2 {
		t.Errorf("asked %d times; want asked = 2", asked)
	}
	if asked, _, _ := other.counts(); asked != 0 {
		t.Errorf("another server was asked; got asked = %v; want asked = 0", asked)
	}
}

func TestTheTokenStaysAtItsOrigin(t *testing.T) {
	t.Parallel()
	r := newRig(t, machine)
	r.works()
	var got []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter,
		req *http.Request,
	) {
		got = append(got, req.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	resp, err := r.http.Get(elsewhere.URL + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if len(got) != 1 || got[0] != "" {
		t.Errorf(`%q; want len(got) = 1, got[0] = ""`, got)
	}
}

func TestTheSecretFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	r := newRig(t, machine)
	r.by.set(func() { r.by.methods = []string{"client_secret_post"} })
	reached := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer elsewhere.Close()
	from := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer from.Close()
	r.by.set(func() { r.by.change["token_endpoint"] = from.URL })
	r.fails(oauthclient.ReasonRefused, "")
	if reached {
		t.Error("it was shown to another origin")
	}
}

func TestManyRequestsShareOneToken(t *testing.T) {
	t.Parallel()
	r := newRig(t, machine)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if status, _, err := r.post(); err != nil || status != http.StatusOK {
				t.Errorf("r.post(): err = %v, want nil; status = %v, want http.StatusOK", err, status)
			}
		})
	}
	all.Wait()
	if asked, _, _ := r.by.counts(); asked != 1 {
		t.Errorf("asked %d times; want asked = 1", asked)
	}
}

func TestAnotherUpstreamOfTheSameNameGetsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, machine)
	r.works()
	other := newUpstream(t, newGiver(t))
	r.cfg.Resource = other.URL + "/mcp"
	r.open()
	r.works()
	if other.seen[0] != "" || strings.Contains(r.vault.Text(), r.by.URL) {
		t.Errorf(`%q; want other.seen[0] = "", r.vault.Text() without %v`, other.seen, r.by.URL)
	}
	if err := r.Forget(t.Context()); err != nil || r.vault.Text() != "" {
		t.Errorf(`%v %q; want no error, r.vault.Text() = ""`, err, r.vault.Text())
	}
}

func TestWhatIsAtRestMayBeDamaged(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", "null", `[]`, `{"access":5}`, `{"resource":"x","access":"access-9"}`} {
		r := newRig(t, machine)
		if err := r.vault.Set("it", secret.New(text)); err != nil {
			t.Fatal(err)
		}
		r.works()
	}
}

func TestConfigsThatCannotBe(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*oauthclient.Config){
		"no URL":                   func(c *oauthclient.Config) { c.Resource = "" },
		"no client":                func(c *oauthclient.Config) { c.HTTP = nil },
		"an unknown grant":         func(c *oauthclient.Config) { c.Grant = "password" },
		"a machine without a name": func(c *oauthclient.Config) { c.Grant = oauthclient.ClientCredentials },
		"an exchange of nothing":   func(c *oauthclient.Config) { c.Grant, c.ClientID = oauthclient.TokenExchange, "me" },
		"a subject for a login": func(c *oauthclient.Config) {
			c.Subject = func() (secret.Value, error) { return secret.Value{}, nil }
		},
		"an unknown kind of subject": func(c *oauthclient.Config) {
			exchanging(nil, c)
			c.SubjectType = "cookie"
		},
		"a secret without a name": func(c *oauthclient.Config) {
			c.ClientSecret = func() (secret.Value, error) { return secret.Value{}, nil }
		},
		"metadata over http":  func(c *oauthclient.Config) { c.Metadata = "http://x.example/client" },
		"scopes with a quote": func(c *oauthclient.Config) { c.Scopes = []string{`a"b`} },
	} {
		cfg := oauthclient.Config{Name: "it", Resource: "https://x.example/mcp", HTTP: new(http.Client), Grant: oauthclient.AuthorizationCode}
		change(&cfg)
		if _, err := oauthclient.New(cfg); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", name, err)
		}
	}
}

func FuzzChallenge(f *testing.F) {
	f.Add(`Bearer realm="x", scope="a b", resource_metadata="http://127.0.0.1/x"`)
	f.Add(`Bearer error="insufficient_scope", scope="a \"b"`)
	f.Add("Basic, Bearer ,,=")
	f.Fuzz(func(t *testing.T, header string) {
		metadata, scopes := oauthclient.ReadChallenge(header)
		if len(metadata) > 2<<10 || len(scopes) > 64 {
			t.Errorf("len(metadata) = %v, want at most 2<<10; len(scopes) = %v, want at most 64; metadata = %q; scopes = %q",
				len(metadata), len(scopes), metadata, scopes)
		}
		for _, s := range scopes {
			if s == "" || len(s) > 256 || strings.ContainsAny(s, " \"\\\r\n") {
				t.Errorf(`%q; want s other than "", len(s) at most 256, s without any of " \"\\\r\n"`, s)
			}
		}
	})
}
