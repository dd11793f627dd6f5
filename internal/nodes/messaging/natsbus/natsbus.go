// Package natsbus implements the message bus over NATS. A gateway either embeds a server in its
// process, which listens on no port (Embed), or shares a cluster of servers with other gateways
// (Open). In both cases the servers ask the gateways whether a session is admitted and what it may
// do (auth callout), and report opened and closed sessions in their system account.
//
// Nodes use the NATS protocol inside WebSocket messages on the gateway's own HTTP port
// (Broker.Handler), or plain NATS if the servers have a listener.
//
// The servers hold no data that cannot be written again: an embedded server whose directory
// is damaged starts with an empty one.
package natsbus

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/secret"
)

// Config configures both kinds of bus.
type Config struct {
	// Authorize decides whether a session is admitted; if nil, all are refused.
	Authorize messaging.Authorizer
	Logger    *slog.Logger // nil: nothing is logged
}

// Broker is the gateway's side of the bus.
type Broker struct {
	cfg      Config
	keys     gatewayKeys
	own      *natsdial.Conn
	system   *nats.Conn
	js       jetstream.JetStream
	sessions messaging.Feed[messaging.SessionEvent]
	replicas int
	embedded bool
	direct   *direct // beside an embedded server, else nil
	dir      string  // of the embedded server

	link func(ctx context.Context) (net.Conn, error) // a new connection to a server
	stop func()                                      // ends the embedded server
	ctx  context.Context                             // ends with the broker
	end  context.CancelFunc

	buffers  sync.Pool     // of *[chunk]byte
	opening  chan struct{} // held by the sessions that are being let in
	remaking sync.Mutex

	mu      sync.Mutex
	closing bool
	closed  bool
	callout *nats.Subscription
	made    chan struct{}  // see bucketsMade
	wg      sync.WaitGroup // of authorisations and proxied connections
}

var _ messaging.Broker = (*Broker)(nil)

// Cluster configures the connection to servers that several gateways share.
type Cluster struct {
	// URL is one or more addresses, nats:// or tls://, separated by commas.
	URL string
	// TLS is for tls:// servers; nil: the system's roots.
	TLS *tls.Config
	// Secret is the same for all gateways; ServerConfig derives the servers' configuration from it.
	Secret secret.Value
	// Replicas is the number of servers that hold each bucket: 1, 3 or 5.
	Replicas int
}

// Open connects to a cluster. It fails with unavailable if no server can be reached, and
// with unauthenticated if the servers do not accept the secret's keys.
func Open(ctx context.Context, cluster Cluster, cfg Config) (*Broker, error) {
	keys, err := sharedKeys(cluster.Secret)
	if err != nil {
		return nil, err
	}
	b := newBroker(cfg, keys)
	b.replicas = max(cluster.Replicas, 1)
	b.link = func(ctx context.Context) (net.Conn, error) {
		return dialServer(ctx, b.own.NATS().ConnectedUrl(), cluster.TLS)
	}
	var more []nats.Option
	if cluster.TLS != nil {
		more = append(more, nats.Secure(cluster.TLS))
	}
	if err := b.connect(ctx, cluster.URL, more...); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func newBroker(cfg Config, keys gatewayKeys) *Broker {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	b := &Broker{
		cfg: cfg, keys: keys, replicas: 1, made: make(chan struct{}), opening: make(chan struct{}, opening),
		sessions: messaging.Feed[messaging.SessionEvent]{Lost: messaging.SessionEvent{Kind: messaging.SessionsLost}},
	}
	b.ctx, b.end = context.WithCancel(context.Background())
	return b
}

// connect opens the gateway's sessions and starts to answer the servers' callouts.
func (b *Broker) connect(ctx context.Context, url string, more ...nats.Option) error {
	options := func(name string, sign func([]byte) ([]byte, error), public string) []nats.Option {
		return append([]nats.Option{
			nats.Name(name), nats.Nkey(public, sign), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
			// Nodes are passed on to where we are, and the addresses that servers tell of
			// each other are not the names that their certificates have.
			nats.IgnoreDiscoveredServers(),
			nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(30*time.Millisecond, 30*time.Millisecond), nats.ReconnectBufSize(-1),
			nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2), nats.SyncQueueLen(messaging.DefaultPending),
			nats.PermissionErrOnSubscribe(true), nats.Timeout(5 * time.Second), // longer than servers take to refuse
		}, more...)
	}
	var err error
	b.own, err = natsdial.Open(url, "_INBOX.gw", messaging.MaxGatewaySubscriptions,
		options("junctor gateway", b.keys.gateway.Sign, b.keys.names.gateway)...)
	if err != nil {
		return refusedOrUnavailable(err)
	}
	system := options("junctor gateway, sessions", b.keys.system.Sign, b.keys.names.system)
	system = append(system, nats.ReconnectHandler(func(*nats.Conn) {
		b.sessions.Publish(b.sessions.Lost) // clients that came and went meanwhile
	}))
	if b.system, err = nats.Connect(url, system...); err != nil {
		return refusedOrUnavailable(err)
	}
	if b.js, err = jetstream.New(b.own.NATS(), jetstream.WithDefaultTimeout(5*time.Second)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	return errors.Join(b.listenToSessions(ctx), b.answerCallouts(ctx))
}

func refusedOrUnavailable(err error) error {
	// Servers that do not know our keys ask a gateway who we are, and while they
	// wait for one they ask whether we are alive, which the library takes amiss.
	if natsdial.Refused(err) || strings.Contains(err.Error(), "expected 'PONG'") {
		return capability.Wrap(capability.CodeUnauthenticated, "bus.open", "the NATS servers do not know this gateway's keys", err).
			With(messaging.ReasonRefused, "compare nats.key_secret with what the servers' configuration says: junctor config nats")
	}
	return capability.Wrap(capability.CodeUnavailable, "bus.open", "the message bus cannot be reached", err).
		With(messaging.ReasonDisconnected, "check nats.url, and that the servers run")
}

// Conn is the gateway's own session.
func (b *Broker) Conn() messaging.Conn {
	if b.direct == nil {
		return b.own
	}
	return &directConn{Conn: b.own, direct: b.direct}
}

// Sessions implements messaging.Broker.
func (b *Broker) Sessions(ctx context.Context) iter.Seq2[messaging.SessionEvent, error] {
	return b.sessions.Read(ctx)
}

// Close ends the gateway's sessions, the proxied ones, and the embedded server.
func (b *Broker) Close() {
	b.mu.Lock()
	closing := b.closing
	b.closing = true
	b.mu.Unlock()
	if closing {
		return
	}
	// Sessions that end here reconnect through other gateways at once, and the servers must
	// not send their callouts to this gateway.
	b.leaveCallouts()
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end()
	b.sessions.Close(messaging.ErrClosed("sessions"))
	b.wg.Wait()
	if b.own != nil {
		b.own.Close()
	}
	if b.system != nil {
		b.system.Close()
	}
	if b.stop != nil {
		b.stop()
	}
}

// enter registers work that Close waits for until wg.Done; false if the broker is closed.
func (b *Broker) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.wg.Add(1)
	}
	return !b.closed
}
