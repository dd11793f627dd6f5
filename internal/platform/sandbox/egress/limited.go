package egress

import (
	"net"
	"time"
)

// limited is a connection that keeps to the rate shared by the run's connections. A read
// fails after idleTimeout without data.
type limited struct {
	net.Conn
	p *proxy
}

func (c *limited) Read(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(idleTimeout))
	if c.p.limiter != nil {
		b = b[:min(len(b), c.p.limiter.Burst())]
	}
	n, err := c.Conn.Read(b)
	if werr := c.p.wait(n); werr != nil && err == nil {
		err = werr
	}
	return n, err
}

func (c *limited) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		part := b[written:]
		if c.p.limiter != nil {
			part = part[:min(len(part), c.p.limiter.Burst())]
		}
		if err := c.p.wait(len(part)); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(part)
		written += n
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

func (c *limited) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// wait waits until the rate permits n bytes, or returns an error once the proxy ends.
func (p *proxy) wait(n int) error {
	if p.limiter == nil || n <= 0 {
		return nil
	}
	return p.limiter.WaitN(p.ctx, n)
}
