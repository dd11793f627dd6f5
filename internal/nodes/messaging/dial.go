package messaging

import (
	"time"

	"github.com/junctor-run/junctor/capability"
)

// WithDefaults returns o with the defaults of what is zero.
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

// Check refuses options without exactly one proof of who is dialling, or
// without an inbox.
func (o DialOptions) Check() error {
	if o.Token.Empty() == (o.Key.Sign == nil) {
		return capability.Errorf(capability.CodeInvalidInput, "bus.connect", "a session needs a token or a key, and not both")
	}
	return CheckSubject(o.Inbox)
}

// Pause returns how long to wait before try number n (from 1) to come back;
// random is in [0, 1) and decides where between half and one and a half of the
// wait, so that a thousand nodes do not come back at once.
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
