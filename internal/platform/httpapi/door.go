// Package httpapi holds the code shared by all HTTP surfaces: it authenticates requests by
// their bearer token, reads bodies with a limit, and writes errors and values in the JSON
// form of /api/v1.
package httpapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// Door authenticates requests.
type Door struct {
	policy *policy.Policy
	log    *audit.Log
	logger *slog.Logger
	// refused bounds the recorded failed logins, so that guessing tokens cannot fill the
	// disk.
	refused *rate.Limiter
	oauth   OAuth
	public  string
	browser BrowserSession
}

// BrowserSession returns the principal of a request with the session of a browser, ok = false if it
// carries none, and the error unauthenticated or denied. stands is as for [Stands].
type BrowserSession func(r *http.Request) (who capability.Principal, stands func(used bool) error, ok bool, err error)

type (
	principalKey struct{}
	standsKey    struct{}
)

// Stands returns the error unauthenticated if the token or session of a request that a Door let in was
// revoked or has ended since. What goes on after the answer has begun asks again with each step. With used a
// person does something, which keeps a session from ending.
func Stands(r *http.Request, used bool) error {
	if stands, ok := r.Context().Value(standsKey{}).(func(bool) error); ok {
		return stands(used)
	}
	return nil
}

// While returns a writer whose writes fail once the credential of r no longer [Stands].
func While(w http.ResponseWriter, r *http.Request) http.ResponseWriter { return standing{w, r} }

type standing struct {
	http.ResponseWriter
	r *http.Request
}

func (s standing) Write(data []byte) (int, error) {
	if err := Stands(s.r, false); err != nil {
		return 0, err
	}
	return s.ResponseWriter.Write(data)
}

// Unwrap returns the wrapped ResponseWriter, for [http.ResponseController].
func (s standing) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// WithPrincipal returns a context for a request that the server makes to itself as a principal
// that it has authenticated.
func WithPrincipal(ctx context.Context, who capability.Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, who)
}

// UseSessions accepts the sessions of browsers. It must be called before the first request.
func (d *Door) UseSessions(session BrowserSession) {
	d.browser = session
}

// OAuth checks the access tokens of an authorization server.
type OAuth interface {
	Principal(ctx context.Context, token string) (capability.Principal, error)
	// ScopesFor returns the scopes that a client must request for an effect.
	ScopesFor(e capability.Effect) []string
}

// UseOAuth enables access tokens on the paths of agents' protocols (/mcp and /a2a). public is
// the server's public address; if "", the request's Host is used. It must be called before
// the first request.
func (d *Door) UseOAuth(o OAuth, public string) {
	d.oauth, d.public = o, strings.TrimRight(public, "/")
}

// ResourceMetadata is the path prefix of the protected resource metadata (RFC 9728). The
// resource's path follows.
const ResourceMetadata = "/.well-known/oauth-protected-resource"

// Challenge returns the WWW-Authenticate header for a rejected request, or "" if its path does
// not accept access tokens. With an effect, the header names scopes that cover it.
func (d *Door) Challenge(r *http.Request, effect capability.Effect) string {
	if d.oauth == nil || !takesTokens(r.URL.Path) {
		return ""
	}
	where := d.public
	where = cmp.Or(where, "http://"+r.Host) // with TLS at a proxy, public_url is set
	parts := `Bearer resource_metadata="` + where + ResourceMetadata + `/mcp"`
	if effect != "" {
		parts += `, error="insufficient_scope"`
	} else if r.Header.Get("Authorization") != "" {
		parts += `, error="invalid_token"`
	}
	if scopes := d.oauth.ScopesFor(cmp.Or(effect, capability.EffectRead)); len(scopes) > 0 {
		parts += `, scope="` + strings.Join(scopes, " ") + `"`
	}
	return parts
}

// takesTokens reports whether a path accepts access tokens.
func takesTokens(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first == "mcp" || first == "a2a"
}

// New returns a Door. log and logger may be nil.
func New(p *policy.Policy, log *audit.Log, logger *slog.Logger) *Door {
	logger = cmp.Or(logger, slog.New(slog.DiscardHandler))
	return &Door{policy: p, log: log, logger: logger, refused: rate.NewLimiter(5, 20)}
}

// Principal returns the principal of r, from its Authorization header, or without one from the
// session of a browser. The error is unauthenticated; failures of tokens are recorded as
// login_failed, at most 5 a second. It adds to the context of r what [Stands] asks.
//
// The token of a task agent's session is accepted only at /mcp; elsewhere the error is denied,
// reason task_token. Handlers that accept such a token call [Door.Task].
func (d *Door) Principal(r *http.Request) (capability.Principal, error) {
	p, stands, err := d.bearerOf(r)
	if err == nil && p.Role == capability.RoleTask && surfaceOf(r.URL.Path) != "mcp" {
		return capability.Principal{}, capability.Errorf(capability.CodeDenied, "authenticate",
			"the token of a session is good for /mcp, its own hooks and what its parent knows").With("task_token", "")
	}
	if stands != nil {
		*r = *r.WithContext(context.WithValue(r.Context(), standsKey{}, stands))
	}
	return p, err
}

// Task returns the session whose program sent r. The error is unauthenticated, reason
// not_a_task, for any other token.
func (d *Door) Task(r *http.Request) (session string, err error) {
	p, _, err := d.bearerOf(r)
	if err != nil {
		return "", err
	}
	session, ok := strings.CutPrefix(p.ID, "task:")
	if !ok || p.Role != capability.RoleTask {
		return "", capability.Errorf(capability.CodeUnauthenticated, "authenticate", "this is not the token of a session").With("not_a_task", "")
	}
	return session, nil
}

// bearerOf authenticates the bearer token of r, as an access token or as a token of this server,
// and records a failure.
func (d *Door) bearerOf(r *http.Request) (p capability.Principal, stands func(used bool) error, err error) {
	if who, ok := r.Context().Value(principalKey{}).(capability.Principal); ok {
		return who, nil, nil
	}
	if d.browser != nil && r.Header.Get("Authorization") == "" {
		if who, stands, ok, err := d.browser(r); ok {
			return who, stands, err
		}
	}
	token := Bearer(r)
	if d.oauth != nil && token != "" && takesTokens(r.URL.Path) && !strings.HasPrefix(token, "jct_") {
		p, err = d.oauth.Principal(r.Context(), token)
		stands = func(bool) error {
			_, err := d.oauth.Principal(context.WithoutCancel(r.Context()), token)
			return err
		}
	} else {
		p, err = d.policy.Authenticate(token)
		stands = func(bool) error {
			_, err := d.policy.Verify(token)
			return err
		}
	}
	if err != nil && d.log != nil && r.Header.Get("Authorization") != "" && d.refused.Allow() {
		_, _ = d.log.Append(context.WithoutCancel(r.Context()), audit.Record{
			Logger: "door", Event: audit.LoginFailed, Success: audit.OutcomeFailure, Error: capability.AsError(err).Message,
			Metadata: audit.Metadata{Surface: surfaceOf(r.URL.Path)},
		}, audit.Written)
	}
	return p, stands, err
}

func surfaceOf(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

// Bearer returns the bearer token of r, or "". The scheme is compared without case.
func Bearer(r *http.Request) string {
	const scheme = "bearer "
	header := r.Header.Get("Authorization")
	if len(header) > len(scheme) && strings.EqualFold(header[:len(scheme)], scheme) {
		return strings.TrimSpace(header[len(scheme):])
	}
	return ""
}

// ReadBody reads the whole body. Errors: too_large beyond limit bytes; invalid_input if it cannot be
// read to its end.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		return body, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, capability.Errorf(capability.CodeTooLarge, "read", "the body is larger than %d bytes", limit)
	}
	return nil, capability.Wrap(capability.CodeInvalidInput, "read", "the body could not be read to its end", err)
}

// Decode reads a body of at most MaxBody bytes and decodes it into v. Errors: those of
// [ReadBody]; invalid_input, which names an unknown field or the offset of malformed JSON.
func Decode(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := ReadBody(w, r, MaxBody)
	if err != nil {
		return err
	}
	return DecodeStrict(body, v)
}

// DecodeStrict is like [Decode] for a body that was read already. An empty body means {}.
func DecodeStrict(body []byte, v any) error {
	if len(body) == 0 {
		body = []byte("{}")
	}
	if err := jsonx.UnmarshalStrict(body, v); err != nil {
		return BadJSON(err)
	}
	return nil
}

// BadJSON returns invalid_input for a decoding error, with its offset or field.
func BadJSON(err error) error {
	if s, ok := errors.AsType[*jsonx.SyntaxError](err); ok {
		return capability.Errorf(capability.CodeInvalidInput, "decode", "%s", s.Error()).Detail("offset", s.Offset)
	}
	if t, ok := errors.AsType[*jsonx.TypeError](err); ok {
		return capability.Errorf(capability.CodeInvalidInput, "decode", "%s", t.Error()).Detail("field", t.Pointer)
	}
	return capability.Errorf(capability.CodeInvalidInput, "decode", "%w", err)
}

// WriteJSON writes a response with status and v as JSON, or an internal error if v cannot be
// encoded.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	data, err := jsonx.Answer(v)
	if err != nil {
		WriteError(w, capability.Wrap(capability.CodeInternal, "encode", "the answer could not be written", err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// Answer writes a value as JSON with status 200, or returns err if it is set.
func Answer(w http.ResponseWriter, v any, err error) error {
	if err != nil {
		return err
	}
	WriteJSON(w, http.StatusOK, v)
	return nil
}

// WriteError writes err in the error form of /api/v1, with the HTTP status of its code and the headers
// WWW-Authenticate and Retry-After if they apply.
func WriteError(w http.ResponseWriter, err error) {
	e := capability.AsError(err)
	if e.Code == capability.CodeUnauthenticated && w.Header().Get("WWW-Authenticate") == "" {
		w.Header().Set("WWW-Authenticate", `Bearer realm="junctor"`)
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	WriteJSON(w, e.Code.Row().HTTP, map[string]any{"error": e})
}

// Handler is an HTTP handler that receives the principal and returns its error. It must not write a
// response before it returns an error.
type Handler func(w http.ResponseWriter, r *http.Request, who capability.Principal) error

// Guard returns an http.Handler that authenticates the request, requires one of the roles, if any
// are given, and calls h. It writes any error as the response, and logs an internal one.
func (d *Door) Guard(h Handler, roles ...capability.Role) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := d.Principal(r)
		if err == nil && len(roles) > 0 {
			err = d.policy.Require(r.Context(), who, r.Method+" "+r.URL.Path, roles...)
		}
		if err == nil {
			err = h(w, r, who)
		}
		if err != nil {
			d.report(r, err)
			WriteError(w, err)
		}
	})
}

// report logs an internal error with its cause, which the client does not receive.
func (d *Door) report(r *http.Request, err error) {
	if e := capability.AsError(err); e.Code == capability.CodeInternal {
		d.logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err, "cause", e.Err)
	}
}

// Stream writes server-sent events or NDJSON lines, flushing each, while the credential of its
// request [Stands].
type Stream struct {
	w  http.ResponseWriter
	rc *http.ResponseController
	// NDJSON is true if the client requested lines instead of events.
	NDJSON bool
}

// NewStream starts a streamed response: NDJSON if the Accept header contains
// application/x-ndjson, else server-sent events.
func NewStream(w http.ResponseWriter, r *http.Request) *Stream {
	s := &Stream{w: While(w, r), rc: http.NewResponseController(w), NDJSON: strings.Contains(r.Header.Get("Accept"), "ndjson")}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	if s.NDJSON {
		h.Set("Content-Type", "application/x-ndjson")
	} else {
		h.Set("Content-Type", "text/event-stream")
	}
	w.WriteHeader(http.StatusOK)
	_ = s.rc.Flush()
	return s
}

// Send writes one item; data must be one line of JSON. An error means that the client has
// disconnected or may not read any more.
func (s *Stream) Send(id, event string, data []byte) error {
	var head string
	if !s.NDJSON {
		if id != "" {
			head = "id: " + id + "\n"
		}
		if event != "" {
			head += "event: " + event + "\n"
		}
		head += "data: "
	}
	tail := "\n\n"
	if s.NDJSON {
		tail = "\n"
	}
	// The caller owns data, so nothing is appended to it.
	return s.write([]byte(head), data, []byte(tail))
}

// write writes and flushes the parts within 30 s.
func (s *Stream) write(parts ...[]byte) error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(30 * time.Second)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	for _, p := range parts {
		if _, err := s.w.Write(p); err != nil {
			return err
		}
	}
	return s.rc.Flush()
}

// Comment writes a comment, which readers of server-sent events ignore. It writes nothing to an
// NDJSON stream.
func (s *Stream) Comment(text string) error {
	if s.NDJSON {
		return nil
	}
	return s.write([]byte(":" + text + "\n\n"))
}

// Beat writes a comment or an empty line, so that proxies keep an idle stream open.
func (s *Stream) Beat() error {
	if s.NDJSON {
		return s.write([]byte("\n"))
	}
	return s.write([]byte(": still here\n\n"))
}
