package natsdial

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
)

// closedByPeer is a connection whose writes fail.
type closedByPeer struct {
	net.Conn
	write error
}

func (c *closedByPeer) Write([]byte) (int, error) { return 0, c.write }

func TestWriteToAClosedConnectionLeavesTheReasonToRead(t *testing.T) {
	t.Parallel()
	other := errors.New("no memory")
	for name, test := range map[string]struct{ write, want error }{
		"broken pipe": {&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}, nil},
		"reset":       {&net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.ECONNRESET)}, nil},
		"other":       {other, other},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := lastWordsConn{&closedByPeer{write: test.write}}
			if _, err := c.Write([]byte("PING\r\n")); !errors.Is(err, test.want) || test.want == nil && err != nil {
				t.Errorf("Write = %v, want %v", err, test.want)
			}
		})
	}
}
