package messagingtest

import (
	"testing"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// nobodyThere: a message without a subscriber comes back to where its answer was
// wanted, through a wildcard too, and nowhere else.
func nobodyThere(t *testing.T, s *suite) {
	gw, n := s.Broker.Conn(), s.join(t, "absent")
	replies := subscribe(t, gw, "v1.gw.*.reply.i1.>", "")
	call := messaging.Message{Subject: "v1.host.absent.call", Reply: "v1.gw.absent.reply.i1.c1", Data: []byte("call")}
	if err := gw.Publish(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	if m := next(t, replies); m.Subject != call.Reply || !messaging.IsNobody(m) {
		t.Errorf("nobody was there, and %+v came", m)
	}
	calls := subscribe(t, n, call.Subject, "")
	if err := gw.Publish(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	if m := next(t, calls); string(m.Data) != "call" {
		t.Errorf("it arrived as %+v", m)
	}
	publish(t, n, call.Reply, "answer")
	if m := next(t, replies); string(m.Data) != "answer" || messaging.IsNobody(m) {
		t.Errorf("somebody was there, and %+v came", m)
	}
	silent(t, replies)
}
