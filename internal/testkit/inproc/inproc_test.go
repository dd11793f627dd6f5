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

func TestCovers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		allowed, pattern string
		want             bool
	}{
		{"a.b", "a.b", true},
		{"a.b", "a.c", false},
		{"a.*", "a.b", true},
		{"a.*", "a.*", true},
		{"a.*", "a.>", false},
		{"a.*", "a.b.c", false},
		{"a.>", "a.b.c", true},
		{"a.>", "a.*.c", true},
		{"a.>", "a", false},
		{"a.b", "a.*", false},
		{"a.b", "a", false},
		{"a", "a.b", false},
		{">", ">", true},
		{"*.b", ">", false},
		{"v1.host.n1.>", "v1.host.n10.call", false},
	} {
		if got := covers(c.allowed, c.pattern); got != c.want {
			t.Errorf("covers(%q, %q) = %v, want %v", c.allowed, c.pattern, got, c.want)
		}
	}
}
