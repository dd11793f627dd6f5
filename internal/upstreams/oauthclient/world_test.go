package oauthclient_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/testkit/oauthclienttest"
	"github.com/junctor-run/junctor/internal/upstreams/oauthclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	pass    = "s3cret-of-the-client"
	subject = "t0ken-of-another-issuer"
)

// giver is an authorization server of a test.
type giver struct {
	*httptest.Server

	mu         sync.Mutex
	methods    []string       // token_endpoint_auth_methods_supported
	change     map[string]any // members of its metadata; nil takes one away
	iss        *string        // of its answers; nil: none
	lifetime   int            // seconds
	rotate     bool
	refuse     string // error of the token endpoint
	issued     string // issued_token_type of exchanged ones
	codes      map[string]url.Values
	tokens     []string // that are valid
	refreshes  map[string]bool
	asked      []url.Values // of the token endpoint
	basic      []string
	authorized []url.Values
	registered []map[string]any
	count      int
}

func newGiver(t *testing.T) *giver {
	t.Helper()
	g := &giver{
		codes: make(map[string]url.Values), refreshes: make(map[string]bool), change: make(map[string]any), lifetime: 3600,
		issued: "urn:ietf:params:oauth:token-type:access_token",
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", g.metadata)
	mux.HandleFunc("POST /register", g.register)
	mux.HandleFunc("GET /authorize", g.authorize)
	mux.HandleFunc("POST /token", g.token)
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

func (g *giver) set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (g *giver) metadata(w http.ResponseWriter, _ *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	doc := map[string]any{
		"issuer": g.URL, "authorization_endpoint": g.URL + "/authorize", "token_endpoint": g.URL + "/token",
		"registration_endpoint":    g.URL + "/register",
		"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
	}
	if g.methods != nil {
		doc["token_endpoint_auth_methods_supported"] = g.methods
	}
	for k, v := range g.change {
		if doc[k] = v; v == nil {
			delete(doc, k)
		}
	}
	answer(w, http.StatusOK, doc)
}

func (g *giver) register(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var doc map[string]any
	_ = json.NewDecoder(r.Body).Decode(&doc)
	g.registered = append(g.registered, doc)
	doc["client_id"] = fmt.Sprintf("registered-%d", len(g.registered))
	if doc["token_endpoint_auth_method"] != "none" {
		doc["client_secret"] = pass
	}
	answer(w, http.StatusCreated, doc)
}

func (g *giver) authorize(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := r.URL.Query()
	g.authorized = append(g.authorized, q)
	g.count++
	code := fmt.Sprintf("code-%d", g.count)
	g.codes[code] = q
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	if g.iss != nil {
		back.Set("iss", *g.iss)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (g *giver) token(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = r.ParseForm()
	g.asked = append(g.asked, r.PostForm)
	g.basic = append(g.basic, r.Header.Get("Authorization"))
	fail := func(code string) {
		answer(w, http.StatusBadRequest, map[string]any{"error": code, "error_description": "you sent " +
			r.PostForm.Encode() + r.Header.Get("Authorization")})
	}
	switch f := r.PostForm; {
	case g.refuse != "":
		fail(g.refuse)
		return
	case f.Get("grant_type") == "client_credentials":
	case f.Get("grant_type") == "urn:ietf:params:oauth:grant-type:token-exchange" && f.Get("subject_token") == subject:
		g.count++
		token := fmt.Sprintf("access-%d", g.count)
		g.tokens = append(g.tokens, token)
		answer(w, http.StatusOK, map[string]any{
			"access_token": token, "issued_token_type": g.issued, "token_type": "Bearer",
			"expires_in": g.lifetime,
		})
		return
	case f.Get("grant_type") == "refresh_token" && g.refreshes[f.Get("refresh_token")]:
		if g.rotate {
			delete(g.refreshes, f.Get("refresh_token"))
		}
	case f.Get("grant_type") == "authorization_code" && g.codes[f.Get("code")] != nil:
		q := g.codes[f.Get("code")]
		delete(g.codes, f.Get("code"))
		sum := sha256.Sum256([]byte(f.Get("code_verifier")))
		if base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") || q.Get("code_challenge_method") != "S256" ||
			f.Get("redirect_uri") != q.Get("redirect_uri") || f.Get("resource") != q.Get("resource") {
			fail("invalid_grant")
			return
		}
	default:
		fail("invalid_grant")
		return
	}
	g.count++
	out := map[string]any{"access_token": fmt.Sprintf("access-%d", g.count), "token_type": "Bearer", "expires_in": g.lifetime}
	g.tokens = append(g.tokens, out["access_token"].(string))
	if f := r.PostForm.Get("grant_type"); f == "authorization_code" || f == "refresh_token" && g.rotate {
		out["refresh_token"] = fmt.Sprintf("refresh-%d", g.count)
		g.refreshes[out["refresh_token"].(string)] = true
	}
	answer(w, http.StatusOK, out)
}

// upstream is a server that wants tokens.
type upstream struct {
	*httptest.Server

	mu       sync.Mutex
	by       *giver
	resource string // "": its own
	plain    bool   // without metadata
	scope    string // of its challenges
	more     string // what it wants beyond any token
	seen     []string
	bodies   []string
}

func newUpstream(t *testing.T, by *giver) *upstream {
	t.Helper()
	u := &upstream{by: by, scope: "read"}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.plain {
			http.NotFound(w, r)
			return
		}
		resource := u.resource
		if resource == "" {
			resource = u.URL + "/mcp"
		}
		answer(w, http.StatusOK, map[string]any{
			"resource": resource, "authorization_servers": []string{u.by.URL},
			"scopes_supported": []string{"all"},
		})
	})
	mux.HandleFunc("/mcp", u.serve)
	u.Server = httptest.NewServer(mux)
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) set(f func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f()
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	defer u.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	u.seen, u.bodies = append(u.seen, token), append(u.bodies, string(body))
	u.by.mu.Lock()
	valid := slices.Contains(u.by.tokens, token)
	u.by.mu.Unlock()
	switch scope := ""; {
	case !valid:
		if u.scope != "" {
			scope = `, scope="` + u.scope + `"`
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="it"`+scope)
		w.WriteHeader(http.StatusUnauthorized)
	case u.more != "":
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+u.more+`"`)
		w.WriteHeader(http.StatusForbidden)
	default:
		_, _ = io.WriteString(w, "ok "+string(body))
	}
}

// rig is a source in front of an upstream.
type rig struct {
	*testing.T
	*oauthclient.Source
	up    *upstream
	by    *giver
	vault *oauthclienttest.Vault
	log   *bytes.Buffer
	cfg   oauthclient.Config
	http  *http.Client

	mu  sync.Mutex
	now time.Time
}

func newRig(t *testing.T, change func(*rig, *oauthclient.Config)) *rig {
	t.Helper()
	by := newGiver(t)
	r := &rig{T: t, by: by, up: newUpstream(t, by), vault: new(oauthclienttest.Vault), log: new(bytes.Buffer), now: time.Now()}
	transport := &http.Transport{DisableKeepAlives: true}
	r.cfg = oauthclient.Config{
		Name: "it", Resource: r.up.URL + "/mcp", HTTP: &http.Client{Transport: transport}, Plain: true, Grant: oauthclient.AuthorizationCode,
		Store: r.vault, Key: "it", Visit: r.visit, Redirect: "http://127.0.0.1:1/callback",
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now: func() time.Time {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.now
		},
	}
	if change != nil {
		change(r, &r.cfg)
	}
	r.open()
	return r
}

// open creates a source again, as a restart does.
func (r *rig) open() {
	r.Helper()
	s, err := oauthclient.New(r.cfg)
	if err != nil {
		r.Fatal(err)
	}
	r.Source = s
	r.http = &http.Client{Transport: s.Transport(&http.Transport{DisableKeepAlives: true})}
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

// visit is a person whom the authorization server asks nothing.
func (r *rig) visit(_ context.Context, address string) (url.Values, error) {
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Get(address)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		return nil, err
	}
	return back.Query(), nil
}

// post sends a request and returns what came of it.
func (r *rig) post() (int, string, error) {
	r.Helper()
	resp, err := r.http.Post(r.cfg.Resource, "text/plain", strings.NewReader("body"))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp.StatusCode, string(body), nil
}

func (r *rig) works() {
	r.Helper()
	if status, body, err := r.post(); err != nil || status != http.StatusOK || body != "ok body" {
		r.Fatalf("%d %q %v", status, body, err)
	}
}

// fails sends a request that fails for want of a token, and shows no secret.
func (r *rig) fails(reason, says string) {
	r.Helper()
	_, _, err := r.post()
	e := capability.AsError(err)
	if err == nil || e.Code != capability.CodeUnavailable || e.Reason != reason || !strings.Contains(e.Message, says) {
		r.Fatalf("%+v", err)
	}
	r.silent(err)
}

// silent looks for secrets where there should be none.
func (r *rig) silent(err error) {
	r.Helper()
	text := r.log.String()
	for ; err != nil; err = unwrap(err) {
		text += fmt.Sprintf("%v %+v", err, err)
	}
	for _, word := range []string{"access-", "refresh-", "code-", pass, subject, base64.StdEncoding.EncodeToString([]byte("me:" + pass))} {
		if strings.Contains(text, word) {
			r.Errorf("%q is told: %s", word, text)
		}
	}
}

func unwrap(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return nil
}

func (g *giver) last(t *testing.T) url.Values {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.asked) == 0 {
		t.Fatalf("it was not asked; got len(g.asked) = %v; want len(g.asked) other than 0", len(g.asked))
	}
	return g.asked[len(g.asked)-1]
}

func (g *giver) counts() (asked, authorized, registered int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.asked), len(g.authorized), len(g.registered)
}
