package oauth

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// issuer is an authorization server as far as tokens need one: metadata, keys, and
// a hand that signs.
type issuer struct {
	t       *testing.T
	url     string
	ec      *ecdsa.PrivateKey
	rsa     *rsa.PrivateKey
	fetches atomic.Int64
	kid     string                 // of the RSA key; "": r
	keys    atomic.Pointer[issuer] // whose keys are served; nil: its own
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{t: t}
	var err error
	if i.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	if i.rsa, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.url, "jwks_uri": i.url + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.fetches.Add(1)
		i := cmp.Or(i.keys.Load(), i)
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []map[string]string{
			{
				"kty": "EC", "crv": "P-256", "kid": "e", "alg": "ES256", "x": b64(i.ec.X.FillBytes(make([]byte, 32))),
				"y": b64(i.ec.Y.FillBytes(make([]byte, 32))),
			},
			{"kty": "RSA", "kid": cmp.Or(i.kid, "r"), "n": b64(i.rsa.N.Bytes()), "e": b64(big.NewInt(int64(i.rsa.E)).Bytes())},
		}})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	i.url = server.URL
	return i
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (i *issuer) sign(alg, kid string, claims map[string]any) string {
	i.t.Helper()
	head, _ := json.Marshal(map[string]string{"alg": alg, "kid": kid, "typ": "at+jwt"})
	body, err := json.Marshal(claims)
	if err != nil {
		i.t.Fatal(err)
	}
	text := b64(head) + "." + b64(body)
	sum := sha256.Sum256([]byte(text))
	var sig []byte
	switch alg {
	case "ES256":
		r, s, err := ecdsa.Sign(rand.Reader, i.ec, sum[:])
		if err != nil {
			i.t.Fatal(err)
		}
		sig = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	case "RS256":
		if sig, err = rsa.SignPKCS1v15(rand.Reader, i.rsa, crypto.SHA256, sum[:]); err != nil {
			i.t.Fatal(err)
		}
	case "HS256": // with the public key as the secret, as the old attack does
		mac := hmac.New(sha256.New, i.rsa.N.Bytes())
		mac.Write([]byte(text))
		sig = mac.Sum(nil)
	}
	return text + "." + b64(sig)
}

const resource = "http://127.0.0.1:7777/mcp"

func (i *issuer) claims(change map[string]any) map[string]any {
	now := time.Now()
	c := map[string]any{"iss": i.url, "aud": resource, "sub": "ann", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "scope": "j.read"}
	for k, v := range change {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func (i *issuer) server(change func(*Config)) *Server {
	i.t.Helper()
	cfg := Config{Issuer: i.url, Resource: resource, Scopes: []Scope{
		{"j.read", capability.EffectRead},
		{"j.write", capability.EffectWrite},
		{"j.all", capability.EffectExternal},
	}}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		i.t.Fatal(err)
	}
	return s
}

func TestTokensThatHold(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	s := i.server(nil)
	for name, tt := range map[string]struct {
		alg, kid string
		change   map[string]any
		most     capability.Effect
	}{
		"elliptic":         {"ES256", "e", nil, capability.EffectRead},
		"rsa":              {"RS256", "r", nil, capability.EffectRead},
		"several":          {"ES256", "e", map[string]any{"aud": []string{"other", resource}}, capability.EffectRead},
		"broader scope":    {"ES256", "e", map[string]any{"scope": "j.read j.all"}, capability.EffectExternal},
		"scopes as a list": {"ES256", "e", map[string]any{"scope": nil, "scp": []string{"j.write"}}, capability.EffectWrite},
		"no scope":         {"ES256", "e", map[string]any{"scope": "other"}, ""},
		"just now":         {"ES256", "e", map[string]any{"nbf": time.Now().Add(30 * time.Second).Unix()}, capability.EffectRead},
	} {
		who, err := s.Principal(t.Context(), i.sign(tt.alg, tt.kid, i.claims(tt.change)))
		if err != nil || who.ID != "agent:oidc/ann" || who.Role != capability.RoleAgent || !who.Scoped || who.Most != tt.most {
			t.Errorf(`%s: %+v %v; want no error, who.ID = "agent:oidc/ann", who.Role = capability.RoleAgent, who.Scoped = true, `+
				"who.Most = %v", name, who, err, tt.most)
		}
		if who.Covers(capability.EffectRead) != (tt.most != "") || who.Covers(capability.EffectAdmin) {
			t.Errorf(`%s covers the wrong effects; want who.Covers(capability.EffectRead) = (tt.most != ""), not `+
				"who.Covers(capability.EffectAdmin)", name)
		}
	}
	if i.fetches.Load() != 1 {
		t.Errorf("the keys were fetched %d times; want i.fetches.Load() = 1", i.fetches.Load())
	}
	if got := s.ScopesFor(capability.EffectWrite); len(got) != 1 || got[0] != "j.write" {
		t.Errorf(`to write one asks for %v; want len(got) = 1, got[0] = "j.write"`, got)
	}
}

func TestTokensThatDoNot(t *testing.T) {
	t.Parallel()
	i, other := newIssuer(t), newIssuer(t)
	s := i.server(nil)
	good := i.sign("ES256", "e", i.claims(nil))
	parts := strings.Split(good, ".")
	with := func(change map[string]any) string { return i.sign("ES256", "e", i.claims(change)) }
	for name, token := range map[string]string{
		"nothing": "", "garbage": "a.b.c", "two parts": parts[0] + "." + parts[1], "huge": strings.Repeat("a", maxToken+1),
		"unsigned":         b64([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".",
		"keyed hash":       i.sign("HS256", "r", i.claims(nil)),
		"other body":       parts[0] + "." + b64([]byte(`{"sub":"root"}`)) + "." + parts[2],
		"another's key":    other.sign("ES256", "e", i.claims(nil)),
		"issuer":           with(map[string]any{"iss": other.url}),
		"audience":         with(map[string]any{"aud": "http://127.0.0.1:7777/"}),
		"no audience":      with(map[string]any{"aud": nil}),
		"expired":          with(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}),
		"without end":      with(map[string]any{"exp": nil}),
		"not yet":          with(map[string]any{"nbf": time.Now().Add(2 * time.Minute).Unix()}),
		"nobody":           with(map[string]any{"sub": nil}),
		"odd subject":      with(map[string]any{"sub": "a\nb"}),
		"moves a cursor":   with(map[string]any{"sub": "a\u009b2Jb"}),
		"turns text round": with(map[string]any{"sub": "a\u202eb"}),
		"endless subject":  with(map[string]any{"sub": strings.Repeat("a", maxSubject+1)}),
		"several subjects": with(map[string]any{"sub": []string{"a"}}),
	} {
		who, err := s.Principal(t.Context(), token)
		if capability.CodeOf(err) != capability.CodeUnauthenticated {
			t.Errorf("%s: %+v %v; want capability.CodeOf(err) = capability.CodeUnauthenticated", name, who, err)
		}
		if err != nil && token != "" && strings.Contains(err.Error(), token) {
			t.Errorf(`%s: the token is in the error; want not (err != nil && token != "" && strings.Contains(err.Error(), token))`,
				name)
		}
	}
	if _, err := s.Principal(t.Context(), good); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

func TestKeysAreFetchedSeldom(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	now := time.Now()
	s := i.server(func(c *Config) { c.Now = func() time.Time { return now } })
	for range 20 {
		_, _ = s.Principal(t.Context(), i.sign("ES256", "unknown", i.claims(nil)))
	}
	if n := i.fetches.Load(); n > 2 {
		t.Errorf("%d fetches for tokens with a key that does not exist; want n at most 2", n)
	}
	token := i.sign("ES256", "e", i.claims(map[string]any{"exp": now.Add(48 * time.Hour).Unix()}))
	if _, err := s.Principal(t.Context(), token); err != nil {
		t.Error(err)
	}
	before := i.fetches.Load()
	now = now.Add(keysTTL + time.Second)
	if _, err := s.Principal(t.Context(), token); err != nil || i.fetches.Load() != before+1 {
		t.Errorf("after an hour: %v, %d fetches; want no error, i.fetches.Load() = before + 1", err, i.fetches.Load()-before)
	}
}

func TestAnIssuerThatIsAwayIsNoVerdict(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	s := i.server(func(c *Config) { c.Issuer = "http://127.0.0.1:1" })
	if _, err := s.Principal(t.Context(), i.sign("ES256", "e", i.claims(nil))); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
	}
}

func TestWhatCannotBeConfigured(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"plain http": {Issuer: "http://issuer.example", Resource: resource}, "no issuer": {Resource: resource},
		"user":       {Issuer: "https://a:b@issuer.example", Resource: resource},
		"none":       {Issuer: "https://issuer.example", Resource: resource, Algorithms: []string{"none"}},
		"shared key": {Issuer: "https://issuer.example", Resource: resource, Algorithms: []string{"HS256"}},
		"admin":      {Issuer: "https://issuer.example", Resource: resource, Role: capability.RoleAdmin},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is taken; want an error", name)
		}
	}
}

func TestStrangersCannotKeepTheNextKeysAway(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	now := time.Now()
	s := i.server(func(c *Config) { c.Now, c.KeysURL = func() time.Time { return now }, i.url+"/keys" })
	token := i.sign("ES256", "e", i.claims(map[string]any{"exp": now.Add(48 * time.Hour).Unix()}))
	for range 2 {
		if _, err := s.Principal(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		now = now.Add(keysTTL - time.Second)
		_, _ = s.Principal(t.Context(), i.sign("ES256", "unknown", i.claims(map[string]any{"exp": now.Add(time.Hour).Unix()})))
		now = now.Add(2 * time.Second)
	}
}
