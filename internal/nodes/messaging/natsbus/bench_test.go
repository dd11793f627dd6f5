package natsbus

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// BenchmarkRequest compares one request and its answer over every way to the
// bus with an echo over a plain WebSocket, in one run.
func BenchmarkRequest(b *testing.B) {
	data := []byte(strings.Repeat("x", 256))
	b.Run("plain WebSocket echo", func(b *testing.B) { plainEcho(b, data) })
	bus := embed(b, anybody)
	answer(b, bus)
	b.Run("in-process", func(b *testing.B) { ask(b, bus.Conn(), data) })
	b.Run("our WebSocket", func(b *testing.B) { ask(b, dialed(b, serveWeb(b, bus)), data) })
	url := startServers(b, 1)[0].ClientURL()
	shared := join(b, url, 1, anybody)
	answer(b, shared)
	b.Run("TCP to a server of its own", func(b *testing.B) { ask(b, dialed(b, url), data) })
	b.Run("our WebSocket to a server of its own", func(b *testing.B) { ask(b, dialed(b, serveWeb(b, shared)), data) })
}

func dialed(b *testing.B, url string) messaging.Conn {
	b.Helper()
	c, err := dialer(b, url)(b.Context(), options("n1"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	await(b, eventsOf(b, c), messaging.Connected)
	return c
}

// answer echoes on the gateway's side until the benchmark ends.
func answer(b *testing.B, bus *Broker) {
	b.Helper()
	sub, err := bus.Conn().Subscribe(b.Context(), messaging.SubscribeOptions{Pattern: "v1.gw.*.echo", Queue: "gateways"})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	b.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for {
			m, err := sub.Next(ctx)
			if err != nil || bus.Conn().Publish(ctx, messaging.Message{Subject: m.Reply, Data: m.Data}) != nil {
				return
			}
		}
	}()
}

func ask(b *testing.B, c messaging.Conn, data []byte) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Request(b.Context(), messaging.Message{Subject: "v1.gw.n1.echo", Data: data}); err != nil {
			b.Fatal(err)
		}
	}
}

func plainEcho(b *testing.B, data []byte) {
	b.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = ws.CloseNow() }()
		for {
			kind, in, err := ws.Read(r.Context())
			if err != nil || ws.Write(r.Context(), kind, in) != nil {
				return
			}
		}
	}))
	defer web.Close()
	ws, _, err := websocket.Dial(b.Context(), strings.Replace(web.URL, "http", "ws", 1), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	b.ReportAllocs()
	for b.Loop() {
		if err := ws.Write(b.Context(), websocket.MessageBinary, data); err != nil {
			b.Fatal(err)
		}
		if _, _, err := ws.Read(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart is what a server pays for its bus when it starts and stops.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		bus, err := Embed(b.Context(), dir, Config{})
		if err != nil {
			b.Fatal(err)
		}
		bus.Close()
	}
}

// BenchmarkJoin is a connection by WebSocket, authorised and closed.
func BenchmarkJoin(b *testing.B) {
	bus := embed(b, anybody)
	url := serveWeb(b, bus)
	for b.Loop() {
		dialed(b, url).Close()
	}
}

func BenchmarkBucketPut(b *testing.B) {
	bus := embed(b, anybody)
	k, err := bus.Bucket(b.Context(), messaging.BucketOptions{Name: "nodes"})
	if err != nil {
		b.Fatal(err)
	}
	value := []byte(strings.Repeat("x", 256))
	for b.Loop() {
		if _, err := k.Put(b.Context(), "n1", value); err != nil {
			b.Fatal(err)
		}
	}
}
