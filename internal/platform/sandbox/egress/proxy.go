package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Config configures a proxy, in addition to its policy.
type Config struct {
	Policy   Policy
	Resolver Resolver // nil means the system's
	Dialer   Dialer   // nil means the system's
	// OnDecision is called with every decision, from the connections' goroutines, and must not
	// block for long. It may be nil.
	OnDecision func(Decision)
}

// proxy serves one run.
type proxy struct {
	cfg     Config
	filter  *filter
	ranges  []netip.Prefix
	limiter *rate.Limiter // nil: no bound
	places  chan struct{}
	ctx     context.Context
	tunnels sync.WaitGroup
	forward *http.Transport
}

// Serve serves l until ctx ends, and closes l and every connection before it returns. It
// returns an error only for an invalid policy; a broken listener just ends it.
func Serve(ctx context.Context, l net.Listener, cfg Config) error {
	f, err := compile(cfg.Policy)
	if err != nil {
		l.Close()
		return err
	}
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	if cfg.Dialer == nil {
		cfg.Dialer = &net.Dialer{Timeout: dialTimeout}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n := cfg.Policy.Connections
	if n <= 0 {
		n = defaultConnections
	}
	p := &proxy{cfg: cfg, filter: f, ranges: special(), ctx: ctx, places: make(chan struct{}, n)}
	if per := cfg.Policy.BytesPerSecond; per >= 0 {
		if per == 0 {
			per = defaultRate
		}
		p.limiter = rate.NewLimiter(rate.Limit(per), max(per/4, 1))
	}
	p.forward = &http.Transport{
		DialContext: p.dialJudged, Proxy: nil, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		ResponseHeaderTimeout: idleTimeout, IdleConnTimeout: 10 * time.Second, MaxIdleConns: 8,
	}
	defer p.forward.CloseIdleConnections()
	server := &http.Server{
		Handler: p, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	_ = server.Serve(&bounded{Listener: l, ctx: ctx, places: make(chan struct{}, 2*n)})
	cancel()
	server.Close()
	p.tunnels.Wait()
	return nil
}

// bounded is a listener that limits the number of open connections, including idle ones,
// because each uses a descriptor of the server. Further ones wait in the kernel's queue.
type bounded struct {
	net.Listener
	ctx    context.Context
	places chan struct{}
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.places <- struct{}{}:
	case <-b.ctx.Done():
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.places
		return nil, err
	}
	return &placed{Conn: c, leave: sync.OnceFunc(func() { <-b.places })}, nil
}

// placed is an accepted connection that occupies a place of bounded until it is closed.
type placed struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *placed) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// CloseWrite closes the write side, for tunnels.
func (c *placed) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// ServeHTTP serves one request or tunnel; it answers 429 at the limit of Policy.Connections.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	default:
		http.Error(w, "too many connections at once", http.StatusTooManyRequests)
		return
	}
	if r.Method == http.MethodConnect {
		p.connect(w, r)
		return
	}
	p.pass(w, r)
}

// refusal is the error of a target that the policy denies.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

// judge resolves a target, whose port defaults to usual, and returns the addresses to dial.
// If the policy denies the host or any address of it, the error is a *refusal. d is filled
// as far as judge came; it sets neither Allowed nor Reason.
func (p *proxy) judge(ctx context.Context, target string, usual int) (addrs []netip.Addr, d Decision, err error) {
	d = Decision{Host: cut(target), Port: usual, At: time.Now()}
	host, port := target, ""
	if strings.Contains(target, ":") && !strings.HasSuffix(target, "]") {
		if host, port, err = net.SplitHostPort(target); err != nil {
			return nil, d, &refusal{"the target is not a host and a port"}
		}
	}
	if port != "" {
		if d.Port, err = strconv.Atoi(port); err != nil || d.Port < 1 || d.Port > 65535 {
			d.Port = 0
			return nil, d, &refusal{"the target's port is not a number from 1 to 65535"}
		}
	}
	name, err := normalise(host)
	if err != nil {
		return nil, d, &refusal{err.Error()}
	}
	d.Host = name
	if why := p.filter.host(name, d.Port); why != "" {
		return nil, d, &refusal{why}
	}
	if literal, err := netip.ParseAddr(name); err == nil {
		addrs = []netip.Addr{literal}
	} else {
		bounded, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		if addrs, err = p.cfg.Resolver.LookupNetIP(bounded, "ip", name); err != nil {
			return nil, d, fmt.Errorf("resolve: %w", err)
		}
	}
	if len(addrs) == 0 {
		return nil, d, errors.New("the name has no address")
	}
	for _, a := range addrs {
		if why := p.filter.address(a, p.ranges); why != "" {
			d.Address = a.Unmap().String()
			return nil, d, &refusal{why}
		}
	}
	return addrs, d, nil
}

// open calls dial and limits the connection to the run's rate.
func (p *proxy) open(ctx context.Context, target string, usual int) (net.Conn, error) {
	conn, err := p.dial(ctx, target, usual)
	if err != nil {
		return nil, err
	}
	return &limited{Conn: conn, p: p}, nil
}

// dial connects to the first of at most addressesTried permitted addresses that answers. It
// reports a denial or a connection to OnDecision, but not a failed lookup or dial.
func (p *proxy) dial(ctx context.Context, target string, usual int) (net.Conn, error) {
	addrs, d, err := p.judge(ctx, target, usual)
	if r, denied := errors.AsType[*refusal](err); denied {
		d.Reason = r.reason
		p.report(d)
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	var last error
	for _, a := range addrs[:min(len(addrs), addressesTried)] {
		bounded, cancel := context.WithTimeout(ctx, dialTimeout)
		conn, err := p.cfg.Dialer.DialContext(bounded, "tcp", netip.AddrPortFrom(a.Unmap(), uint16(d.Port)).String())
		cancel()
		if err != nil {
			last = err
			continue
		}
		d.Allowed, d.Address = true, a.Unmap().String()
		p.report(d)
		return conn, nil
	}
	return nil, last
}

func (p *proxy) report(d Decision) {
	if p.cfg.OnDecision != nil {
		p.cfg.OnDecision(d)
	}
}

func cut(s string) string { return strings.ToValidUTF8(s[:min(len(s), 256)], "\uFFFD") }

// fail writes the error response. The client receives the reason of a denial, but not the
// details of a failed lookup or dial, which would reveal the network outside.
func fail(w http.ResponseWriter, err error) {
	if r, denied := errors.AsType[*refusal](err); denied {
		http.Error(w, "junctor: denied: "+r.reason, http.StatusForbidden)
		return
	}
	http.Error(w, "junctor: the host cannot be reached", http.StatusBadGateway)
}

func (p *proxy) connect(w http.ResponseWriter, r *http.Request) {
	upstream, err := p.open(r.Context(), r.Host, 443)
	if err != nil {
		fail(w, err)
		return
	}
	defer upstream.Close()
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "tunnels need HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	}
	p.tunnels.Add(1) // the server does not wait for a hijacked connection
	defer p.tunnels.Done()
	client, buffered, err := hijacker.Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	stop := context.AfterFunc(p.ctx, func() { client.Close(); upstream.Close() })
	defer stop()
	_ = client.SetDeadline(time.Time{})
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	both := make(chan struct{}, 2)
	copyOne := func(to net.Conn, from io.Reader) {
		_, _ = io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		} else {
			to.Close()
		}
		both <- struct{}{}
	}
	go copyOne(upstream, buffered)
	go copyOne(client, upstream)
	<-both
	// The other direction may still have an answer under way.
	timer := time.NewTimer(idleTimeout)
	defer timer.Stop()
	select {
	case <-both:
		return
	case <-timer.C:
	case <-p.ctx.Done():
	}
	client.Close()
	upstream.Close()
	<-both
}

// hopByHop are headers between us and one neighbour.
func hopByHop() []string {
	return []string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade",
	}
}

// pass forwards one plain request.
func (p *proxy) pass(w http.ResponseWriter, r *http.Request) {
	if r.URL.Scheme != "http" || r.URL.Host == "" {
		p.report(Decision{Host: cut(cmp.Or(r.URL.Host, r.Host)), Reason: "the request is not one for a proxy", At: time.Now()})
		http.Error(w, "junctor: this is a proxy: ask for an absolute http URL, or CONNECT", http.StatusBadRequest)
		return
	}
	if r.URL.User != nil {
		p.report(Decision{Host: cut(r.URL.Host), Port: 80, Reason: "the URL has a user in it", At: time.Now()})
		http.Error(w, "junctor: denied: a URL with a user in it", http.StatusForbidden)
		return
	}
	out := r.Clone(r.Context())
	out.RequestURI = ""
	out.Host = r.URL.Host // only the checked host is requested, so domain fronting is impossible
	for name := range strings.SplitSeq(strings.Join(r.Header.Values("Connection"), ","), ",") {
		out.Header.Del(strings.TrimSpace(name))
	}
	for _, name := range hopByHop() {
		out.Header.Del(name)
	}
	answer, err := p.forward.RoundTrip(out)
	if err != nil {
		fail(w, err)
		return
	}
	defer answer.Body.Close()
	for _, name := range hopByHop() {
		answer.Header.Del(name)
	}
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.StatusCode)
	flusher := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := answer.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			_ = flusher.Flush()
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) dialJudged(ctx context.Context, _, target string) (net.Conn, error) {
	return p.open(ctx, target, 80)
}
