package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// any caller lets everybody in as the node that its token names.
func anybody(_ context.Context, c messaging.Credential) (messaging.Identity, error) {
	id := c.Token.Reveal()
	subscribe, publish := wire.Permissions(id)
	return messaging.Identity{ID: id, Publish: publish, Subscribe: subscribe}, nil
}

func options(id string) messaging.DialOptions {
	return messaging.DialOptions{
		Name: id, Token: secret.New(id), Inbox: "_INBOX." + wire.Escape(id), ReconnectWait: 50 * time.Millisecond,
		ReconnectMax: 400 * time.Millisecond,
	}
}

// webDialer reaches a bus as nodes do, through HTTP.
func webDialer(t testing.TB, b *natsbus.Broker) messaging.Dialer {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(natsdial.ConnectPath, b.Handler(func(*http.Request) error { return nil }))
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	dial, err := natsdial.Dialer(web.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return dial
}

func connected(ctx context.Context, t testing.TB, c messaging.Conn) {
	t.Helper()
	for e, err := range c.Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == messaging.Connected || e.Kind == messaging.Reconnected {
			return
		}
	}
}

// joinRaw joins as a node with one function, f.
func joinRaw(ctx context.Context, t testing.TB, c messaging.Conn, id, instance string) *wire.JoinReply {
	t.Helper()
	data, err := wire.Encode(&wire.Join{
		Proto: 1, NodeID: id, Instance: instance, Labels: []string{"gpu"}, Revision: 1, Accepting: true,
		Functions: []cmp.Function{{Name: "f", Version: "1.0.0", Priority: 5, ExecutionMode: "normal", Tags: []string{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := c.Request(ctx, messaging.Message{Subject: wire.SubjectJoin(id), Data: data})
		if messaging.Is(err, messaging.ReasonNoResponders) || messaging.Is(err, messaging.ReasonDisconnected) {
			if ctx.Err() == nil {
				<-time.After(10 * time.Millisecond)
				continue
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		reply, err := wire.Decode[wire.JoinReply](m.Data)
		if err != nil || !reply.OK {
			t.Fatalf("err = %v, want nil; reply = %+v, want reply.OK = true", err, reply)
		}
		return reply
	}
}

func subscribe(pattern string) messaging.SubscribeOptions {
	return messaging.SubscribeOptions{Pattern: pattern}
}
