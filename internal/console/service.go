// Package console serves the web console: the page, and the sign-in of browsers. The console is a client
// of the public API; a session acts as the principal of its token, which made the link or stands for the
// person whom a provider signed in.
package console

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/console/passkey"
	"github.com/junctor-run/junctor/internal/console/webpush"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/oauth"
	"github.com/junctor-run/junctor/secret"
)

// The headers of the page's requests.
const (
	// SecretHeader holds the half of a session that is not the cookie.
	SecretHeader = "Junctor-Console"
	// BackgroundHeader marks what the page fetches without a person's doing.
	BackgroundHeader = "Junctor-Background"
	// VerificationHeader is the id of a verification, a colon, and the code or the response of a
	// passkey as base64url.
	VerificationHeader = "Junctor-Verification"
)

// Tokens finds the tokens that sessions belong to, and makes those of people who sign in with a
// provider.
type Tokens interface {
	Token(value string) (policy.Token, error)
	SignIn(ctx context.Context, person policy.Person, until time.Time) (policy.Token, error)
	EndSignIns(ctx context.Context, identity string) (ended bool, err error)
	Credential(ctx context.Context, of policy.Token, until time.Time) (policy.Token, secret.Value, error)
	RevokeCredential(ctx context.Context, value string) (capability.Principal, error)
	webpush.Policy
}

// Config holds the dependencies of a Service. All fields but Verify and OIDC are required.
type Config struct {
	Dir       string // holds the sessions; created if missing
	Home      string // the home directory, from which the name of the cookie is made
	PublicURL string // of a proxy in front, or ""
	Address   func() string
	NotFound  func(w http.ResponseWriter) // answers programs that ask for /
	Tokens    Tokens
	Door      *httpapi.Door
	Bus       *bus.Bus
	Log       *audit.Log
	Logger    *slog.Logger
	// Print shows the person at the server's terminal a line. nil if it has none.
	Print func(line string)
	// Verify is "code", "passkey", or "off" for no verification of dangerous decisions.
	Verify string
	OIDC   config.OIDC // with which people sign in
	Secret func(name string) (secret.Value, error)
}

// Service serves the console.
type Service struct {
	cfg      Config
	cookie   string
	secure   bool
	sessions *sessions
	verify   *verifications
	files    *files
	frames   frames
	push     *webpush.Service
	passkeys *passkey.Store
	people   *oauth.Login  // nil: people use tokens only
	failures *rate.Limiter // bounds the failures that are recorded, of sign-ins, passkeys and confirmations
	api      http.Handler  // the public API, for what the server fetches as a person
}

// UseAPI sets the handler of the public API. It must be called before the first request.
func (s *Service) UseAPI(api http.Handler) { s.api = api }

// New opens the console's sessions.
func New(cfg Config) (*Service, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "console", "the folder "+cfg.Dir+" cannot be created", err)
	}
	list, err := openSessions(filepath.Join(cfg.Dir, "sessions.json"), time.Now)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, sessions: list, verify: newVerifications(time.Now), failures: rate.NewLimiter(5, 20)}
	if s.people, err = s.openLogin(); err != nil {
		return nil, err
	}
	if s.passkeys, err = passkey.Open(filepath.Join(cfg.Dir, "passkeys.json"), time.Now); err != nil {
		return nil, err
	}
	u, err := url.Parse(cfg.PublicURL)
	s.secure = err == nil && u.Scheme == "https"
	s.cookie = cookieName(cfg.Home, s.secure)
	if s.files, err = openFiles(); err != nil {
		return nil, err
	}
	s.push, err = webpush.New(webpush.Config{
		Dir: cfg.Dir, Contact: projectURL, Policy: cfg.Tokens, Bus: cfg.Bus, Log: cfg.Log, Logger: cfg.Logger,
	})
	return s, err
}

// Run sends notifications until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	s.push.Run(ctx)
	return nil
}

// Close does nothing: sessions are saved when they change.
func (s *Service) Close() error { return nil }

// Checks reports a console that is not part of this build, notifications that were refused, and the
// provider with which people sign in.
func (s *Service) Checks(ctx context.Context) []httpapi.Check {
	checks := s.checkLogin(ctx)
	if s.files.built {
		return append(checks, s.push.Checks()...)
	}
	return append(checks, httpapi.Check{
		Name: "web console", OK: true, Detail: "this build has no page: npm was missing when it was made (make build)",
	})
}

// Routes adds the page and the sign-in to mux.
func (s *Service) Routes(mux *http.ServeMux) {
	operator := func(h httpapi.Handler) http.Handler {
		return s.cfg.Door.Guard(h, capability.RoleAdmin, capability.RoleOperator)
	}
	mux.Handle("GET /api/v1/attention", operator(s.showAttention))
	mux.Handle("POST /api/v1/console/codes", operator(s.newCode))
	mux.Handle("GET /api/v1/console/sessions", operator(s.listSessions))
	mux.Handle("DELETE /api/v1/console/sessions/{id}", operator(s.endSession))
	mux.Handle("GET /api/v1/console/verifications", operator(s.listVerifications))
	mux.Handle("GET "+passkeysPath, operator(s.listPasskeys))
	mux.Handle("POST "+passkeysPath, operator(s.addPasskey))
	mux.Handle("POST "+passkeysPath+"/options", operator(s.beginPasskey))
	mux.Handle("DELETE "+passkeysPath+"/{id}", operator(s.removePasskey))
	mux.Handle("GET /api/v1/console/push", operator(s.listPush))
	mux.Handle("POST /api/v1/console/push", operator(s.addPush))
	mux.Handle("DELETE /api/v1/console/push/{id}", operator(s.removePush))
	mux.Handle("GET /console/login", plain(s.showLogin))
	mux.Handle("POST /console/login", plain(s.beginLogin))
	mux.Handle("POST /api/v1/login", plain(s.beginDevice))
	mux.Handle("POST /api/v1/login/wait", plain(s.waitForDevice))
	mux.Handle("DELETE /api/v1/login", plain(s.endLogin))
	mux.Handle("POST /console/session", plain(s.signIn))
	mux.Handle("GET /console/session", plain(s.showSession))
	mux.Handle("DELETE /console/session", plain(s.signOut))
	mux.Handle("POST /console/tickets", plain(s.newTicket))
	mux.Handle("POST /console/frames", plain(s.newFrame))
	mux.Handle("POST /console/apps", plain(s.newApp))
	mux.HandleFunc("GET /console/frames/{ticket}/{$}", s.showFrame)
	mux.HandleFunc("GET /console/frames/{ticket}/{name...}", s.frameFile)
	mux.Handle("POST /console/frames/{ticket}/call", plain(s.frameCall))
	mux.HandleFunc("GET /console/", s.files.serve)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			http.Redirect(w, r, "/console/", http.StatusFound)
			return
		}
		s.cfg.NotFound(w)
	})
}

// plain writes the error of a handler that authenticates by itself.
func plain(h func(w http.ResponseWriter, r *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			httpapi.WriteError(w, err)
		}
	})
}

// bearerToken returns the caller's token. A session cannot make codes, nor read verification codes:
// both prove that the person is at a terminal.
func (s *Service) bearerToken(r *http.Request) (policy.Token, error) {
	value := httpapi.Bearer(r)
	if value == "" {
		return policy.Token{}, capability.Errorf(capability.CodeDenied, "console", "a session of the console cannot do this").
			With("console_token_required", "run junctor console at a terminal")
	}
	return s.cfg.Tokens.Token(value)
}

func (s *Service) newCode(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	t, err := s.bearerToken(r)
	if err != nil {
		return err
	}
	value, expires := s.sessions.newCode(t.ID, who.ID)
	w.Header().Set("Cache-Control", "no-store")
	httpapi.WriteJSON(w, http.StatusCreated, struct {
		URL     string    `json:"url"`
		Expires time.Time `json:"expires"`
		Built   bool      `json:"built"` // false if this build has no page
	}{s.Link(value), expires.UTC(), s.files.built})
	return nil
}

// Link returns the address that signs a browser in with a code. The code is in the fragment,
// which browsers send to no server.
func (s *Service) Link(value string) string { return s.base() + "/console/#c=" + value }

// base returns the address of this server for browsers. Passkeys and cookies belong to the name
// localhost.
func (s *Service) base() string {
	base := s.cfg.PublicURL
	if base == "" {
		u, err := url.Parse(s.cfg.Address())
		if err == nil && u.Hostname() == "127.0.0.1" {
			u.Host = "localhost:" + u.Port()
		}
		base = u.String()
	}
	return strings.TrimRight(base, "/")
}

// shownSession is a session in the API.
type shownSession struct {
	ID        string    `json:"id"`
	Principal string    `json:"principal"`
	Created   time.Time `json:"created"`
	Used      time.Time `json:"used"`
	Expires   time.Time `json:"expires"`
	Secret    string    `json:"secret,omitempty"` // once, at the sign-in
	Role      string    `json:"role,omitempty"`
}

func shown(one session) shownSession {
	return shownSession{ID: one.ID, Principal: one.Principal, Created: one.Created, Used: one.Used, Expires: one.Expires}
}

func (s *Service) listSessions(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	list := []shownSession{}
	for _, one := range s.sessions.all() {
		list = append(list, shown(one))
	}
	return httpapi.Answer(w, map[string]any{"sessions": list}, nil)
}

func (s *Service) endSession(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	one, err := s.sessions.end(r.PathValue("id"))
	if err != nil {
		return err
	}
	s.push.EndSession(r.Context(), one.ID)
	s.record(r.Context(), audit.SessionEnded, who.ID, nil, attr("session", one.ID))
	return httpapi.Answer(w, shown(one), nil)
}

func (s *Service) listVerifications(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	if _, err := s.bearerToken(r); err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return httpapi.Answer(w, map[string]any{"verifications": s.verify.of(who)}, nil)
}

func (s *Service) signIn(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		oauth.Answer        // its code is the only member of a link
		Login        string `json:"login"` // of a sign-in with a provider
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	var one session
	var cookie, half string
	var about []audit.Attr
	var err error
	if req.Login != "" {
		one, cookie, half, about, err = s.finishLogin(r, req.Login, req.Answer)
	} else {
		one, cookie, half, err = s.sessions.signIn(req.Code)
	}
	if err != nil {
		return err
	}
	t, ok := s.cfg.Tokens.StandingToken(one.Token)
	if !ok {
		_, _ = s.sessions.end(one.ID)
		return ended()
	}
	s.record(r.Context(), audit.Login, one.Principal, nil, append(about, attr("session", one.ID))...)
	http.SetCookie(w, &http.Cookie{
		Name: s.cookie, Value: cookie, Path: "/", Expires: one.Expires, HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteStrictMode,
	})
	w.Header().Set("Cache-Control", "no-store")
	body := shown(one)
	body.Secret, body.Role = half, string(t.Role)
	httpapi.WriteJSON(w, http.StatusCreated, body)
	return nil
}

func (s *Service) showSession(w http.ResponseWriter, r *http.Request) error {
	one, t, err := s.session(r)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	body := shown(one)
	body.Role = string(t.Role)
	return httpapi.Answer(w, body, nil)
}

func (s *Service) signOut(w http.ResponseWriter, r *http.Request) error {
	one, _, err := s.session(r)
	if err != nil {
		return err
	}
	if _, err = s.sessions.end(one.ID); err != nil {
		return err
	}
	s.push.EndSession(r.Context(), one.ID)
	s.record(r.Context(), audit.SessionEnded, one.Principal, nil, attr("session", one.ID))
	http.SetCookie(w, &http.Cookie{Name: s.cookie, Path: "/", MaxAge: -1, HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteStrictMode})
	var end string
	if one.Elsewhere && s.people != nil {
		end = s.people.EndSession(r.Context(), one.hint, ids.Hex("", 8))
	}
	return answerEnd(w, end)
}

func attr(key, value string) audit.Attr {
	return audit.Attr{Key: key, Value: text.CutBytes(text.Visible(value), 256)}
}

// record records a sign-in, its end or a change of passkeys, or with an error that it failed.
func (s *Service) record(ctx context.Context, event audit.Event, principal string, failure error, about ...audit.Attr) {
	r := audit.Record{
		Logger: "console", Event: event, Success: audit.OutcomeSuccess,
		Metadata: audit.Metadata{Surface: "console", Principal: audit.Principal{ID: principal}, Attrs: about},
	}
	if failure != nil {
		r.Success, r.Error = audit.OutcomeFailure, capability.AsError(failure).Message
	}
	if _, err := s.cfg.Log.Append(context.WithoutCancel(ctx), r, audit.Written); err != nil {
		s.cfg.Logger.Error("event not recorded", "event", event, "err", err)
	}
}

// session returns the session of a request and its token. The error is unauthenticated.
func (s *Service) session(r *http.Request) (session, policy.Token, error) {
	cookie, err := r.Cookie(s.cookie)
	if err != nil || r.Header.Get(SecretHeader) == "" {
		return session{}, policy.Token{}, ended()
	}
	one, err := s.sessions.use(cookie.Value, r.Header.Get(SecretHeader), r.Header.Get(BackgroundHeader) == "")
	if err != nil {
		return session{}, policy.Token{}, err
	}
	t, ok := s.cfg.Tokens.StandingToken(one.Token)
	if !ok {
		_, _ = s.sessions.end(one.ID)
		return session{}, policy.Token{}, ended()
	}
	return one, t, nil
}

// newTicket answers with a ticket for the terminal's WebSocket.
func (s *Service) newTicket(w http.ResponseWriter, r *http.Request) error {
	one, _, err := s.session(r)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	httpapi.WriteJSON(w, http.StatusCreated, map[string]any{"ticket": s.sessions.newTicket(one)})
	return nil
}

// ticketOf returns the ticket that a WebSocket's request offers as a subprotocol, or "".
func ticketOf(r *http.Request) string {
	if path := r.URL.Path; path != "/api/coding-agents/console" && path != "/api/task-agents/console" {
		return ""
	}
	for name := range strings.SplitSeq(r.Header.Get("Sec-WebSocket-Protocol"), ",") {
		if value, ok := strings.CutPrefix(strings.TrimSpace(name), "ticket."); ok {
			return value
		}
	}
	return ""
}

// Session implements [httpapi.BrowserSession] for console sessions.
func (s *Service) Session(r *http.Request) (who capability.Principal, stands func(used bool) error, ok bool, err error) {
	var one session
	if value := ticketOf(r); value != "" {
		one, err = s.sessions.useTicket(value)
	} else {
		switch {
		case r.Header.Get(SecretHeader) == "":
			return who, nil, false, nil
		case !reachable(r.URL.Path):
			return who, nil, true, capability.Errorf(capability.CodeDenied, "console",
				"a session of the console is good for the API of people only").With("console_token_required", "agents use a token of their own")
		}
		one, _, err = s.session(r)
	}
	if err != nil {
		return who, nil, true, err
	}
	t, standing := s.cfg.Tokens.StandingToken(one.Token)
	if !standing {
		return who, nil, true, ended()
	}
	return t.Principal(), func(used bool) error {
		if _, standing := s.cfg.Tokens.StandingToken(one.Token); !standing || !s.sessions.stands(one.ID, used) {
			return ended()
		}
		return nil
	}, true, nil
}

// reachable reports whether sessions are good for a path.
func reachable(path string) bool {
	for _, prefix := range []string{
		"/api/v1/", "/api/capability-router/", "/api/coding-agents/", "/api/task-agents/", "/api/workspace/", "/api/issues/", "/api/modules/",
	} {
		if strings.HasPrefix(path, prefix) || path == strings.TrimSuffix(prefix, "/") {
			return true
		}
	}
	return false
}

// Guard requires the verification of dangerous decisions that come from a browser: they are
// answered with denied, reason console_code_required, until they are sent again with the code that
// was printed on the terminal, or console_passkey_required for a person who has a passkey.
func (s *Service) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(SecretHeader) != "" && s.cfg.Verify != "off" {
			verified, err := s.verified(w, r)
			if err != nil {
				httpapi.WriteError(w, err)
				return
			}
			r = verified
		}
		next.ServeHTTP(w, r)
	})
}

// verified returns the request with a context in which dangerous calls need its verification. It
// returns an error if the request is a dangerous decision itself and does not carry one.
func (s *Service) verified(w http.ResponseWriter, r *http.Request) (*http.Request, error) {
	_, t, err := s.session(r)
	if err != nil {
		return r, nil //nolint:nilerr // the handler refuses it
	}
	principal := t.Principal().ID
	var body []byte
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		if body, err = httpapi.ReadBody(w, r, httpapi.MaxBody); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	digest := requestDigest(r.Method, r.URL.RequestURI(), body)
	confirmed := "" // what the person was shown
	if header := r.Header.Get(VerificationHeader); header != "" {
		id, proof, ok := strings.Cut(header, ":")
		if !ok {
			return nil, capability.Errorf(capability.CodeInvalidInput, "console.verify", "the header %s holds an id, a colon and a proof",
				VerificationHeader)
		}
		if confirmed, err = s.verify.check(principal, id, proof, digest, s.signed); err != nil {
			return nil, err
		}
	}
	whole := dangerous(r, body)
	need := func(what string) error {
		if confirmed != "" && (what == confirmed || confirmed == whole) {
			return nil // what was shown; a decision about the whole request covers what it does
		}
		return s.demand(principal, what, digest, r.URL.Path)
	}
	if whole != "" {
		if err := need(whole); err != nil {
			return nil, err
		}
	}
	return r.WithContext(policy.WithVerifier(r.Context(), func(by, what string) error {
		if by != principal {
			return nil // an agent's act on the way: the rules ask for an approval
		}
		return need(what)
	})), nil
}

// demand asks a person to confirm an act with their passkey, or the code on the terminal if they have
// none. It returns the error that the page acts on. path is that of the request.
func (s *Service) demand(principal, what, digest, path string) error {
	if err := s.verify.locked(principal); err != nil {
		if s.failures.Allow() {
			s.cfg.Logger.Warn("decisions in the console are locked", "principal", principal)
		}
		return err
	}
	if c, options, ok := s.passkeys.Challenge(s.base(), principal); ok {
		one, _ := s.verify.ask(verification{Principal: principal, What: what, digest: digest, challenge: c, options: options})
		return capability.Errorf(capability.CodeDenied, "console.verify", "this needs your passkey").
			With("console_passkey_required", "confirm it in the console; a lost passkey is removed with: junctor console passkeys --remove ID").
			Detail("verification", one.ID).Detail("what", what).Detail("options", one.options)
	}
	if s.cfg.Verify == "passkey" && path != passkeysPath {
		return capability.Errorf(capability.CodeDenied, "console.verify",
			"this server lets people confirm decisions with passkeys only, and you have none").
			With("console_passkey_missing", "add one on the page Access of the console")
	}
	one, created := s.verify.ask(verification{Principal: principal, What: what, digest: digest})
	if created && s.cfg.Print != nil {
		s.cfg.Print("Code " + one.Code + " confirms in the console: " + what + " (two minutes)")
	}
	return capability.Errorf(capability.CodeDenied, "console.verify", "this needs the code that junctor printed on its terminal").
		With("console_code_required", "read it on the terminal of junctor serve, or run junctor console code").
		Detail("verification", one.ID).Detail("what", what)
}
