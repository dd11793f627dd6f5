package router

import (
	"bytes"
	"cmp"
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

// Backend makes the calls of one authenticated caller.
//
// Invoke receives parameters that DecodeParams accepted; they are valid only until it
// returns. It returns one JSON value, or nil for no result, which the handler reads until the
// response is written. Errors are *Error or *capability.Error; any other error counts as
// internal. Both methods must be safe for concurrent use and end with ctx.
type Backend interface {
	Availability(ctx context.Context) (Availability, error)
	Invoke(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)
}

// HandlerOptions adjusts [Handler]; the zero value is the standard behavior.
type HandlerOptions struct {
	// MaxBody bounds a request body in bytes; 0 is DefaultMaxBody.
	MaxBody int64
	// BodyTimeout bounds the time for receiving a request body, and for sending a large
	// response, plus one second for every 64 KiB. 0 means DefaultBodyTimeout. It requires
	// net/http's server, whose own timeouts cannot distinguish a slow caller from a long
	// call.
	BodyTimeout time.Duration
	// OpenAssets permits browsers to import assets from any origin. It is only for development
	// endpoints without a token.
	OpenAssets bool
	// SkipResultCheck omits the check of the backend's results. Set it if they were checked
	// before, as in a router that is itself an endpoint.
	SkipResultCheck bool
}

// Handler serves the endpoint side of the protocol. resolve authenticates each request and returns
// the backend of its principal. It runs before path and body are examined, so that an
// unauthenticated client learns nothing from the response. An error of resolve is sent with its
// Status (*Error) or the status of its code (*capability.Error); a 401 has WWW-Authenticate.
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

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		// Even if the body is not read, because the server itself waits for the rest of a
		// short one.
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

// pace is the minimum transfer rate of a caller, in bytes per second.
const pace = 64 << 10

// until sets a deadline for the transfer of size bytes.
func (h *handler) until(size int64, set func(time.Time) error) {
	_ = set(time.Now().Add(h.opts.BodyTimeout + time.Duration(size/h.pace)*time.Second)) // not every ResponseWriter has deadlines
}

// untilTaken sets a deadline for sending a response. A small one fits into the connection's buffers
// and gets no deadline, because a timer would cost a call 4 µs.
func (h *handler) untilTaken(w http.ResponseWriter, size int) {
	if size > 32<<10 {
		h.until(int64(size), http.NewResponseController(w).SetWriteDeadline)
	}
}

// RequireToken returns a resolve function for one token and one backend. The scheme is compared
// without case, the token in constant time. With an empty token every program of the machine is
// accepted, which is only safe on a loopback listener. Calls of web pages are refused then: a page
// of any site can send them to loopback.
func RequireToken(token secret.Value, backend Backend) func(*http.Request) (Backend, error) {
	return func(r *http.Request) (Backend, error) {
		if token.Empty() {
			if fromPage(r) && !strings.HasPrefix(r.URL.Path, PathAssets) {
				return nil, capability.Errorf(capability.CodeDenied, "", "this endpoint has no token, and takes no calls of web pages").
					With("page_refused", "give the endpoint a token")
			}
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

// fromPage reports whether a browser sent a request: no page can leave out or change these headers.
func fromPage(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
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
	e.Method = cmp.Or(e.Method, r.URL.Path)
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

// buffers is a pool of buffers for request bodies.
type buffers struct{ sync.Pool }

func (p *buffers) get() *bytes.Buffer {
	if b, ok := p.Get().(*bytes.Buffer); ok {
		b.Reset()
		return b
	}
	return new(bytes.Buffer)
}

func (p *buffers) put(b *bytes.Buffer) {
	// A very large buffer must not stay in memory.
	if b.Cap() <= 1<<20 {
		p.Put(b)
	}
}

// invoke serves one call: it reads and checks the request, calls the backend, checks the result unless
// SkipResultCheck is set, and writes the response.
func (h *handler) invoke(w http.ResponseWriter, r *http.Request, backend Backend) {
	buf := h.bodies.get()
	defer h.bodies.put(buf)
	if e := h.readBody(buf, r); e != nil {
		// The rest of the body is not read, so the connection must not be reused.
		w.Header().Set("Connection", "close")
		writeError(w, e)
		return
	}
	if r.ContentLength != 0 {
		// The deadline applies to the body only; from now on the server detects a disconnect.
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
	// A failed write means that the caller has disconnected.
	_, _ = io.WriteString(w, okPrefix)
	_, _ = w.Write(result)
	_, _ = io.WriteString(w, "}")
}

const okPrefix = `{"ok":true,"result":`

var jsonType = []string{"application/json"}

// inMethod returns err as a failure of the capability in the response to method, without the status it
// may have from elsewhere.
func inMethod(err error, method string) *Error {
	e := *asWire(err, method)
	e.Method = cmp.Or(e.Method, method)
	e.Status = 0
	return &e
}

// readBody reads a request body of at most MaxBody bytes into buf.
func (h *handler) readBody(buf *bytes.Buffer, r *http.Request) *Error {
	limit := h.opts.MaxBody
	if r.ContentLength > limit {
		return bodyTooLarge(limit, r.URL.Path)
	}
	if r.ContentLength > 0 {
		// Only a part of the declared length is allocated at first, because the caller may
		// never send the rest.
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

// parseInvoke parses the body of a call. params aliases the body.
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

// once stores a member. A second one of the name is an error, because a proxy may have checked the
// other one.
func once(kept *json.RawMessage, value []byte, name string) error {
	if *kept != nil {
		return fmt.Errorf("%q is given twice", name)
	}
	*kept = value
	return nil
}

func writeError(w http.ResponseWriter, e *Error) {
	status := e.Status
	status = cmp.Or(status, http.StatusOK)
	writeJSON(w, status, e.envelope())
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	head := w.Header()
	head["Content-Type"] = jsonType
	head.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a failed write means the caller is gone
}
