package api

import (
	"context"
	"net"
	"sync"
)

// door is an in-process listener: dial connects to it, without a network address.
type door struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newDoor() *door { return &door{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept implements [net.Listener].
func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (d *door) Close() error {
	d.once.Do(func() { close(d.done) })
	return nil
}

// Addr implements [net.Listener].
func (d *door) Addr() net.Addr { return &net.UnixAddr{Name: "egress", Net: "pipe"} }

// dial returns a connection that Accept has received the other end of. It fails with
// [net.ErrClosed] if the door is closed or ctx ends.
func (d *door) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case d.conns <- far:
		return near, nil
	case <-d.done:
	case <-ctx.Done():
	}
	near.Close()
	far.Close()
	return nil, net.ErrClosed
}
