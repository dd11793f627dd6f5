package gateway

import (
	"fmt"
	"testing"

	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/testkit/inproc"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// BenchmarkBeat is what one heartbeat costs one gateway, once the bus has brought it:
// to receive it, and to judge it where it is this gateway's turn.
func BenchmarkBeat(b *testing.B) {
	bus := inproc.New(nil)
	defer bus.Close()
	g := New(Config{Broker: bus})
	var messages []messaging.Message
	for i := range 1000 {
		id := fmt.Sprint("n", i)
		rec, err := g.table.Propose(fleet.Member{ID: id, Session: id, Functions: []fleet.Function{{Name: "f"}}})
		if err != nil {
			b.Fatal(err)
		}
		g.table.Take(rec)
		data, err := wire.Encode(&wire.Beat{Epoch: rec.Epoch, CPU: 12.5, Memory: 40, Accepting: true})
		if err != nil {
			b.Fatal(err)
		}
		messages = append(messages, messaging.Message{Subject: wire.SubjectBeat(id), Data: data})
	}
	for name, take := range map[string]func(m messaging.Message){
		"heard":  func(m messaging.Message) { g.beat(b.Context(), m) },
		"judged": func(m messaging.Message) { g.judge(b.Context(), m) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				take(messages[i%len(messages)])
			}
		})
	}
}
