// Package natsdial is a session with the message bus over NATS: what nodes are, and
// gateways too. It has no server, so that a program which only joins a gateway does
// not carry one; package natsbus has the other side.
package natsdial

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/messaging"
)

// ConnectPath is where gateways serve the bus to nodes.
const ConnectPath = "/nodes/connect"

// dialTime bounds one try to connect, TLS included.
const dialTime = 10 * time.Second

// errHTTPRefused says that the gateway's HTTP door refused the credential.
var errHTTPRefused = errors.New("the gateway refused the credential")

// Dialer reaches a gateway, or servers, from a node. The scheme of the address
// decides (spec, section 27.1): https:// and http:// are the NATS protocol inside
// WebSocket at ConnectPath of a gateway, tls:// and nats:// are servers; http://
// and nats:// are for this machine only. config is for TLS and may be nil. The token is sent in the HTTP request, too, so that
// the gateway's door can refuse; a key proves itself inside the protocol.
func Dialer(address string, config *tls.Config) (messaging.Dialer, error) {
	u, err := url.Parse(address)
	bad := func(why string) error {
		return capability.Errorf(capability.CodeInvalidInput, "bus.connect", "this is not the address of a gateway: %s", why)
	}
	if err != nil || u.Host == "" || u.User != nil {
		return nil, bad("write https://host, without a user or password")
	}
	if (u.Scheme == "http" || u.Scheme == "nats") && !loopback(u.Hostname()) {
		return nil, bad("without encryption only this machine is reached; use https or tls, or the near end of a tunnel")
	}
	var web *webDialer
	switch u.Scheme {
	case "https", "http":
		web = &webDialer{}
		if u.Scheme == "https" {
			web.name, web.config = u.Hostname(), config
		}
		// To the library it is ws:// either way: the dialer sees to TLS.
		u = &url.URL{Scheme: "ws", Host: withPort(u), Path: ConnectPath}
	case "tls", "nats":
	default:
		return nil, bad("its scheme is none of https, http, tls and nats")
	}
	return func(_ context.Context, o messaging.DialOptions) (messaging.Conn, error) {
		if err := o.Check(); err != nil {
			return nil, err
		}
		o = o.WithDefaults()
		c := newConn(o.Inbox, messaging.MaxSubscriptions)
		if err := c.open(u.String(), nodeOptions(c, o, web, config)...); err != nil {
			return nil, capability.Wrap(capability.CodeInvalidInput, "bus.connect", "the session cannot be opened", err)
		}
		return c, nil
	}, nil
}

// Inside reaches a server whose connections are made in this process.
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

// nodeOptions are what long-lived devices need: the library's defaults give up,
// come back all at once, or keep calls that nobody waits for any more.
func nodeOptions(c *Conn, o messaging.DialOptions, web *webDialer, config *tls.Config) []nats.Option {
	options := []nats.Option{
		nats.Name(o.Name), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(func(n int) time.Duration { c.tried(); return o.Pause(n, rand.Float64()) }),
		nats.ReconnectBufSize(-1), nats.PingInterval(o.PingInterval), nats.MaxPingsOutstanding(2), nats.Timeout(dialTime),
		nats.SyncQueueLen(messaging.DefaultPending), nats.PermissionErrOnSubscribe(true),
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
		return append(options, nats.WebSocketConnectionHeaders(header), nats.SetCustomDialer(web), nats.IgnoreDiscoveredServers())
	}
	if config != nil {
		options = append(options, nats.Secure(config))
	}
	return options
}

// webDialer does TLS itself, in order to see the status line of the answer: the
// library tells a refusal like any other failure.
type webDialer struct {
	name   string // of the server, for TLS; empty: none
	config *tls.Config
}

// Dial connects.
func (d *webDialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if d.name == "" {
		return &statusConn{Conn: conn}, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if d.config != nil {
		config = d.config.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = d.name
	}
	config.NextProtos = []string{"http/1.1"}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return &statusConn{Conn: secured}, nil
}

// statusConn makes a refusal an error of the first read.
type statusConn struct {
	net.Conn
	seen bool
}

func (c *statusConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.seen && n > 0 {
		c.seen = true
		if bytes.HasPrefix(p[:n], []byte("HTTP/1.1 401")) || bytes.HasPrefix(p[:n], []byte("HTTP/1.1 403")) {
			return 0, errHTTPRefused
		}
	}
	return n, err
}
