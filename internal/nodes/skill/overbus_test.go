package skill_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/nodes/node"
	cmp "github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// TestMain runs every scenario twice: with calls that are carried out at once, and
// with calls that go through a gateway and the embedded bus to the device, which has
// joined over a WebSocket.
func TestMain(m *testing.M) {
	status := m.Run()
	b, err := openBus()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	overBus = b
	if again := m.Run(); status == 0 {
		status = again
	}
	b.close()
	if err := goleak.Find(goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop")); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// overBus is set in the second run.
var overBus *bus

// bus is a gateway with its embedded bus, for all devices of the second run.
type bus struct {
	gateway *gateway.Gateway
	url     string
	ids     atomic.Int64
	close   func()
	assets  sync.Map // digest → bytes
}

func (b *bus) put(data []byte) cmp.Asset {
	sum := sha256.Sum256(data)
	a := cmp.Asset{Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(data)), MediaType: "application/json"}
	b.assets.Store(a.Digest, data)
	return a
}

func (b *bus) fetch(_ context.Context, a cmp.Asset) ([]byte, error) {
	data, ok := b.assets.Load(a.Digest)
	if !ok {
		return nil, fmt.Errorf("no asset %s", a.Digest)
	}
	return data.([]byte), nil
}

func openBus() (*bus, error) {
	dir, err := os.MkdirTemp("", "junctor-skill")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	broker, err := natsbus.Embed(ctx, dir, natsbus.Config{Authorize: func(_ context.Context, c messaging.Credential) (messaging.Identity,
		error,
	) {
		subscribe, publish := wire.Permissions(c.Name)
		return messaging.Identity{ID: c.Name, Subscribe: subscribe, Publish: publish}, nil
	}})
	if err != nil {
		cancel()
		return nil, err
	}
	b := new(bus)
	b.gateway = gateway.New(gateway.Config{
		Broker: broker, Granted: func(string) ([]string, error) { return nil, nil },
		PutAsset: func(_ context.Context, _ string, data []byte) (cmp.Asset, error) { return b.put(data), nil },
	})
	done := make(chan error, 1)
	go func() { done <- b.gateway.Run(ctx) }()
	door := httptest.NewServer(broker.Handler(func(*http.Request) error { return nil }))
	b.url = door.URL
	b.close = func() {
		cancel()
		<-done
		broker.Close()
		door.Close()
		_ = os.RemoveAll(dir)
	}
	return b, nil
}

// carry joins the device and has its calls go through the gateway.
func (b *bus) carry(r *rig) {
	r.t.Helper()
	r.bus, r.busID = b, fmt.Sprintf("n%d", b.ids.Add(1))
	dial, err := natsdial.Dialer(b.url, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.session, err = node.New(node.Config{
		Dial: dial, Token: secret.New("any"), ID: r.busID, Software: wire.Software{Name: "test", Version: "1"}, Functions: r.functions,
		Executor: r.exec, Fetch: b.fetch,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.session.Run(ctx) }()
	r.t.Cleanup(func() { cancel(); <-done })
	select {
	case <-r.session.Joined():
	case err := <-done:
		done <- err
		r.t.Fatal("not let in: ", err)
	case <-time.After(time.Minute):
		r.t.Fatal("not let in for a minute")
	}
	// A node is answered before subscribers are notified.
	for seen, err := range b.gateway.Watch(r.t.Context()) {
		if err != nil {
			r.t.Fatal(err)
		}
		if seen.Node.ID == r.busID && seen.Node.Status == fleet.Connected {
			return
		}
	}
}

// callOverBus is a call as the gateway makes it.
func (r *rig) callOverBus(function string, args cmp.Arguments) (json.RawMessage, error) {
	// What the test registers by hand is told without being asked: the test does not wait for it.
	if err := r.session.Refresh(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	out, err := r.bus.gateway.Call(r.t.Context(), gateway.Request{
		Node: r.busID, Function: function, Arguments: args,
		Caller: wire.Caller{Kind: "agent", ID: "agent:a"},
	})
	return out.Value, err
}

// refresh tells the gateway, as a device does.
func (r *rig) refresh(ctx context.Context) error {
	r.refreshes.Add(1)
	if r.session == nil {
		return nil
	}
	return r.session.Refresh(ctx)
}

// inBubble reports that time is synctest's, in which no socket may be used.
func inBubble() bool { return time.Now().Year() == 2000 }
