package upstream

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/upstreams/oauthclient"
	"github.com/junctor-run/junctor/secret"
)

// Tokens stores OAuth tokens.
type Tokens interface {
	oauthclient.Store
	// Names returns the names of the stored values that begin with prefix.
	Names(prefix string) ([]string, error)
}

// People provides the tokens of the principals who log in.
type People interface {
	// TokenID returns the id of the valid token that makes a principal, or "" if it has none here.
	TokenID(principal string) string
	// EndedTokens returns the ids of tokens that make no principal any more.
	EndedTokens(ctx context.Context) (map[string]bool, error)
}

// LoginOf is the state of the login of one principal. It contains no secrets.
type LoginOf struct {
	Principal string    `json:"principal"`
	Since     time.Time `json:"since"`
	oauthclient.State
	Lists bool `json:"lists,omitempty"` // it reads what the upstream offers
}

// logins are those of the principals of an upstream to which each logs in.
type logins struct {
	u *upstream

	mu   sync.Mutex
	read bool // the stored ones are in of
	of   map[string]*login
}

// login holds the tokens of one principal, and stores them encrypted with a key of their own. The
// token by which the principal had logged in makes it valid, so that a later principal of the same
// name does not have it.
type login struct {
	u         *upstream
	principal string
	token     string // of the principal, "" if it has none here
	tokens    *oauthclient.Source
	http      *http.Client

	mu      sync.Mutex
	since   time.Time
	gone    bool
	refused bool // a connection with it needed another login
}

// sealed is what is stored of a login.
type sealed struct {
	Principal string    `json:"principal"`
	Token     string    `json:"token,omitempty"`
	Since     time.Time `json:"since"`
	Sealed    []byte    `json:"sealed"`
}

// cipher returns the cipher of the login, and the data that it authenticates.
func (l *login) cipher() (cipher.AEAD, []byte, error) {
	about := strings.Join([]string{"upstream login", l.u.record.Name, l.principal, l.token}, "\x00")
	key, err := hkdf.Key(sha256.New, l.u.reg.cfg.LoginKey, nil, about, 32)
	if err != nil {
		return nil, nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, nil, err
	}
	aead, err := cipher.NewGCM(block)
	return aead, []byte(about), err
}

// Get implements oauthclient.Store.
func (l *login) Get(name string) (secret.Value, error) {
	s, err := l.u.sealed(name)
	if err != nil {
		return secret.Value{}, err
	}
	aead, about, err := l.cipher()
	if err != nil || s.Principal != l.principal || s.Token != l.token || len(s.Sealed) < aead.NonceSize() {
		return secret.Value{}, notSealed(err)
	}
	text, err := aead.Open(nil, s.Sealed[:aead.NonceSize()], s.Sealed[aead.NonceSize():], about)
	if err != nil {
		l.u.reg.cfg.Logger.Error("the tokens of a login cannot be decrypted; it is needed again", "upstream", l.u.record.Name,
			"principal", l.principal)
		return secret.Value{}, notSealed(err)
	}
	return secret.New(string(text)), nil
}

func notSealed(err error) error {
	return capability.Wrap(capability.CodeNotFound, "upstreams.login", "this principal is not logged in", err)
}

// Set implements oauthclient.Store.
func (l *login) Set(name string, value secret.Value) error {
	aead, about, err := l.cipher()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return notSealed(nil)
	}
	if l.since.IsZero() {
		l.since = l.u.reg.cfg.Now().UTC()
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce)
	doc, err := jsonx.Marshal(sealed{l.principal, l.token, l.since, aead.Seal(nonce, nonce, []byte(value.Reveal()), about)})
	if err != nil {
		return err
	}
	return l.u.reg.cfg.Tokens.Set(name, secret.New(string(doc)))
}

// Remove implements oauthclient.Store.
func (l *login) Remove(name string) error { return l.u.reg.cfg.Tokens.Remove(name) }

// sealed returns what is stored under a name.
func (u *upstream) sealed(name string) (s sealed, err error) {
	value, err := u.reg.cfg.Tokens.Get(name)
	if err == nil {
		if err = jsonx.Unmarshal([]byte(value.Reveal()), &s); err != nil {
			err = notSealed(err)
		}
	}
	return s, err
}

// newLogin returns the login of a principal, without reading it.
func (u *upstream) newLogin(principal, token string, since time.Time) (*login, error) {
	l := &login{u: u, principal: principal, token: token, since: since}
	cfg, err := u.tokensConfig()
	if err != nil {
		return nil, err
	}
	cfg.LoginHint = u.howToLogIn(principal)
	if cfg.Key = u.record.LoginKey(principal); u.reg.cfg.Tokens != nil {
		cfg.Store = l
	}
	if l.tokens, err = oauthclient.New(cfg); err != nil {
		return nil, err
	}
	client := *u.http
	client.Transport = l.tokens.Transport(u.http.Transport)
	l.http = &client
	return l, nil
}

// all returns the logins, those of the store the first time. The caller holds mu.
func (s *logins) all() map[string]*login {
	cfg := &s.u.reg.cfg
	if s.read || cfg.Tokens == nil {
		return s.of
	}
	names, err := cfg.Tokens.Names(s.u.record.LoginPrefix())
	if err != nil {
		cfg.Logger.Error("the logins to an upstream cannot be read", "upstream", s.u.record.Name, "err", err)
		return s.of
	}
	s.read = true
	for _, name := range names {
		kept, err := s.u.sealed(name)
		if err != nil || name != s.u.record.LoginKey(kept.Principal) || s.of[kept.Principal] != nil {
			continue // not a login
		}
		if l, err := s.u.newLogin(kept.Principal, kept.Token, kept.Since); err == nil {
			_ = l.tokens.Load(context.Background())
			s.of[kept.Principal] = l
		}
	}
	return s.of
}

// get returns the valid login of a principal, or nil.
func (s *logins) get(principal string) *login {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.all()[principal]; l != nil && l.valid() {
		return l
	}
	return nil
}

// valid reports whether the login can be used.
func (l *login) valid() bool { return l.current() && l.tokens.State().Issuer != "" }

// current reports whether the principal is still the one that logged in.
func (l *login) current() bool { return l.token == l.u.reg.tokenID(l.principal) }

func (r *Registry) tokenID(principal string) string {
	if r.cfg.People == nil {
		return ""
	}
	return r.cfg.People.TokenID(principal)
}

// forLists returns the login that reads what the upstream offers, the oldest one, or nil.
func (s *logins) forLists() (first *login) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.all() {
		if l.valid() && (first == nil || l.order(first) < 0) {
			first = l
		}
	}
	return first
}

// order compares two logins: those that are in use first, then the older ones.
func (l *login) order(o *login) int {
	at, refused := l.state()
	other, otherRefused := o.state()
	if refused != otherRefused {
		if refused {
			return 1
		}
		return -1
	}
	return cmp.Or(at.Compare(other), cmp.Compare(l.principal, o.principal))
}

func (l *login) state() (since time.Time, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, l.refused
}

// note records whether a connection with the login failed because it is needed again.
func (l *login) note(err error) {
	if l == nil || err != nil && capability.AsError(err).Reason != oauthclient.ReasonLogin {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = err != nil
}

// open returns the login of a principal to begin or to finish it.
func (s *logins) open(principal string) (*login, error) {
	token := s.u.reg.tokenID(principal)
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.all()
	if l := of[principal]; l != nil && l.token == token {
		return l, nil
	}
	if len(of) >= maxLogins && of[principal] == nil {
		for name, l := range of { // one that was begun only
			if l.tokens.State().Issuer == "" {
				delete(of, name)
				break
			}
		}
	}
	if len(of) >= maxLogins && of[principal] == nil {
		return nil, capability.Errorf(capability.CodeOverloaded, "upstreams.login", "%d principals are logged in to %s, which is the most",
			maxLogins, s.u.record.Name).With("too_many_logins", "log one out: junctor mcp logout "+s.u.record.Name+" --for PRINCIPAL")
	}
	l, err := s.u.newLogin(principal, token, time.Time{})
	if err == nil {
		of[principal] = l
	}
	return l, err
}

// end removes the login of a principal, if which accepts it, with its tokens and connections.
func (u *upstream) end(ctx context.Context, principal string, which func(*login) bool) (bool, error) {
	u.logins.mu.Lock()
	l := u.logins.all()[principal]
	if l == nil || !which(l) {
		u.logins.mu.Unlock()
		return false, nil
	}
	was := l.tokens.State().Issuer != ""
	delete(u.logins.of, principal)
	u.logins.mu.Unlock()
	l.mu.Lock()
	l.gone = true
	l.mu.Unlock()
	u.closeOf(principal) // while its tokens can end the sessions
	err := l.tokens.Forget(ctx)
	u.mu.Lock()
	lists := u.current != nil && u.current.login == l
	u.mu.Unlock()
	if lists {
		u.again() // with the login of another principal
	}
	return was, err
}

// closeOf closes the connections of a principal, and waits for that.
func (u *upstream) closeOf(principal string) {
	u.mu.Lock()
	var list []*conn
	for key, c := range u.conns {
		if c.login != nil && c.login.principal == principal {
			c.lost = true
			delete(u.conns, key)
			list = append(list, c)
		}
	}
	u.mu.Unlock()
	var group sync.WaitGroup
	for _, c := range list {
		group.Go(func() { u.close(c) })
	}
	group.Wait()
}

// client returns the login whose tokens the connection of a key sends, and its client. The main
// connection sends none before the first principal has logged in, because some servers list without.
func (u *upstream) client(key string) (*login, *http.Client, error) {
	switch {
	case u.logins == nil:
		return nil, u.http, nil
	case key == "":
		l := u.logins.forLists()
		if l == nil {
			return nil, u.anonymous, nil
		}
		return l, l.http, nil
	}
	principal := strings.Split(key, "\x00")[1]
	l := u.logins.get(principal)
	if l == nil {
		return nil, nil, capability.Errorf(capability.CodeUnavailable, "execute", "%s needs a login of %s before it can be called",
			u.record.Name, principal).With(oauthclient.ReasonLogin, u.howToLogIn(principal))
	}
	return l, l.http, nil
}

// howToLogIn returns the hint for a principal without a login.
func (u *upstream) howToLogIn(principal string) string {
	if policy.IsProgram(principal) {
		return "an operator runs: junctor mcp login " + u.record.Name + " --for " + principal
	}
	return principal + " runs: junctor mcp login " + u.record.Name
}

// list returns the states of the logins, the oldest first.
func (s *logins) list() []LoginOf {
	if s == nil {
		return nil
	}
	lists := s.forLists()
	s.mu.Lock()
	all := make([]*login, 0, len(s.of))
	for _, l := range s.all() {
		if since, _ := l.state(); !since.IsZero() {
			all = append(all, l)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(all, (*login).order)
	var out []LoginOf
	for _, l := range all {
		since, _ := l.state()
		out = append(out, LoginOf{Principal: l.principal, Since: since, State: l.tokens.State(), Lists: l == lists})
	}
	return out
}

// forget removes all logins with their tokens.
func (s *logins) forget(ctx context.Context) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for principal, l := range s.all() {
		l.mu.Lock()
		l.gone = true
		l.mu.Unlock()
		err = cmp.Or(l.tokens.Forget(ctx), err)
		delete(s.of, principal)
	}
	return err
}

// EndLogins removes the logins of principals whose tokens were revoked or have ended for good.
func (r *Registry) EndLogins(ctx context.Context) error {
	if r.cfg.People == nil {
		return nil
	}
	ended, err := r.cfg.People.EndedTokens(ctx)
	if err != nil {
		return err
	}
	for _, u := range r.all() {
		if u.logins == nil {
			continue
		}
		for _, l := range u.logins.list() {
			was, fault := u.end(ctx, l.Principal, func(l *login) bool { return l.token != "" && ended[l.token] })
			if err = cmp.Or(fault, err); was {
				server := capability.Principal{ID: "server", Role: capability.RoleAdmin}
				r.record(ctx, audit.UpstreamLoggedOut, &u.record, server, audit.OutcomeOf(fault == nil),
					audit.Attr{Key: "login", Value: l.Principal}, audit.Attr{Key: "cause", Value: "its token was revoked"})
			}
		}
	}
	return err
}

// LogoutRequest names whose login ends; For as in [LoginStep].
type LogoutRequest struct {
	For string `json:"for,omitempty"`
}

// Logout removes the login of the caller, of the principal that the request names, or the one that
// all callers share, with its tokens. Errors: those of [Registry.Login]; not_found (not_logged_in).
func (r *Registry) Logout(ctx context.Context, by capability.Principal, name string, req LogoutRequest) (LoginResult, error) {
	u, principal, err := r.loginOf(by, name, req.For)
	if err != nil {
		return LoginResult{}, err
	}
	was := false
	if u.logins != nil {
		was, err = u.end(ctx, principal, func(*login) bool { return true })
	} else if was = u.tokens.State().Issuer != ""; was {
		if err = u.tokens.Forget(ctx); err == nil {
			u.again()
		}
	}
	switch {
	case err != nil:
		return LoginResult{}, err
	case !was:
		return LoginResult{}, capability.Errorf(capability.CodeNotFound, "upstreams.logout", "%s is not logged in to %s",
			cmp.Or(principal, "this server"), name).With("not_logged_in", "")
	}
	r.record(ctx, audit.UpstreamLoggedOut, &u.record, by, audit.OutcomeSuccess, audit.Attr{Key: "login", Value: cmp.Or(principal, "shared")})
	return LoginResult{Principal: principal}, nil
}

// loginOf returns the upstream, and the principal whose login a request of by is about: "" for the
// login that all share.
func (r *Registry) loginOf(by capability.Principal, name, of string) (*upstream, string, error) {
	u, err := r.get(name)
	if err != nil {
		return nil, "", err
	}
	operator := by.Role == capability.RoleAdmin || by.Role == capability.RoleOperator
	denied := func(format string, args ...any) error {
		return capability.Errorf(capability.CodeDenied, "upstreams.login", format, args...).With("forbidden", "")
	}
	switch {
	case u.tokens == nil:
		return nil, "", capability.Errorf(capability.CodeConflict, "upstreams.login", "the upstream %s has no login", name).
			With("no_login", "add it with --oauth")
	case by.OnBehalfOf != "":
		return nil, "", denied("%s acts for %s, who logs in", by.ID, by.OnBehalfOf)
	case u.logins == nil && !operator:
		return nil, "", denied("an operator logs in to %s, for all", name)
	case u.logins == nil && of != "":
		return nil, "", capability.Errorf(capability.CodeInvalidInput, "upstreams.login", "all callers of %s share one login", name).
			With("invalid_login", "log in without --for, or add the upstream with --login each")
	case u.logins == nil:
		return u, "", nil
	case of == "" || of == by.ID:
		return u, by.ID, nil
	case !operator || !policy.IsProgram(of):
		return nil, "", denied("people log in for themselves; an operator logs in for programs such as agent:NAME")
	case r.cfg.People != nil && r.cfg.People.TokenID(of) == "":
		return nil, "", capability.Errorf(capability.CodeNotFound, "upstreams.login", "%.100s has no token here", of).
			With("principal_not_found", "see: junctor tokens list")
	}
	return u, of, nil
}
