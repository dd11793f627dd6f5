package inproc

import (
	"testing"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/testkit/messagingtest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	messagingtest.Run(t, func(t *testing.T, a messaging.Authorizer) messagingtest.Rig {
		b := New(a)
		t.Cleanup(b.Close)
		return messagingtest.Rig{Broker: b, Dial: b.Dial, Interrupt: b.Interrupt, NewKey: func() messaging.Key {
			_, key, err := natsdial.NewKey()
			if err != nil {
				t.Fatal(err)
			}
			return key
		}}
	})
}
