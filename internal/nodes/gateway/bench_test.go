package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/testkit/inproc"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// echo answers calls of one node as fast as it can, with a result that is there
// already.
func echo(ctx context.Context, b *testing.B, conn messaging.Conn, id string, done chan<- struct{}) {
	sub, err := conn.Subscribe(ctx, messaging.SubscribeOptions{Pattern: wire.SubjectCall(id)})
	if err != nil {
		b.Error(err)
	}
	go func() {
		defer close(done)
		for {
			m, err := sub.Next(ctx)
			if err != nil {
				return
			}
			var c struct {
				ID    string `json:"call_id"`
				Epoch int64  `json:"epoch"`
			}
			if json.Unmarshal(m.Data, &c) != nil {
				continue
			}
			out := fmt.Appendf(nil, `{"call_id":%q,"epoch":%d,"seq":0,"type":"result","value":{"ok":true},"exec_ms":1}`, c.ID, c.Epoch)
			_ = conn.Publish(ctx, messaging.Message{Subject: m.Reply, Data: out})
		}
	}()
}

// BenchmarkCall is one unary call and its answer, with the node in the same process.
func BenchmarkCall(b *testing.B) {
	for name, open := range map[string]func(b *testing.B) (messaging.Broker, messaging.Dialer){
		"memory": func(*testing.B) (messaging.Broker, messaging.Dialer) {
			broker := inproc.New(anybody)
			return broker, broker.Dial
		},
		"embedded NATS": func(b *testing.B) (messaging.Broker, messaging.Dialer) {
			broker, err := natsbus.Embed(b.Context(), b.TempDir(), natsbus.Config{Authorize: anybody})
			if err != nil {
				b.Fatal(err)
			}
			return broker, webDialer(b, broker)
		},
	} {
		b.Run(name, func(b *testing.B) {
			broker, dial := open(b)
			defer broker.Close()
			ctx, cancel := context.WithCancel(context.Background())
			g := gateway.New(gateway.Config{Broker: broker, Granted: func(string) ([]string, error) { return nil, nil }})
			ended, answered := make(chan error, 1), make(chan struct{})
			go func() { ended <- g.Run(ctx) }()
			conn, err := dial(ctx, options("a"))
			if err != nil {
				b.Fatal(err)
			}
			connected(ctx, b, conn)
			echo(ctx, b, conn, "a", answered)
			joinRaw(ctx, b, conn, "a", "i1")
			b.Run("one at a time", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					call(b, g)
				}
			})
			b.Run("many at once", func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(32)
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						call(b, g)
					}
				})
			})
			cancel()
			<-answered
			if err := <-ended; err != nil {
				b.Error(err)
			}
			conn.Close()
		})
	}
}

func call(b *testing.B, g *gateway.Gateway) {
	r, err := g.Call(b.Context(), gateway.Request{
		Node: "a", Function: "f",
		Arguments: cmp.Arguments{Args: []json.RawMessage{json.RawMessage(`1`)}},
	})
	if err != nil || len(r.Value) == 0 {
		b.Fatalf("%v; want no error, len(r.Value) other than 0", err)
	}
}
