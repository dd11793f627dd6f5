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

// Defaults of [ClientConfig].
const (
	DefaultTimeout     = 60 * time.Second
	DefaultMaxResponse = 32 << 20

	// ptyDefault is how long an endpoint may run a command that names no
	// timeout; ptyMargin is for the way there and back.
	defaultPTYTimeout = 300 * time.Second
	ptyGrace          = 5 * time.Second
)

// ClientConfig describes one endpoint. Zero members mean the defaults.
type ClientConfig struct {
	// ID names the endpoint in errors: letters, digits, '.', '_', ':' and '-'.
	ID string
	// BaseURL is an absolute http or https URL; its path is kept, query and
	// fragment are dropped, credentials are refused.
	BaseURL string
	Token   secret.Value // sent as bearer token when not empty
	// Transport carries the requests; nil is a transport of its own made by
	// DefaultTransport. It must not change the request's headers.
	Transport http.RoundTripper
	// MaxResponse bounds the bytes read of one answer.
	MaxResponse int64
	// Timeout bounds a call whose context has no deadline: request, headers and
	// body together. pty.command.run gets its own timeoutMs on top if that is
	// longer.
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

// NewClient checks cfg and returns a client; it does not connect. Its errors
// are *Error with method capability-router.configure.
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
	// The base has been parsed already, and our paths are constants.
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

// DefaultTransport returns a transport for endpoints: HTTP/1.1 with keep-alive
// and many idle connections, no compression (results are passed on as bytes),
// five seconds to connect.
func DefaultTransport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		Protocols:           protocols,
		MaxIdleConns:        1024,
		MaxIdleConnsPerHost: 256,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 5 * time.Second,
		DisableCompression:  true,
		// The body has its limit; the standard library's for the rest is 10 MiB.
		MaxResponseHeaderBytes: 256 << 10,
	}
}

// NormalizeBaseURL brings an endpoint's URL into its one form: query and
// fragment dropped, trailing slashes stripped, path kept.
func NormalizeBaseURL(s string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(s))
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		// The URL itself stays out of the text: it may hold credentials.
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

// CloseIdle closes idle connections, where the transport can.
func (c *Client) CloseIdle() {
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Availability asks what the endpoint serves.
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

// Invoke makes one call: params are checked before they are sent, the result
// before it is returned; both pass as the bytes they are unless unknown members
// have to be dropped. The result is the caller's to keep. Errors are *Error.
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

// Asset fetches a view's file through plugin.asset.get. Its integrity is as the
// endpoint says; compare with [MatchesIntegrity] before trusting the bytes.
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

// call sends a request and returns the undecoded result.
func (c *Client) call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	params, err := DecodeParams(method, params)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.deadline(ctx, method, params)
	defer cancel()
	// A fresh buffer for each request: a transport may go on reading it after
	// the answer has come, and params belong to the caller.
	body := make([]byte, 0, len(params)+len(method)+24)
	body = append(body, `{"method":"`...)
	body = append(body, method...) // known to the table, so nothing to escape
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

func (c *Client) exchange(ctx context.Context, verb string, u *url.URL, body []byte) (int, []byte, error) {
	req := (&http.Request{
		Method: verb, URL: u, Host: u.Host, Header: c.header, Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1,
	}).WithContext(ctx)
	if body != nil {
		req.Header = c.post
		req.ContentLength = int64(len(body))
		req.Body = io.NopCloser(bytes.NewReader(body))
		// Lets the transport repeat a request that a closing idle connection
		// swallowed before a byte was written.
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	// The transport itself follows no redirect, and neither do we.
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return 0, nil, transportError(ctx, err, u.Path)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The body would be the bare connection, which no context ends.
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
	return resp.StatusCode, answer, nil
}

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
		// The declared length is believed up to a point: an endpoint must not
		// make us allocate what it never sends.
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

// transportError states what became of a request that got no answer. Only a
// failed connection proves that the work was not started.
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
