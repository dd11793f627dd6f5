// Package natsdial implements sessions with the message bus over NATS, for nodes and
// gateways. It contains no server, so that a program which only joins a gateway does not
// include one; package natsbus is the server side.
package natsdial

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// ConnectPath is the HTTP path at which gateways serve the bus to nodes.
const ConnectPath = "/nodes/connect"

// errHTTPRefused reports that the gateway's HTTP door refused the credential.
var errHTTPRefused = errors.New("the gateway refused the credential")

// Dialer returns a dialer to a gateway or to NATS servers, depending on the scheme: https://
// and http:// use the NATS protocol inside WebSocket at a gateway's ConnectPath, tls:// and
// nats:// connect to servers; http:// and nats:// are for this machine only. Several
// addresses, separated by commas, are tried in turn and must be all gateways or all servers
// of one cluster. config is for TLS and may be nil. A token is also sent in the HTTP request,
// so that the gateway can refuse it there; a key is proven inside the protocol.
func Dialer(addresses string, config *tls.Config) (messaging.Dialer, error) {
	all, err := Addresses(addresses)
	if err != nil {
		return nil, err
	}
	var urls []string
	var web *webDialer
	for _, u := range all {
		if u.Scheme == "https" || u.Scheme == "http" {
			if web == nil {
				web = &webDialer{config: config, secured: make(map[string]bool)}
			}
			// To the library it is ws:// either way: the dialer sees to TLS.
			host := withPort(u)
			if was, known := web.secured[host]; known && was != (u.Scheme == "https") {
				return nil, badAddress("it is there twice, with encryption and without")
			}
			web.secured[host] = u.Scheme == "https"
			u = &url.URL{Scheme: "ws", Host: host, Path: ConnectPath}
		}
		urls = append(urls, u.String())
	}
	u := strings.Join(urls, ",")
	return func(_ context.Context, o messaging.DialOptions) (messaging.Conn, error) {
		if err := o.Check(); err != nil {
			return nil, err
		}
		o = o.WithDefaults()
		c := newConn(o.Inbox, messaging.MaxSubscriptions)
		if err := c.open(u, nodeOptions(c, o, web, config)...); err != nil {
			return nil, capability.Wrap(capability.CodeInvalidInput, "bus.connect", "the session cannot be opened", err)
		}
		return c, nil
	}, nil
}

// Inside returns a dialer to a server in this process.
func Inside(server nats.InProcessConnProvider) messaging.Dialer {
	return func(_ context.Context, o messaging.DialOptions) (messaging.Conn, error) {
		if err := o.Check(); err != nil {
			return nil, err
		}
		c := newConn(o.Inbox, messaging.MaxSubscriptions)
		err := c.open("", append(nodeOptions(c, o.WithDefaults(), nil, nil), nats.InProcessServer(server))...)
		return c, err
	}
}

// Addresses parses and checks the addresses for Dialer, 1 to 16 of them.
func Addresses(addresses string) ([]*url.URL, error) {
	var out []*url.URL
	for address := range strings.SplitSeq(addresses, ",") {
		u, err := url.Parse(strings.TrimSpace(address))
		if err != nil || u.Host == "" || u.User != nil {
			return nil, badAddress("write https://host, without a user or password")
		}
		switch u.Scheme {
		case "https", "tls":
		case "http", "nats":
			if !loopback(u.Hostname()) {
				return nil, badAddress("without encryption only this machine is reached; use https or tls, or the near end of a tunnel")
			}
		default:
			return nil, badAddress("its scheme is not one of https, http, tls and nats")
		}
		if out = append(out, u); len(out) > maxAddresses {
			return nil, badAddress(fmt.Sprintf("there are more than %d", maxAddresses))
		}
		if ofGateway(u) != ofGateway(out[0]) {
			return nil, badAddress("of several all are gateways (https), or all are servers of NATS (tls)")
		}
	}
	return out, nil
}

func ofGateway(u *url.URL) bool { return u.Scheme == "https" || u.Scheme == "http" }

func badAddress(why string) error {
	return capability.Errorf(capability.CodeInvalidInput, "bus.connect", "this is not the address of a gateway: %s", why)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func withPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	port := "443"
	if u.Scheme == "http" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// nodeOptions returns the library's options for nodes. With its defaults, sessions give up,
// reconnect all at once, or buffer calls whose callers no longer wait.
func nodeOptions(c *Conn, o messaging.DialOptions, web *webDialer, config *tls.Config) []nats.Option {
	options := []nats.Option{
		nats.Name(o.Name), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(func(n int) time.Duration { c.tried(); return o.Pause(n, rand.Float64()) }),
		nats.ReconnectBufSize(-1), nats.PingInterval(o.PingInterval), nats.MaxPingsOutstanding(2), nats.Timeout(dialTimeout),
		nats.SyncQueueLen(messaging.DefaultPending), nats.PermissionErrOnSubscribe(true),
		nats.DontRandomize(), // the operator's order
	}
	if o.Key.Sign != nil {
		options = append(options, nats.Nkey(o.Key.Public, o.Key.Sign))
	} else {
		options = append(options, nats.TokenHandler(o.Token.Reveal))
	}
	if web != nil {
		header := make(http.Header)
		if !o.Token.Empty() {
			header.Set("Authorization", "Bearer "+o.Token.Reveal())
		}
		// The servers behind a gateway are not the node's to know.
		return append(options, nats.WebSocketConnectionHeaders(header), nats.SetCustomDialer(web), nats.SkipHostLookup(),
			nats.IgnoreDiscoveredServers())
	}
	if config != nil {
		options = append(options, nats.Secure(config))
	}
	return append(options, nats.SetCustomDialer(serverDialer{}))
}

// webDialer does TLS itself in order to read the status line of the answer, because the
// library does not distinguish a refusal from other failures.
type webDialer struct {
	secured map[string]bool // by host and port: is it https
	config  *tls.Config
	worked  atomic.Bool // the last connection did
}

// Dial connects.
func (d *webDialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	if d.worked.Swap(false) && len(d.secured) > 1 {
		<-time.After(minRetryDelay/10 + time.Duration(float64(minRetryDelay)*0.9*rand.Float64()))
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn = lastWordsConn{conn}
	if !d.secured[address] {
		return &statusConn{Conn: conn, worked: &d.worked}, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if d.config != nil {
		config = d.config.Clone()
	}
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			conn.Close()
			return nil, err
		}
	}
	config.NextProtos = []string{"http/1.1"}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return &statusConn{Conn: secured, worked: &d.worked}, nil
}

// statusConn returns errHTTPRefused from the first Read if the answer is 401 or 403.
type statusConn struct {
	net.Conn
	seen   bool
	worked *atomic.Bool
}

func (c *statusConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.seen && n > 0 {
		c.seen = true
		if bytes.HasPrefix(p[:n], []byte("HTTP/1.1 401")) || bytes.HasPrefix(p[:n], []byte("HTTP/1.1 403")) {
			return 0, errHTTPRefused
		}
		c.worked.Store(true)
	}
	return n, err
}

// serverDialer connects to a server without a gateway's door before it.
type serverDialer struct{}

// Dial connects.
func (serverDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).Dial(network, address)
	if err != nil {
		return nil, err
	}
	return lastWordsConn{conn}, nil
}

// lastWordsConn leaves the end of a connection to Read. A server that refuses a session
// writes the reason and closes; the library, which sends its second message meanwhile,
// would otherwise return the error of that write and never read the reason.
type lastWordsConn struct{ net.Conn }

func (c lastWordsConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return len(p), nil
	}
	return n, err
}
