package natsbus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/testkit/messagingtest"
	"github.com/junctor-run/junctor/internal/testkit/porttest"
	"github.com/junctor-run/junctor/secret"
)

// shared is what the gateways of a test know, and the servers do not.
func shared() secret.Value { return secret.New("0123456789abcdef0123456789abcdef") }

// startServers starts servers as an operator would: the text we tell them to
// use, and listeners, a directory and, for several, routes.
func startServers(t testing.TB, n int, change ...func(*server.Options)) []*server.Server {
	t.Helper()
	text, err := ServerConfig(shared())
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	var ports []int
	for range n {
		address := porttest.Address(t)
		routes = append(routes, "nats://"+address)
		port, err := strconv.Atoi(address[strings.LastIndex(address, ":")+1:])
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	var all []*server.Server
	for i := range n {
		opts := &server.Options{}
		if err := opts.ProcessConfigString(text); err != nil {
			t.Fatal(err)
		}
		opts.ServerName = fmt.Sprintf("server-%d", i)
		opts.Host, opts.Port = "127.0.0.1", -1
		opts.NoSigs, opts.NoLog = true, true
		opts.JetStream, opts.StoreDir, opts.DisableJetStreamBanner = true, t.TempDir(), true
		if n > 1 {
			opts.Cluster = server.ClusterOpts{Name: routes[0], Host: "127.0.0.1", Port: ports[i]}
			opts.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		}
		for _, c := range change {
			c(opts)
		}
		s, err := server.NewServer(opts)
		if err != nil {
			t.Fatal(err)
		}
		go s.Start()
		if !s.ReadyForConnections(10 * time.Second) {
			t.Fatal("a server does not become ready")
		}
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		all = append(all, s)
	}
	return all
}

func join(t testing.TB, urls string, replicas int, a messaging.Authorizer) *Broker {
	t.Helper()
	b, err := Open(t.Context(), Cluster{URL: urls, Secret: shared(), Replicas: replicas}, Config{Authorize: a})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func TestContractAgainstAServer(t *testing.T) {
	t.Parallel()
	messagingtest.Run(t, func(t *testing.T, a messaging.Authorizer) messagingtest.Rig {
		url := startServers(t, 1)[0].ClientURL()
		b := join(t, url, 1, a)
		return messagingtest.Rig{
			Broker: b, Dial: dialer(t, url), NewKey: func() messaging.Key { return newKey(t) },
			Interrupt: func() { interrupt(t, b) },
		}
	})
}

// TestContractThroughAGateway: sessions come in by WebSocket and are passed on to
// a server that is somewhere else.
func TestContractThroughAGateway(t *testing.T) {
	t.Parallel()
	messagingtest.Run(t, func(t *testing.T, a messaging.Authorizer) messagingtest.Rig {
		b := join(t, startServers(t, 1)[0].ClientURL(), 1, a)
		return messagingtest.Rig{Broker: b, Dial: dialer(t, serveWeb(t, b)), NewKey: func() messaging.Key { return newKey(t) }}
	})
}

func TestServersThatDoNotKnowTheSecretAreToldApart(t *testing.T) {
	t.Parallel()
	url := startServers(t, 1)[0].ClientURL()
	_, err := Open(t.Context(), Cluster{URL: url, Secret: secret.New(strings.Repeat("x", 32))}, Config{})
	if !messaging.Is(err, messaging.ReasonRefused) {
		t.Errorf("with another secret: %v (%v); want messaging.Is(err, messaging.ReasonRefused)", err, errors.Unwrap(err))
	}
	if _, err = Open(t.Context(), Cluster{URL: url, Secret: secret.New("short")}, Config{}); err == nil {
		t.Error("a short secret was taken; want an error")
	}
	if _, err = Open(t.Context(), Cluster{URL: "nats://127.0.0.1:1", Secret: shared()}, Config{}); !messaging.Is(err,
		messaging.ReasonDisconnected) {
		t.Errorf("where nobody listens: %v; want messaging.Is(err, messaging.ReasonDisconnected)", err)
	}
}

func options(id string) messaging.DialOptions {
	return messaging.DialOptions{
		Name: id, Inbox: "_INBOX." + id, Token: secret.New("token"), ReconnectWait: 20 * time.Millisecond, ReconnectMax: 100 * time.Millisecond,
	}
}

// any caller lets everybody in as the node it calls itself.
func anybody(_ context.Context, c messaging.Credential) (messaging.Identity, error) {
	id := c.Name
	return messaging.Identity{
		ID: id, Publish: []string{"v1.gw." + id + ".>"},
		Subscribe: []string{"v1.host." + id + ".>", "_INBOX." + id + ".>"},
	}, nil
}

func await(t testing.TB, events func() messaging.Event, kind messaging.EventKind) {
	t.Helper()
	for {
		e := events()
		if e.Kind == kind {
			return
		}
		if e.Kind == "" {
			t.Fatalf(`no event %s came; want e.Kind other than ""`, kind)
		}
	}
}

func eventsOf(t testing.TB, c messaging.Conn) func() messaging.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	out := make(chan messaging.Event, 1000)
	events := c.Events(ctx)
	go func() {
		defer close(out)
		for e, err := range events {
			if err != nil {
				return
			}
			out <- e
		}
	}()
	return func() messaging.Event { return <-out }
}

func TestAClusterGoesOnWithoutOneOfItsServers(t *testing.T) {
	t.Parallel()
	servers := startServers(t, 3)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	one, two := join(t, urls[0], 3, anybody), join(t, urls[1], 3, anybody)
	table := bucketOf(ctx, t, one)
	watched := bucketOf(ctx, t, two)

	// A node of the third server reaches both gateways, and both see it connect.
	sessions := two.Sessions(ctx)
	node, err := dialer(t, urls[2])(ctx, options("n1"))
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	life := eventsOf(t, node)
	await(t, life, messaging.Connected)
	for e, err := range sessions {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == messaging.SessionOpened && e.Session.Identity == "n1" {
			break
		}
	}
	sub, err := one.Conn().Subscribe(ctx, messaging.SubscribeOptions{Pattern: "v1.gw.*.beat", Queue: "gateways"})
	if err != nil {
		t.Fatal(err)
	}
	calls, err := node.Subscribe(ctx, messaging.SubscribeOptions{Pattern: "v1.host.n1.>"})
	if err != nil {
		t.Fatal(err)
	}
	publishUntilReceived(ctx, t, node, "v1.gw.n1.beat", sub)
	publishUntilReceived(ctx, t, two.Conn(), "v1.host.n1.call", calls)

	changes := make(chan messaging.Change, 1000)
	go func() {
		for c, err := range watched.Watch(ctx) {
			if err != nil {
				return
			}
			changes <- c
		}
	}()
	seen(ctx, t, changes, "before", func() (uint64, error) { return table.Put(ctx, "before", nil) })

	// The server of the node and then that of the watching gateway go. The one
	// with the writer stays, and two of three hold the bucket.
	servers[2].Shutdown()
	await(t, life, messaging.Reconnected)
	if err := node.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	publishUntilReceived(ctx, t, node, "v1.gw.n1.beat", sub)
	publishUntilReceived(ctx, t, two.Conn(), "v1.host.n1.call", calls)
	began := time.Now()
	wrote := seen(ctx, t, changes, "after", func() (uint64, error) { return table.Put(ctx, "after", nil) })
	t.Logf("written %s, told %s after the loss of a server", wrote, time.Since(began))
	again := eventsOf(t, two.Conn())
	if err := two.own.NATS().ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	await(t, again, messaging.Reconnected)
	seen(ctx, t, changes, "last", func() (uint64, error) { return table.Put(ctx, "last", nil) })
	// A certificate has the names that the operator wrote, not what servers call each other.
	if told := two.own.NATS().DiscoveredServers(); len(told) > 0 {
		t.Errorf("a gateway would go to %v; want len(told) at most 0", told)
	}
}

// bucketOf waits until the servers have agreed who leads.
func bucketOf(ctx context.Context, t testing.TB, b *Broker) messaging.Bucket {
	t.Helper()
	for {
		k, err := b.Bucket(ctx, messaging.BucketOptions{Name: "nodes"})
		if err == nil {
			return k
		}
		if ctx.Err() != nil {
			t.Fatalf("%v; want ctx.Err() = nil", err)
		}
	}
}

// publishUntilReceived publishes until the message arrives, because interest travels between servers.
func publishUntilReceived(ctx context.Context, t testing.TB, from messaging.Conn, subject string, sub messaging.Subscription) {
	t.Helper()
	for ctx.Err() == nil {
		if err := from.Publish(ctx, messaging.Message{Subject: subject}); err != nil {
			t.Fatal(err)
		}
		wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := sub.Next(wait)
		cancel()
		if err == nil {
			return
		}
	}
	t.Fatalf("no message published to %s arrived", subject)
}

// seen writes until it succeeds, waits until a watcher is told, and returns how
// long writing took.
func seen(ctx context.Context, t testing.TB, changes <-chan messaging.Change, key string, write func() (uint64, error)) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		_, err := write()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%v; want ctx.Err() = nil", err)
		}
	}
	took := time.Since(began)
	for {
		select {
		case c := <-changes:
			if c.Kind == messaging.Put && c.Entry.Key == key {
				return took
			}
		case <-ctx.Done():
			t.Fatalf("the watcher was never told of %s", key)
		}
	}
}

// TestSessionsArePassedOnToAnEncryptedServer: the node knows nothing of the
// server's certificate, nor of other servers.
func TestSessionsArePassedOnToAnEncryptedServer(t *testing.T) {
	t.Parallel()
	vouched := httptest.NewTLSServer(nil)
	defer vouched.Close()
	roots := x509.NewCertPool()
	roots.AddCert(vouched.Certificate())
	url := startServers(t, 1, func(o *server.Options) {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: vouched.TLS.Certificates}
		o.TLSTimeout = 5
	})[0].ClientURL()
	cluster := Cluster{URL: url, Secret: shared(), TLS: &tls.Config{RootCAs: roots}}
	b, err := Open(t.Context(), cluster, Config{Authorize: anybody})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	c, err := dialer(t, serveWeb(t, b))(t.Context(), options("n1"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	await(t, eventsOf(t, c), messaging.Connected)
	if _, err := c.Request(t.Context(), messaging.Message{Subject: "v1.gw.n1.join"}); !messaging.Is(err, messaging.ReasonNoResponders) {
		t.Errorf("a request where nobody answers: %v; want messaging.Is(err, messaging.ReasonNoResponders)", err)
	}
	if seen := c.(*natsdial.Conn).NATS().DiscoveredServers(); len(seen) > 0 {
		t.Errorf("the node was told of %v; want len(seen) at most 0", seen)
	}
	cluster.TLS = nil
	if b, err := Open(t.Context(), cluster, Config{}); err == nil {
		b.Close()
		t.Error("a server that nobody vouches for was taken; want an error")
	}
}
