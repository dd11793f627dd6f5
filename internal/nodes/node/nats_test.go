package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/nodes/node"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// TestOverWebSocket is a node and a gateway as they are used: NATS inside WebSocket.
func TestOverWebSocket(t *testing.T) {
	t.Parallel()
	r := &rig{t: t, revoked: make(map[string]bool)}
	broker, err := natsbus.Embed(t.Context(), t.TempDir(), natsbus.Config{Authorize: r.admit})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	mux := http.NewServeMux()
	mux.Handle(natsdial.ConnectPath, broker.Handler(func(*http.Request) error { return nil }))
	links := new(links)
	web := httptest.NewUnstartedServer(mux)
	web.Config.ConnState = links.seen
	web.Start()
	defer web.Close()
	if r.dial, err = natsdial.Dialer(web.URL, nil); err != nil {
		t.Fatal(err)
	}
	r.Gateway = gateway.New(r.config(broker, gateway.Config{Heartbeat: 100 * time.Millisecond, Window: 64 << 10}))
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = r.Run(ctx) })
	defer serving.Wait()
	defer cancel()

	changed := make(chan node.Status, 1000)
	d := r.device("laptop.1", func(c *node.Config) {
		c.Changed = func(s node.Status) {
			select {
			case changed <- s:
			default:
			}
		}
		c.ReconnectWait = 50 * time.Millisecond
	})
	await := func(what func(node.Status) bool) node.Status {
		t.Helper()
		for {
			select {
			case s := <-changed:
				if what(s) {
					return s
				}
			case <-time.After(time.Minute):
				t.Fatalf("it did not happen: %+v", d.Status())
			}
		}
	}
	var sent atomic.Int64
	d.let("count", true, counts(100, 10<<10, &sent))
	d.let("echo", false, echo)
	handle, ended := blocked()
	d.let("wait", false, handle)
	d.let("break", false, func(context.Context, functions.Call) (json.RawMessage, error) { panic("x") })
	d.start()
	await(func(s node.Status) bool { return s.State == node.Connected && s.Beats >= 2 })

	if o := <-r.call(t.Context(), gateway.Request{Node: "laptop.1", Function: "echo"}); o.err != nil {
		t.Errorf("o.err = %v, want nil", o.err)
	}
	if o := <-r.call(t.Context(), gateway.Request{Node: "laptop.1", Function: "break"}); reason(o.err) != cmp.ReasonExecution {
		t.Errorf("reason(o.err) = %q, want cmp.ReasonExecution", reason(o.err))
	}
	// A slow reader holds up its own stream and nothing else.
	release, first := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(first) })
	stream := r.call(t.Context(), gateway.Request{Node: "laptop.1", Function: "count", Stream: true, Chunk: func(json.RawMessage) error {
		once()
		<-release
		return nil
	}})
	<-first
	seen := d.Status().Beats
	await(func(s node.Status) bool { return s.Beats > seen+3 })
	if n := sent.Load(); n > 8 {
		t.Errorf("%d chunks of 10 KiB are on their way; the window is 64 KiB; want n at most 8", n)
	}
	if o := <-r.call(t.Context(), gateway.Request{Node: "laptop.1", Function: "echo"}); o.err != nil {
		t.Errorf("o.err = %v, want nil", o.err)
	}
	close(release)
	if o := <-stream; o.err != nil || o.Chunks != 100 {
		t.Errorf("%+v; want o.err = nil, o.Chunks = 100", o)
	}
	// Cancelled.
	gone, end := context.WithCancel(t.Context())
	call := r.call(gone, gateway.Request{Node: "laptop.1", Function: "wait"})
	for d.Status().Active == 0 {
		<-changed
	}
	end()
	<-call
	<-ended
	// The door closes and opens again: all connections break.
	before := d.Status()
	links.cut()
	await(func(s node.Status) bool { return s.State == node.Connected && s.Joins > before.Joins })
	if o := <-r.call(t.Context(), gateway.Request{Node: "laptop.1", Function: "echo"}); o.err != nil {
		t.Errorf("o.err = %v, want nil", o.err)
	}
	// Another process by the same name.
	other := r.device("laptop.1", nil)
	other.let("echo", false, func(context.Context, functions.Call) (json.RawMessage, error) { return json.RawMessage(`"other"`), nil })
	other.start()
	if err := d.ended(); reason(err) != node.ReasonSuperseded {
		t.Errorf("%v; want reason(err) = node.ReasonSuperseded", err)
	}
	<-other.Joined()
	if o := <-r.call(t.Context(), gateway.Request{Node: "laptop.1", Function: "echo"}); o.err != nil || string(o.Value) != `"other"` {
		t.Errorf(`%+v; want o.err = nil, string(o.Value) = "\"other\""`, o)
	}
	if err := other.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if err := other.ended(); err != nil || r.Fleet().Len() != 0 {
		t.Errorf(`other.ended() = %v, want nil; r.Fleet().Len() = %v, want 0; strings.Join(r.told(), ", ") = %q`,
			err, r.Fleet().Len(), strings.Join(r.told(), ", "))
	}
}

// TestABusyGatewayIsNotARefusal holds that a node whose session could not be judged tries again, more often than
// a node that never joined may be refused.
func TestABusyGatewayIsNotARefusal(t *testing.T) {
	t.Parallel()
	r := &rig{t: t, revoked: make(map[string]bool)}
	var tries atomic.Int64
	broker, err := natsbus.Embed(t.Context(), t.TempDir(), natsbus.Config{
		Authorize: func(ctx context.Context, c messaging.Credential) (messaging.Identity, error) {
			switch n := tries.Add(1); {
			case n == 1:
				<-ctx.Done()
				return messaging.Identity{}, ctx.Err()
			case n <= 3:
				return messaging.Identity{}, errors.New("the database is locked")
			case n <= 5:
				return messaging.Identity{}, capability.Errorf(capability.CodeUnavailable, "bus", "not yet")
			}
			return r.admit(ctx, c)
		},
	})
	if err != nil {
		t.Fatalf("opening the bus: got %v, want no error", err)
	}
	t.Cleanup(broker.Close)
	mux := http.NewServeMux()
	mux.Handle(natsdial.ConnectPath, broker.Handler(func(*http.Request) error { return nil }))
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	if r.dial, err = natsdial.Dialer(web.URL, nil); err != nil {
		t.Fatalf("a dialer: got %v, want no error", err)
	}
	r.Gateway = gateway.New(r.config(broker, gateway.Config{}))
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() { cancel(); serving.Wait() })
	d := r.device("laptop.1", func(c *node.Config) { c.ReconnectWait = 20 * time.Millisecond }).start()
	select {
	case <-d.Joined():
	case err := <-d.done:
		d.done <- nil // of the cleanup
		t.Fatalf("the node gave up after %d tries: %v; want it to try until it joins", tries.Load(), err)
	case <-time.After(time.Minute):
		t.Fatalf("after %d tries the node is %+v; want it to join", tries.Load(), d.Status())
	}
	if n := tries.Load(); n < 6 {
		t.Errorf("the node joined after %d tries, want at least 6", n)
	}
}

// links are the connections of a web server, also those that were taken over.
type links struct {
	mu   sync.Mutex
	open []net.Conn
}

func (l *links) seen(c net.Conn, state http.ConnState) {
	if state == http.StateNew {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open = append(l.open, c)
	}
}

func (l *links) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		_ = c.Close() // many are closed already
	}
}
