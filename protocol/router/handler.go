package router

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

// The paths of the wire.
const (
	PathAvailability = "/v1/capabilities"
	PathInvoke       = "/v1/capabilities/invoke"
	PathAssets       = "/v1/capabilities/assets/"
)

// DefaultMaxBody bounds the body of a request.
const DefaultMaxBody = 4 << 20

// DefaultBodyTimeout bounds the arrival of a request's body.
const DefaultBodyTimeout = 30 * time.Second

// Backend carries out the calls of one authenticated caller.
//
// Invoke gets parameters that DecodeParams accepted; they are valid only until
// it returns. It returns one JSON value, or nil for no result; the handler only
// reads it, and not after the answer is written. Errors are *Error,
// *capability.Error or anything, which then counts as internal. Both methods
// must be safe for concurrent use and honour ctx.
type Backend interface {
	Availability(ctx context.Context) (Availability, error)
	Invoke(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
}

// HandlerOptions adjusts [Handler]; the zero value is the standard behavior.
type HandlerOptions struct {
	// MaxBody bounds a request body in bytes; 0 is DefaultMaxBody.
	MaxBody int64
	// BodyTimeout bounds how long a request's body may take to arrive, and a large
	// answer to be taken, with a second more for every 64 KiB; 0 is
	// DefaultBodyTimeout. It works with net/http's server, whose own timeouts
	// could not tell a slow caller from a long call.
	BodyTimeout time.Duration
	// OpenAssets lets browsers import assets from any origin. It is meant for
	// development endpoints without a token only.
	OpenAssets bool
	// SkipResultCheck trusts the backend's results. Set it where they were
	// checked before, as in a router that is itself an endpoint.
	SkipResultCheck bool
}

// Handler serves the endpoint side of the wire. resolve authenticates each
// request and returns the backend of its principal; it runs before anything
// else is looked at, so that a stranger learns nothing from path or body. A
// failure of resolve is a refusal of the transport: *Error with its Status, or
// *capability.Error with the status of its code; 401 carries WWW-Authenticate.
func Handler(resolve func(*http.Request) (Backend, error), opts HandlerOptions) http.Handler {
	if opts.MaxBody <= 0 {
		opts.MaxBody = DefaultMaxBody
	}
	if opts.BodyTimeout <= 0 {
		opts.BodyTimeout = DefaultBodyTimeout
	}
	return &handler{resolve: resolve, opts: opts, pace: pace}
}

type handler struct {
	resolve func(*http.Request) (Backend, error)
	opts    HandlerOptions
	bodies  buffers
	pace    int64
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// Also where the body is not read: the server itself waits for the rest of
		// a short one.
		size := r.ContentLength
		if size < 0 || size > h.opts.MaxBody {
			size = h.opts.MaxBody
		}
		h.until(size, http.NewResponseController(w).SetReadDeadline)
	}
	backend, err := h.resolve(r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	path := r.URL.Path
	switch {
	case path == PathInvoke && r.Method == http.MethodPost:
		h.invoke(w, r, backend)
	case path == PathAvailability && r.Method == http.MethodGet:
		h.availability(w, r, backend)
	case strings.HasPrefix(path, PathAssets) && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		h.asset(w, r, backend)
	default:
		writeError(w, &Error{
			Code: CodeUnavailable, Status: http.StatusNotFound, Method: path,
			Message: "nothing is served at " + r.Method + " " + path,
			Details: detailsOf(capability.CodeNotFound, ""),
		})
	}
}

// pace is what a caller must manage: bytes in a second.
const pace = 64 << 10

// until sets a deadline for size bytes.
func (h *handler) until(size int64, set func(time.Time) error) {
	_ = set(time.Now().Add(h.opts.BodyTimeout + time.Duration(size/h.pace)*time.Second)) // not every ResponseWriter has deadlines
}

// untilTaken bounds how long an answer may take to leave. A small one fits into
// the connection's buffers, and a timer for it would cost a call 4 µs.
func (h *handler) untilTaken(w http.ResponseWriter, size int) {
	if size > 32<<10 {
		h.until(int64(size), http.NewResponseController(w).SetWriteDeadline)
	}
}

// RequireToken is the resolve function of a simple endpoint: one token, one
// backend. The scheme is read without regard to case and the token compared in
// constant time. An empty token leaves the endpoint open, which only a
// loopback listener should be.
func RequireToken(token secret.Value, backend Backend) func(*http.Request) (Backend, error) {
	return func(r *http.Request) (Backend, error) {
		if token.Empty() {
			return backend, nil
		}
		given, ok := BearerToken(r)
		if !ok {
			return nil, capability.Errorf(capability.CodeUnauthenticated, "", "this endpoint needs a bearer token")
		}
		if !token.Equal(given) {
			return nil, capability.Errorf(capability.CodeUnauthenticated, "", "the bearer token is not valid here")
		}
		return backend, nil
	}
}

// BearerToken returns the token of the Authorization header.
func BearerToken(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	token = strings.TrimSpace(token)
	return token, token != ""
}

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := *asWire(err, "")
	if e.Status == 0 {
		e.Status = e.ToCapability("").Code.Row().HTTP
	}
	if e.Method == "" {
		e.Method = r.URL.Path
	}
	if e.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeError(w, &e)
}

func (h *handler) availability(w http.ResponseWriter, r *http.Request, backend Backend) {
	a, err := backend.Availability(r.Context())
	if err != nil {
		e := *asWire(err, "availability")
		e.Method, e.Status = "availability", http.StatusServiceUnavailable
		writeError(w, &e)
		return
	}
	body, err := marshal(a)
	if err != nil {
		writeError(w, asWire(err, "availability"))
		return
	}
	writeJSON(w, http.StatusOK, body)
}

// buffers hold request bodies for the time of one call.
type buffers struct{ sync.Pool }

func (p *buffers) get() *bytes.Buffer {
	if b, ok := p.Get().(*bytes.Buffer); ok {
		b.Reset()
		return b
	}
	return new(bytes.Buffer)
}

func (p *buffers) put(b *bytes.Buffer) {
	// A rare giant must not stay resident for ever.
	if b.Cap() <= 1<<20 {
		p.Put(b)
	}
}

func (h *handler) invoke(w http.ResponseWriter, r *http.Request, backend Backend) {
	buf := h.bodies.get()
	defer h.bodies.put(buf)
	if e := h.readBody(buf, r); e != nil {
		// The rest of the body is not read: the connection must not be reused.
		w.Header().Set("Connection", "close")
		writeError(w, e)
		return
	}
	if r.ContentLength != 0 {
		// The deadline is the body's; the server now watches for the caller's leaving.
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // not every ResponseWriter has deadlines
	}
	method, params, e := parseInvoke(buf.Bytes(), r.URL.Path)
	if e != nil {
		writeError(w, e)
		return
	}
	params, err := DecodeParams(method, params)
	if err != nil {
		writeError(w, asWire(err, method))
		return
	}
	result, err := backend.Invoke(r.Context(), method, params)
	if err == nil && !h.opts.SkipResultCheck {
		err = VerifyResult(method, result)
	}
	if err != nil {
		writeError(w, inMethod(err, method))
		return
	}
	h.untilTaken(w, len(result))
	head := w.Header()
	head["Content-Type"] = jsonType
	if result == nil {
		_, _ = io.WriteString(w, `{"ok":true}`)
		return
	}
	head["Content-Length"] = []string{strconv.Itoa(len(okPrefix) + len(result) + 1)}
	// A failed write means the caller is gone; the error cannot be sent.
	_, _ = io.WriteString(w, okPrefix)
	_, _ = w.Write(result)
	_, _ = io.WriteString(w, "}")
}

const okPrefix = `{"ok":true,"result":`

var jsonType = []string{"application/json"}

// inMethod returns err for an answer to method: as a failure of the capability,
// whatever status it had where it came from.
func inMethod(err error, method string) *Error {
	e := *asWire(err, method)
	if e.Method == "" {
		e.Method = method
	}
	e.Status = 0
	return &e
}

func (h *handler) readBody(buf *bytes.Buffer, r *http.Request) *Error {
	limit := h.opts.MaxBody
	if r.ContentLength > limit {
		return bodyTooLarge(limit, r.URL.Path)
	}
	if r.ContentLength > 0 {
		// The declared length is believed up to a point: a caller must not make us
		// allocate what it never sends.
		buf.Grow(int(min(r.ContentLength, 1<<16)) + bytes.MinRead)
	}
	n, err := buf.ReadFrom(io.LimitReader(r.Body, limit+1))
	switch {
	case n > limit:
		return bodyTooLarge(limit, r.URL.Path)
	case err != nil:
		return &Error{
			Code: CodeRequestFailed, Status: http.StatusBadRequest, Method: r.URL.Path,
			Message: "the request body could not be read", Details: detailsOf(capability.CodeInvalidInput, "incomplete_body"),
		}
	}
	return nil
}

func bodyTooLarge(limit int64, path string) *Error {
	return &Error{
		Code: CodeDecodeFailed, Status: http.StatusRequestEntityTooLarge, Method: path,
		Message: "the request body exceeds the limit of " + strconv.FormatInt(limit, 10) + " bytes",
		Details: detailsOf(capability.CodeTooLarge, ""),
	}
}

// parseInvoke takes the request apart; params alias the body.
func parseInvoke(body []byte, path string) (method string, params json.RawMessage, e *Error) {
	bad := func(msg string, details json.RawMessage) *Error {
		return &Error{Code: CodeDecodeFailed, Status: http.StatusBadRequest, Method: path, Message: msg, Details: details}
	}
	var name []byte
	sc := newScanner(body, maxNesting)
	err := checkUTF8(body)
	if err == nil {
		if c := sc.peek(); c == '{' {
			err = sc.object(func(key []byte, escaped bool, value []byte) error {
				switch string(unescapeIf(key, escaped)) {
				case "method":
					return once((*json.RawMessage)(&name), value, "method")
				case "params":
					return once(&params, value, "params")
				}
				return nil
			})
		} else if err = sc.skip(); err == nil {
			err = sc.end()
			if err == nil {
				return "", nil, bad("the request must be a JSON object", detailsOf(capability.CodeInvalidInput, ""))
			}
		}
	}
	if err == nil {
		err = sc.end()
	}
	if err != nil {
		offset := 0
		if s, ok := errors.AsType[*syntaxError](err); ok {
			offset = s.offset
		}
		details, _ := marshal(map[string]any{"code": capability.CodeInvalidInput, "offset": offset})
		return "", nil, bad(err.Error(), details)
	}
	if len(name) == 0 || name[0] != '"' {
		return "", nil, bad(`the request needs a string "method"`, detailsOf(capability.CodeInvalidInput, ""))
	}
	return unquote(name), params, nil
}

// once keeps a member. A second one of the name is refused: what stands between
// caller and us may have looked at the other.
func once(kept *json.RawMessage, value []byte, name string) error {
	if *kept != nil {
		return fmt.Errorf("%q is given twice", name)
	}
	*kept = value
	return nil
}

func writeError(w http.ResponseWriter, e *Error) {
	status := e.Status
	if status == 0 {
		status = http.StatusOK
	}
	writeJSON(w, status, e.envelope())
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	head := w.Header()
	head["Content-Type"] = jsonType
	head.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a failed write means the caller is gone
}
