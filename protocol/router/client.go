package router

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

// ClientConfig describes one endpoint. Zero members mean the defaults.
type ClientConfig struct {
	// ID identifies the endpoint in errors: letters, digits, '.', '_', ':' and '-'.
	ID string
	// BaseURL is an absolute http or https URL. Its path is kept, query and fragment are
	// dropped, and credentials are an error.
	BaseURL string
	Token   secret.Value // sent as bearer token unless empty
	// Transport sends the requests; if nil, the client uses a new DefaultTransport. It must not
	// change the request's headers.
	Transport http.RoundTripper
	// MaxResponse bounds the bytes read of one response.
	MaxResponse int64
	// Timeout bounds a call whose context has no deadline: request, headers and body together.
	// For pty.command.run it is raised to the command's timeoutMs plus a grace.
	Timeout time.Duration
	Limits  Limits // of manifests
}

// Client is the router's side of the wire for one endpoint. It is safe for
// concurrent use.
type Client struct {
	id        string
	base      string
	invokeURL *url.URL
	statusURL *url.URL
	header    http.Header // shared by all requests, never changed
	post      http.Header
	transport http.RoundTripper
	max       int64
	timeout   time.Duration
	limits    Limits
}

var endpointID = regexp.MustCompile(`^[A-Za-z0-9._:-]+$`)

// NewClient checks cfg and returns a client. It does not connect. Errors are *Error with method
// capability-router.configure.
func NewClient(cfg ClientConfig) (*Client, error) {
	base, err := NormalizeBaseURL(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	if cfg.ID != "" && !endpointID.MatchString(cfg.ID) {
		return nil, configError("the endpoint id " + strconv.Quote(cfg.ID) + " may hold letters, digits, '.', '_', ':' and '-' only")
	}
	c := &Client{
		id: cfg.ID, base: base, transport: cfg.Transport, max: cfg.MaxResponse, timeout: cfg.Timeout, limits: cfg.Limits,
		header: http.Header{"Accept": jsonType, "User-Agent": {"junctor"}},
	}
	// The base was parsed already, and the paths are constants.
	c.invokeURL, _ = url.Parse(base + PathInvoke)
	c.statusURL, _ = url.Parse(base + PathAvailability)
	if c.transport == nil {
		c.transport = DefaultTransport()
	}
	if c.max <= 0 {
		c.max = DefaultMaxResponse
	}
	if c.timeout <= 0 {
		c.timeout = DefaultTimeout
	}
	if token := strings.TrimSpace(cfg.Token.Reveal()); token != "" {
		if !singleLine(token) {
			return nil, configError("the token holds CR, LF or NUL")
		}
		c.header.Set("Authorization", "Bearer "+token)
	}
	c.post = c.header.Clone()
	c.post["Content-Type"] = jsonType
	return c, nil
}

// DefaultTransport returns a new transport for endpoints: HTTP/1.1 with keep-alive and many idle
// connections, without compression because results are passed on unchanged, and with five
// seconds to connect.
func DefaultTransport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		Protocols:           protocols,
		MaxIdleConns:        1024,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     idleTimeout,
		TLSHandshakeTimeout: 5 * time.Second,
		DisableCompression:  true,
		// MaxResponse bounds the body; the standard library would permit 10 MiB of headers.
		MaxResponseHeaderBytes: 256 << 10,
	}
}

// NormalizeBaseURL returns the normal form of an endpoint's URL: without query, fragment and
// trailing slashes, but with its path. A relative URL, another scheme and credentials are errors.
func NormalizeBaseURL(s string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(s))
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		// The text does not contain the URL, which may hold credentials.
		return "", configError("the URL of an endpoint must be an absolute http or https URL, such as http://127.0.0.1:31337")
	case u.User != nil:
		return "", configError("the URL of an endpoint must not hold credentials; give the token on its own")
	}
	u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = "", false, "", ""
	u.Host = strings.ToLower(u.Host)
	return strings.TrimRight(u.String(), "/"), nil
}

func configError(msg string) *Error {
	return &Error{
		Code: CodeDecodeFailed, Method: "capability-router.configure", Message: msg,
		Details: detailsOf(capability.CodeInvalidInput, ""),
	}
}

// ID returns the endpoint's id.
func (c *Client) ID() string { return c.id }

// BaseURL returns the normalised base URL.
func (c *Client) BaseURL() string { return c.base }

// CloseIdle closes idle connections if the transport supports it.
func (c *Client) CloseIdle() {
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Availability requests the endpoint's availability object. Errors are *Error.
func (c *Client) Availability(ctx context.Context) (Availability, error) {
	ctx, cancel := c.deadline(ctx, "", nil)
	defer cancel()
	status, body, err := c.exchange(ctx, http.MethodGet, c.statusURL, nil)
	if err != nil {
		return Availability{}, err
	}
	result, err := readEnvelope(status, body, c.statusURL.Path)
	if err != nil {
		return Availability{}, err
	}
	return DecodeAvailability(result)
}

// Invoke makes one call. It checks params before they are sent and the result before it is
// returned; both stay unchanged except that unknown members are dropped. The caller owns the
// result. Errors are *Error.
func (c *Client) Invoke(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	result, err := c.call(ctx, method, params)
	if err != nil {
		return nil, err
	}
	return DecodeResult(method, result)
}

// Modules lists the endpoint's manifests.
func (c *Client) Modules(ctx context.Context) ([]Module, error) {
	result, err := c.call(ctx, methodModulesList, nil)
	if err != nil {
		return nil, err
	}
	modules, err := DecodeModules(result, c.limits)
	if err != nil {
		return nil, err
	}
	for i := range modules {
		modules[i].CapabilityEndpointID = c.id
	}
	return modules, nil
}

// Asset fetches a view's file through plugin.asset.get. The integrity value is the endpoint's
// own; verify the bytes with [MatchesIntegrity] before using them.
func (c *Client) Asset(ctx context.Context, module, path string) (Asset, error) {
	params, err := marshal(map[string]string{"moduleId": module, "path": path})
	if err != nil {
		return Asset{}, asWire(err, "plugin.asset.get")
	}
	result, err := c.call(ctx, "plugin.asset.get", params)
	if err != nil {
		return Asset{}, err
	}
	return DecodeAsset(result)
}

// call sends a request with checked params and returns the result before decoding.
func (c *Client) call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	params, err := DecodeParams(method, params)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.deadline(ctx, method, params)
	defer cancel()
	// A new buffer for each request, because a transport may read it after the response has
	// arrived, and the caller owns params.
	body := make([]byte, 0, len(params)+len(method)+24)
	body = append(body, `{"method":"`...)
	body = append(body, method...) // a name of the table needs no escaping
	body = append(body, `","params":`...)
	body = append(body, params...)
	body = append(body, '}')
	status, answer, err := c.exchange(ctx, http.MethodPost, c.invokeURL, body)
	if err != nil {
		return nil, err
	}
	result, err := readEnvelope(status, answer, c.invokeURL.Path)
	if err != nil {
		return nil, err
	}
	return result, nil
}

// deadline returns ctx with the client's timeout, raised for a long command, unless it has a deadline
// already.
func (c *Client) deadline(ctx context.Context, method string, params json.RawMessage) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	timeout := c.timeout
	if method == "pty.command.run" {
		run := defaultPTYTimeout
		if ms, err := strconv.ParseFloat(string(paramRaw(params, "timeoutMs")), 64); err == nil && ms >= 0 {
			run = time.Duration(min(ms, 24*3600*1000) * float64(time.Millisecond))
		}
		timeout = max(timeout, run+ptyGrace)
	}
	return context.WithTimeout(ctx, timeout)
}

// exchange sends one HTTP request and returns the status and body of the response. A redirect, a
// switch of protocol and a body beyond the limit are errors.
func (c *Client) exchange(ctx context.Context, verb string, u *url.URL, body []byte) (int, []byte, error) {
	req := (&http.Request{
		Method: verb, URL: u, Host: u.Host, Header: c.header, Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1,
	}).WithContext(ctx)
	if body != nil {
		req.Header = c.post
		req.ContentLength = int64(len(body))
		req.Body = io.NopCloser(bytes.NewReader(body))
		// Permits the transport to repeat a request if an idle connection closed before a
		// byte was written.
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	// A transport does not follow redirects.
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return 0, nil, transportError(ctx, err, u.Path)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The body would be the raw connection, which does not end with the context.
		return 0, nil, &Error{
			Code: CodeRequestFailed, Method: u.Path, Status: resp.StatusCode,
			Message: "the endpoint answered with another protocol", Details: detailsOf(capability.CodeFailed, reasonDecode),
		}
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return 0, nil, &Error{
			Code: CodeRequestFailed, Method: u.Path, Status: resp.StatusCode,
			Message: "the endpoint answered with a redirect (" + strconv.Itoa(resp.StatusCode) +
				"); redirects are not followed, configure the final URL",
			Details: detailsOf(capability.CodeFailed, "redirect_refused"),
		}
	}
	answer, err := c.readAnswer(resp)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.Method = u.Path
			return 0, nil, e
		}
		return 0, nil, transportError(ctx, err, u.Path)
	}
	return resp.StatusCode, bytes.TrimPrefix(answer, []byte("\xef\xbb\xbf")), nil // JSON has no mark of the byte order
}

// readAnswer reads the body of a response, at most c.max bytes.
func (c *Client) readAnswer(resp *http.Response) ([]byte, error) {
	tooLarge := func() error {
		return &Error{
			Code:    CodeDecodeFailed,
			Message: "the answer exceeds the limit of " + strconv.FormatInt(c.max, 10) + " bytes",
			Details: detailsOf(capability.CodeTooLarge, ""),
		}
	}
	if n := resp.ContentLength; n > c.max {
		return nil, tooLarge()
	} else if n >= 0 {
		// Only a part of the declared length is allocated at first, because the endpoint may
		// never send the rest.
		var buf bytes.Buffer
		buf.Grow(int(min(n, 1<<20)) + bytes.MinRead)
		if _, err := buf.ReadFrom(resp.Body); err != nil {
			return nil, err
		}
		return buf.Bytes(), nil
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, c.max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > c.max {
		return nil, tooLarge()
	}
	return data, nil
}

// transportError returns the error for a request without response: timeout, cancelled, or
// unavailable if the connection failed, which proves that the work was not started; else failed.
func transportError(ctx context.Context, err error, path string) *Error {
	out := &Error{Code: CodeRequestFailed, Method: path}
	var dial *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		out.Message, out.Details = "the request was cancelled", detailsOf(capability.CodeCancelled, "")
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		out.Message, out.Details = "the endpoint did not answer in time", detailsOf(capability.CodeTimeout, "")
	case errors.As(err, &dial) && dial.Op == "dial", errors.As(err, &cert):
		out.Message, out.Details = "the endpoint could not be reached", detailsOf(capability.CodeUnavailable, reasonConnect)
	default:
		out.Message, out.Details = "the connection to the endpoint broke before the answer was complete",
			detailsOf(capability.CodeFailed, reasonConnect)
	}
	return out
}
