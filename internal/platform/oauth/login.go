package oauth

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/secret"
)

// LoginConfig configures the OpenID provider with which people sign in. Issuer and ClientID are
// required.
type LoginConfig struct {
	Issuer   string
	ClientID string
	// Secret returns the secret of the client. nil for a public client.
	Secret      func() (secret.Value, error)
	Scopes      []string // besides openid, email and profile
	GroupsClaim string
	Rules       []Rule
	Redirect    func() string    // address to which the provider sends browsers back
	SignedOut   func() string    // address to which it sends them after a sign-out there; nil: none
	HTTP        *http.Client     // nil: a client with its own bounds
	Now         func() time.Time // nil: time.Now
}

// Login signs people in with an OpenID provider. It is safe for concurrent use. A sign-in that has
// begun is held by the browser or program, encrypted, and not here, so that strangers cannot fill
// the memory with them.
type Login struct {
	cfg    LoginConfig
	client *http.Client
	seal   cipher.AEAD
	busy   chan struct{}
	waits  chan struct{}
	rate   *rate.Limiter
	fetch  singleflight.Group // of the metadata

	mu       sync.Mutex
	provider *oidc.Provider       // nil: not fetched yet, or failure
	failure  error                // of the last fetch
	next     time.Time            // when the metadata are to be fetched
	used     map[string]time.Time // states, until they expire
}

// NewLogin checks the configuration; it fetches nothing.
func NewLogin(cfg LoginConfig) (*Login, error) {
	if err := checkURL("issuer", cfg.Issuer); err != nil {
		return nil, fmt.Errorf("oidc.%w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	client := clientOf(cfg.HTTP)
	client.Transport = limited{client.Transport}
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	l := &Login{
		cfg: cfg, client: client, busy: make(chan struct{}, maxLogins), waits: make(chan struct{}, maxWaits),
		rate: rate.NewLimiter(maxRate, 2*maxRate), used: make(map[string]time.Time),
	}
	l.seal, err = cipher.NewGCM(block)
	return l, err
}

// checkURL returns an error unless text is a https URL, or one with http of this machine.
func checkURL(what, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" &&
		(u.Scheme != "http" || !local(u.Hostname())) {
		return fmt.Errorf("%s: %q is not a https URL; http is for this machine only", what, text)
	}
	return nil
}

// limited bounds the responses of the provider.
type limited struct{ next http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := cmp.Or(l.next, http.DefaultTransport).RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxKeys)
	}
	return resp, err
}

// basicAuth adds the credentials of the client to a request.
type basicAuth struct {
	id, secret string
	next       http.RoundTripper
}

func (b basicAuth) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.SetBasicAuth(url.QueryEscape(b.id), url.QueryEscape(b.secret))
	return b.next.RoundTrip(r)
}

// begun is a sign-in that has begun.
type begun struct {
	State    string    `json:"s,omitempty"`
	Nonce    string    `json:"n,omitempty"`
	Verifier string    `json:"v,omitempty"`
	Device   string    `json:"d,omitempty"`
	Interval int64     `json:"i,omitempty"`
	Expires  time.Time `json:"e"`
}

func (l *Login) sealed(b begun) (string, error) {
	data, err := json.Marshal(b)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, l.seal.NonceSize())
	_, _ = rand.Read(nonce)
	return base64.RawURLEncoding.EncodeToString(l.seal.Seal(nonce, nonce, data, nil)), nil
}

// opened returns a sign-in of [Login.sealed]. ok is false if it was not made here, or has expired.
func (l *Login) opened(text string) (b begun, ok bool) {
	if len(text) > maxSealed {
		return begun{}, false
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if size := l.seal.NonceSize(); err == nil && len(data) >= size {
		if data, err = l.seal.Open(nil, data[:size], data[size:], nil); err == nil {
			err = json.Unmarshal(data, &b)
		}
	} else {
		return begun{}, false
	}
	return b, err == nil && l.cfg.Now().Before(b.Expires)
}

// enter takes one of the slots for requests to the provider. The error is overloaded.
func enter(slots chan struct{}) (leave func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	default:
		return nil, tooMany()
	}
}

func tooMany() error {
	e := capability.Errorf(capability.CodeOverloaded, "sign_in", "too many people are signing in at this moment")
	e.RetryAfter = fetchTimeout
	return e
}

// known returns the provider, or the failure of the last fetch if no fetch has succeeded. due reports whether the caller
// must fetch the metadata. Meanwhile other callers use the former ones.
func (l *Login) known() (p *oidc.Provider, due bool, failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.cfg.Now()
	if due = !now.Before(l.next); l.provider == nil {
		return nil, due, l.failure
	}
	if due {
		l.next = now.Add(fetchTimeout)
	}
	return l.provider, due, nil
}

// metadata returns the provider, whose metadata are fetched once an hour, by one request for all callers. The fetch
// goes on if the caller leaves, because the others need its result. If it fails, the former metadata stay in use.
func (l *Login) metadata(ctx context.Context) (*oidc.Provider, error) {
	p, due, err := l.known()
	if !due {
		return p, err
	}
	done := l.fetch.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		p, err := oidc.NewProvider(ctx, l.cfg.Issuer)
		if err == nil {
			err = checkEndpoints(p)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if err == nil {
			l.provider, l.failure, l.next = p, nil, l.cfg.Now().Add(metadataTTL)
		} else {
			l.failure, l.next = l.unavailable(err), l.cfg.Now().Add(retryDelay)
		}
		return nil, nil
	})
	select {
	case <-done:
		p, _, err = l.known()
	case <-ctx.Done():
		if p == nil {
			err = l.unavailable(ctx.Err())
		}
	}
	return p, err
}

// discover returns the provider and the configuration of its client.
func (l *Login) discover(ctx context.Context) (context.Context, *oidc.Provider, *oauth2.Config, error) {
	ctx = oidc.ClientContext(ctx, l.client)
	p, err := l.metadata(ctx)
	if err != nil {
		return ctx, nil, nil, err
	}
	var meta struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := p.Claims(&meta); err != nil {
		return ctx, nil, nil, l.unavailable(err)
	}
	c := &oauth2.Config{
		ClientID: l.cfg.ClientID, Endpoint: p.Endpoint(), RedirectURL: l.cfg.Redirect(),
		Scopes: append([]string{oidc.ScopeOpenID, "email", "profile"}, l.cfg.Scopes...),
	}
	c.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	if l.cfg.Secret != nil {
		value, err := l.cfg.Secret()
		if err != nil {
			return ctx, nil, nil, capability.Wrap(capability.CodeUnavailable, "sign_in", "the secret of this server's client cannot be read", err).
				With("client_refused", "an operator stores the secret that oidc.client_secret names: junctor secrets set NAME")
		}
		c.ClientSecret = value.Reveal()
		if len(meta.Methods) == 0 || slices.Contains(meta.Methods, "client_secret_basic") {
			c.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
		}
	}
	return ctx, p, c, nil
}

// checkEndpoints refuses metadata whose addresses a browser or this server must not open.
func checkEndpoints(p *oidc.Provider) error {
	var meta struct {
		Keys string `json:"jwks_uri"`
	}
	if err := p.Claims(&meta); err != nil {
		return err
	}
	at := p.Endpoint()
	for what, text := range map[string]string{
		"authorization_endpoint": at.AuthURL, "token_endpoint": at.TokenURL, "jwks_uri": meta.Keys,
		"device_authorization_endpoint": at.DeviceAuthURL, "userinfo_endpoint": p.UserInfoEndpoint(),
	} {
		if optional := text == at.DeviceAuthURL || text == p.UserInfoEndpoint(); text == "" && optional {
			continue
		}
		if err := checkURL(what, text); err != nil {
			return err
		}
	}
	return nil
}

// unavailable returns the error for a provider that does not answer, or not as it should.
func (l *Login) unavailable(cause error) error {
	e := capability.Wrap(capability.CodeUnavailable, "sign_in", "the sign-in provider "+l.cfg.Issuer+" cannot be used now", cause).
		With(ReasonUnavailable, "try again in a minute; an operator finds the cause with: junctor doctor")
	e.RetryAfter = keysFetchInterval
	return e
}

// Begin begins the sign-in of a browser. It returns the address of the provider to open, and what
// the browser keeps for [Login.Finish].
func (l *Login) Begin(ctx context.Context) (address, kept string, err error) {
	leave, err := enter(l.busy)
	if err != nil {
		return "", "", err
	}
	defer leave()
	_, _, c, err := l.discover(ctx)
	if err != nil {
		return "", "", err
	}
	b := begun{State: ids.Hex("", 16), Nonce: ids.Hex("", 16), Verifier: oauth2.GenerateVerifier(), Expires: l.cfg.Now().Add(loginTTL)}
	if kept, err = l.sealed(b); err != nil {
		return "", "", err
	}
	return c.AuthCodeURL(b.State, oidc.Nonce(b.Nonce), oauth2.S256ChallengeOption(b.Verifier)), kept, nil
}

// Answer is what the provider sent a browser back with.
type Answer struct {
	Code   string `json:"code"`
	State  string `json:"state"`
	Issuer string `json:"iss"`
	Error  string `json:"error"`
}

// Finish ends the sign-in of a browser. Errors: unauthenticated, reason sign_in_state, if the
// browser did not begin it, or it has ended or was finished before, and those of a token of the
// provider; denied, reason no_role, for a person whom no rule admits, with the Person.
func (l *Login) Finish(ctx context.Context, kept string, a Answer) (Person, error) {
	b, ok := l.opened(kept)
	if !ok || b.State == "" || subtle.ConstantTimeCompare([]byte(b.State), []byte(a.State)) != 1 || l.finished(b) {
		return Person{}, capability.Errorf(capability.CodeUnauthenticated, "sign_in",
			"this sign-in was not begun in this browser, is older than ten minutes, or was finished already").
			With("sign_in_state", "sign in again")
	}
	if a.Issuer != "" && a.Issuer != l.cfg.Issuer {
		return Person{}, l.invalid(fmt.Errorf("the answer is of the issuer %.200q", a.Issuer))
	}
	if a.Error != "" || a.Code == "" || len(a.Code) > maxAnswer {
		return Person{}, l.refused(fmt.Errorf("the answer of the provider is %.200q", a.Error))
	}
	leave, err := enter(l.busy)
	if err != nil {
		return Person{}, err
	}
	defer leave()
	ctx, p, c, err := l.discover(ctx)
	if err != nil {
		return Person{}, err
	}
	if !l.rate.Allow() {
		return Person{}, tooMany()
	}
	t, err := c.Exchange(ctx, a.Code, oauth2.VerifierOption(b.Verifier))
	if err != nil {
		return Person{}, l.exchange(err)
	}
	l.finish(b)
	return l.person(ctx, p, t, b.Nonce)
}

// finished reports whether a sign-in was finished before.
func (l *Login) finished(b begun) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, used := l.used[b.State]
	return used
}

// finish remembers a sign-in whose code the provider has accepted, until it expires.
func (l *Login) finish(b begun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.cfg.Now()
	maps.DeleteFunc(l.used, func(_ string, until time.Time) bool { return now.After(until) })
	if len(l.used) < maxUsed { // beyond, the provider alone refuses a code that was used
		l.used[b.State] = b.Expires
	}
}

// exchange returns the error for a code that the provider did not exchange.
func (l *Login) exchange(err error) error {
	e, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !ok:
		return l.unavailable(err)
	case e.ErrorCode == "":
		return l.unavailable(errors.New("its answer has the status " + e.Response.Status))
	case e.ErrorCode == "invalid_client" || e.ErrorCode == "unauthorized_client":
		return capability.Wrap(capability.CodeUnavailable, "sign_in", "the sign-in provider does not accept this server's client", err).
			With("client_refused", "an operator corrects oidc.client_id and the secret that oidc.client_secret names")
	}
	return l.refused(err)
}

// refused returns the error for a sign-in that the provider or the person refused.
func (l *Login) refused(cause error) error {
	return capability.Wrap(capability.CodeDenied, "sign_in", "the sign-in provider did not sign you in", cause).
		With("sign_in_refused", "sign in again, and agree there")
}

// invalid returns the error for a token that is not one for this server.
func (l *Login) invalid(cause error) error {
	return capability.Wrap(capability.CodeUnauthenticated, "sign_in", "what the sign-in provider sent is not valid for this server", cause).
		With("sign_in_token", "sign in again; an operator finds the cause in the server's log")
}

// EndSession returns the address that signs a browser out at the provider and then returns to
// [LoginConfig.SignedOut] with state, or "" if the provider offers none on its own host. hint is the
// Hint of the person, or "" if it is not known; the provider may then ask them.
func (l *Login) EndSession(ctx context.Context, hint, state string) string {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	_, p, _, err := l.discover(ctx)
	if err != nil {
		return ""
	}
	var meta struct {
		End string `json:"end_session_endpoint"`
	}
	if err := p.Claims(&meta); err != nil || len(meta.End) > maxAnswer || checkURL("end_session_endpoint", meta.End) != nil {
		return ""
	}
	u, err := url.Parse(meta.End)
	own, failed := url.Parse(l.cfg.Issuer)
	if err != nil || failed != nil || u.Host != own.Host || u.Scheme != own.Scheme {
		return ""
	}
	q := u.Query()
	q.Set("client_id", l.cfg.ClientID)
	if hint != "" {
		q.Set("id_token_hint", hint)
	}
	if l.cfg.SignedOut != nil {
		q.Set("post_logout_redirect_uri", l.cfg.SignedOut())
		q.Set("state", state)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// Device is a sign-in that a person confirms at another device.
type Device struct {
	URL      string    `json:"url"`                // to open
	Code     string    `json:"code"`               // to type there
	Complete string    `json:"complete,omitempty"` // the address with the code
	Expires  time.Time `json:"expires"`
	Login    string    `json:"login"` // for [Login.FinishDevice]
}

// BeginDevice begins the sign-in of a program without a browser. The error is unavailable, reason
// device_login_unsupported, if the provider does not offer it.
func (l *Login) BeginDevice(ctx context.Context) (Device, error) {
	leave, err := enter(l.busy)
	if err != nil {
		return Device{}, err
	}
	defer leave()
	ctx, _, c, err := l.discover(ctx)
	if err != nil {
		return Device{}, err
	}
	if c.Endpoint.DeviceAuthURL == "" {
		return Device{}, capability.Errorf(capability.CodeUnavailable, "sign_in", "the sign-in provider %s signs in browsers only", l.cfg.Issuer).
			With("device_login_unsupported", "use a token of an operator: --token or JUNCTOR_TOKEN")
	}
	if !l.rate.Allow() {
		return Device{}, tooMany()
	}
	client := *l.client
	client.Transport = basicAuth{c.ClientID, c.ClientSecret, client.Transport}
	if c.ClientSecret == "" {
		client.Transport = l.client.Transport
	}
	d, err := c.DeviceAuth(oidc.ClientContext(ctx, &client))
	if err != nil {
		return Device{}, l.exchange(err)
	}
	if d.VerificationURIComplete != "" && checkURL("verification_uri_complete", d.VerificationURIComplete) != nil {
		d.VerificationURIComplete = ""
	}
	if err := checkURL("verification_uri", d.VerificationURI); err != nil || d.UserCode == "" || len(d.UserCode) > 100 {
		return Device{}, l.unavailable(cmp.Or(err, errors.New("its answer has no code for the person")))
	}
	latest := l.cfg.Now().Add(deviceTTL)
	if d.Expiry.Before(l.cfg.Now()) || d.Expiry.After(latest) {
		d.Expiry = latest
	}
	if d.Interval < 1 {
		d.Interval = 5
	}
	kept, err := l.sealed(begun{Device: d.DeviceCode, Interval: min(d.Interval, maxInterval), Expires: d.Expiry})
	if err == nil && len(kept) > maxSealed {
		err = l.unavailable(errors.New("its code is too long"))
	}
	return Device{URL: d.VerificationURI, Code: d.UserCode, Complete: d.VerificationURIComplete, Expires: d.Expiry.UTC(), Login: kept}, err
}

// FinishDevice waits for the person, for about 20 seconds. ok is false if it is to be called again.
// Errors are those of [Login.Finish].
func (l *Login) FinishDevice(ctx context.Context, kept string) (who Person, ok bool, err error) {
	b, opened := l.opened(kept)
	if !opened || b.Device == "" {
		return Person{}, false, capability.Errorf(capability.CodeUnauthenticated, "sign_in",
			"this sign-in has expired, or was begun at another server").With("sign_in_state", "sign in again")
	}
	leave, err := enter(l.waits)
	if err != nil {
		return Person{}, false, err
	}
	defer leave()
	ctx, p, c, err := l.discover(ctx)
	if err != nil {
		return Person{}, false, err
	}
	interval := time.Duration(b.Interval) * time.Second
	// It ends between two questions, because an answer that is not awaited would be lost.
	wait, cancel := context.WithTimeout(ctx, max(1, waitTimeout/interval)*interval+interval/2)
	defer cancel()
	t, err := c.DeviceAccessToken(wait, &oauth2.DeviceAuthResponse{DeviceCode: b.Device, Interval: b.Interval, Expiry: b.Expires})
	if err != nil {
		if wait.Err() != nil && ctx.Err() == nil {
			return Person{}, false, nil
		}
		return Person{}, false, l.exchange(err)
	}
	who, err = l.person(ctx, p, t, "")
	return who, err == nil, err
}
