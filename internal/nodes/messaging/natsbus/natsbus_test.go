package natsbus

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/testkit/messagingtest"
)

func newKey(t *testing.T) messaging.Key {
	t.Helper()
	_, key, err := natsdial.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func embed(t testing.TB, a messaging.Authorizer) *Broker {
	t.Helper()
	b, err := Embed(t.Context(), t.TempDir(), Config{Authorize: a})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// dialInside reaches an embedded server through nothing but the kernel's buffers,
// by a socket that every connection of is passed on.
func dialInside(t testing.TB, b *Broker) messaging.Dialer {
	t.Helper()
	dir, err := os.MkdirTemp("", "bus") // short enough for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			link, err := b.link(context.Background())
			if err != nil {
				c.Close()
				return
			}
			go func() { defer c.Close(); defer link.Close(); _, _ = io.Copy(c, link) }()
			go func() { defer link.Close(); _, _ = io.Copy(link, c) }()
		}
	}()
	return natsdial.Inside(inside(l.Addr().String()))
}

// inside makes a socket what the library calls a server.
type inside string

func (s inside) InProcessConn() (net.Conn, error) { return net.Dial("unix", string(s)) }

func serveWeb(t testing.TB, b *Broker) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(natsdial.ConnectPath, b.Handler(func(*http.Request) error { return nil }))
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	return web.URL
}

func dialer(t testing.TB, url string) messaging.Dialer {
	t.Helper()
	d, err := natsdial.Dialer(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// interrupt breaks the gateway's session.
func interrupt(t testing.TB, b *Broker) {
	t.Helper()
	if err := b.own.NATS().ForceReconnect(); err != nil {
		t.Error(err)
	}
}

func TestContractInProcess(t *testing.T) {
	t.Parallel()
	messagingtest.Run(t, func(t *testing.T, a messaging.Authorizer) messagingtest.Rig {
		b := embed(t, a)
		return messagingtest.Rig{
			Broker: b, Dial: dialInside(t, b), NewKey: func() messaging.Key { return newKey(t) },
			Interrupt: func() { interrupt(t, b) },
		}
	})
}

func TestContractOverWebSocket(t *testing.T) {
	t.Parallel()
	messagingtest.Run(t, func(t *testing.T, a messaging.Authorizer) messagingtest.Rig {
		b := embed(t, a)
		return messagingtest.Rig{Broker: b, Dial: dialer(t, serveWeb(t, b)), NewKey: func() messaging.Key { return newKey(t) }}
	})
}
