package messaging

import (
	"time"

	"github.com/junctor-run/junctor/capability"
)

// WithDefaults returns o with defaults in place of zero values.
func (o DialOptions) WithDefaults() DialOptions {
	if o.ReconnectWait <= 0 {
		o.ReconnectWait = 3 * time.Second
	}
	if o.ReconnectMax <= 0 {
		o.ReconnectMax = 300 * time.Second
	}
	o.ReconnectMax = max(o.ReconnectMax, o.ReconnectWait)
	if o.PingInterval <= 0 {
		o.PingInterval = 5 * time.Second
	}
	return o
}

// Check fails unless o has exactly one of Token and Key, and an inbox.
func (o DialOptions) Check() error {
	if o.Token.Empty() == (o.Key.Sign == nil) {
		return capability.Errorf(capability.CodeInvalidInput, "bus.connect", "a session needs a token or a key, and not both")
	}
	return CheckSubject(o.Inbox)
}

// Pause returns how long to wait before reconnect attempt n (from 1). random, in [0, 1),
// selects a value between half and one and a half of the wait, so that many nodes do not
// reconnect at the same time.
func (o DialOptions) Pause(n int, random float64) time.Duration {
	wait := o.ReconnectWait
	for range n - 1 {
		if wait = wait * 3 / 2; wait >= o.ReconnectMax {
			break
		}
	}
	wait = min(wait, o.ReconnectMax)
	return wait/2 + time.Duration(float64(wait)*random)
}
