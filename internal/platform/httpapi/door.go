// Package httpapi is what all HTTP surfaces share: the bearer token of a request
// becomes a principal, bodies are read under a limit, and errors and values are
// written in the one JSON form of /api/v1. It decides nothing else.
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

// BodyLimit is the largest body of /api/v1 and of the connect API; the router,
// MCP and A2A doors have their own.
const BodyLimit = 1 << 20

// Door authenticates requests.
type Door struct {
	policy *policy.Policy
	log    *audit.Log
	logger *slog.Logger
	// refused bounds how many failed logins are written, so that a stranger
	// cannot fill the disk by guessing.
	refused *rate.Limiter
	oauth   OAuth
	public  string
}

// OAuth checks the access tokens of an authorization server.
type OAuth interface {
	Principal(ctx context.Context, token string) (capability.Principal, error)
	// ScopesFor are the scopes to ask for where an effect is to be allowed.
	ScopesFor(e capability.Effect) []string
}

// UseOAuth makes the door take access tokens too, on the paths of agents' protocols:
// they are made for those. public is the server's address as others see it, "" where
// requests say it. It must be called before the first request.
func (d *Door) UseOAuth(o OAuth, public string) {
	d.oauth, d.public = o, strings.TrimRight(public, "/")
}

// ResourceMetadata is where the metadata of the protected resource of a path are
// (RFC 9728): below this, followed by the path.
const ResourceMetadata = "/.well-known/oauth-protected-resource"

// Challenge is the WWW-Authenticate of a refusal at a path that takes access tokens;
// "" where none are taken. With an effect, it asks for scopes that cover it.
func (d *Door) Challenge(r *http.Request, effect capability.Effect) string {
	if d.oauth == nil || !takesTokens(r.URL.Path) {
		return ""
	}
	where := d.public
	if where == "" {
		where = "http://" + r.Host // TLS ends at a proxy, and that has a public_url
	}
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

func takesTokens(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first == "mcp" || first == "a2a"
}

// New returns a Door. log and logger may be nil.
func New(p *policy.Policy, log *audit.Log, logger *slog.Logger) *Door {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Door{policy: p, log: log, logger: logger, refused: rate.NewLimiter(5, 20)}
}

// Principal states who sent r, from its Authorization header alone. A failure is
// code unauthenticated and is recorded as login_failed, at most 5 a second.
//
// The token of a task agent's session is taken at /mcp only: elsewhere it is denied,
// reason task_token. What else it is good for asks [Door.Task].
func (d *Door) Principal(r *http.Request) (capability.Principal, error) {
	p, err := d.bearerOf(r)
	if err == nil && p.Role == capability.RoleTask && surfaceOf(r.URL.Path) != "mcp" {
		return capability.Principal{}, capability.Errorf(capability.CodeDenied, "authenticate",
			"the token of a session is good for /mcp, its own hooks and what its parent knows").With("task_token", "")
	}
	return p, err
}

// Task returns the session whose program sent r. The error is unauthenticated, reason
// not_a_task, for any other token.
func (d *Door) Task(r *http.Request) (session string, err error) {
	p, err := d.bearerOf(r)
	if err != nil {
		return "", err
	}
	session, ok := strings.CutPrefix(p.ID, "task:")
	if !ok || p.Role != capability.RoleTask {
		return "", capability.Errorf(capability.CodeUnauthenticated, "authenticate", "this is not the token of a session").With("not_a_task", "")
	}
	return session, nil
}

func (d *Door) bearerOf(r *http.Request) (capability.Principal, error) {
	token := bearer(r.Header.Get("Authorization"))
	var p capability.Principal
	var err error
	if d.oauth != nil && token != "" && takesTokens(r.URL.Path) && !strings.HasPrefix(token, "jct_") {
		p, err = d.oauth.Principal(r.Context(), token)
	} else {
		p, err = d.policy.Authenticate(token)
	}
	if err != nil && d.log != nil && r.Header.Get("Authorization") != "" && d.refused.Allow() {
		_, _ = d.log.Append(context.WithoutCancel(r.Context()), audit.Record{
			Logger: "door", Event: audit.LoginFailed, Success: audit.OutcomeFailure, Error: capability.AsError(err).Message,
			Metadata: audit.Metadata{Surface: surfaceOf(r.URL.Path)},
		}, audit.Written)
	}
	return p, err
}

func surfaceOf(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

// bearer takes the token out of the header; the scheme's case does not matter.
func bearer(header string) string {
	const scheme = "bearer "
	if len(header) > len(scheme) && strings.EqualFold(header[:len(scheme)], scheme) {
		return strings.TrimSpace(header[len(scheme):])
	}
	return ""
}

// ReadBody reads the whole body, at most limit bytes; more is code too_large.
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

// Decode reads a strict JSON body into v: an unknown field is named, malformed
// JSON names its offset.
func Decode(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := ReadBody(w, r, BodyLimit)
	if err != nil {
		return err
	}
	return DecodeStrict(body, v)
}

// DecodeStrict decodes a body that was read, as [Decode] does. An empty body is {}.
func DecodeStrict(body []byte, v any) error {
	if len(body) == 0 {
		body = []byte("{}")
	}
	if err := jsonx.UnmarshalStrict(body, v); err != nil {
		return BadJSON(err)
	}
	return nil
}

// BadJSON makes a decoding error an answer.
func BadJSON(err error) error {
	if s, ok := errors.AsType[*jsonx.SyntaxError](err); ok {
		return capability.Errorf(capability.CodeInvalidInput, "decode", "%s", s.Error()).Detail("offset", s.Offset)
	}
	if t, ok := errors.AsType[*jsonx.TypeError](err); ok {
		return capability.Errorf(capability.CodeInvalidInput, "decode", "%s", t.Error()).Detail("field", t.Pointer)
	}
	return capability.Errorf(capability.CodeInvalidInput, "decode", "%w", err)
}

// WriteJSON answers with v.
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

// WriteError answers with the error form of /api/v1 and the status of its code.
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

// Handler is an HTTP handler that knows who asks and returns its failure.
type Handler func(w http.ResponseWriter, r *http.Request, who capability.Principal) error

// Guard makes h an http.Handler: no principal, no call; an error is written.
// With roles given the principal must have one of them.
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

// report tells operators what an internal error hides from the caller.
func (d *Door) report(r *http.Request, err error) {
	if e := capability.AsError(err); e.Code == capability.CodeInternal {
		d.logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err, "cause", e.Err)
	}
}

// Stream writes server-sent events or NDJSON lines, flushing each.
type Stream struct {
	w  http.ResponseWriter
	rc *http.ResponseController
	// NDJSON reports that the client asked for lines instead of events.
	NDJSON bool
}

// NewStream starts a streaming answer: NDJSON when the Accept header asks for
// application/x-ndjson, else server-sent events.
func NewStream(w http.ResponseWriter, r *http.Request) *Stream {
	s := &Stream{w: w, rc: http.NewResponseController(w), NDJSON: strings.Contains(r.Header.Get("Accept"), "ndjson")}
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

// Send writes one item; data is one line of JSON. An error means the client is
// gone.
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
	// data stays the caller's: nothing is appended to it.
	return s.write([]byte(head), data, []byte(tail))
}

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

// Comment writes a line that readers of server-sent events pass over; nothing where the
// stream is NDJSON.
func (s *Stream) Comment(text string) error {
	if s.NDJSON {
		return nil
	}
	return s.write([]byte(":" + text + "\n\n"))
}

// Beat keeps a quiet stream open through proxies.
func (s *Stream) Beat() error {
	if s.NDJSON {
		return s.write([]byte("\n"))
	}
	return s.write([]byte(": still here\n\n"))
}
