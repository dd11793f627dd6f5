// Package porttest chooses the ports of tests whose servers are told where to listen,
// because they are processes of others or come back to where they were.
package porttest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Linux gives the ports from 32768 on to connections that go out: one of those could be
// taken between its choice and its use. It is by chance that two tests do not choose the
// same, since neither keeps what it has chosen.
const first, last = 12000, 32000

// Address is an address on loopback without a listener.
func Address(t testing.TB) string {
	t.Helper()
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+rand.IntN(last-first)))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("there is no port: ", err)
	return ""
}
