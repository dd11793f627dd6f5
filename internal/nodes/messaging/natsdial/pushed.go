package natsdial

import (
	"context"

	"github.com/nats-io/nats.go"
)

// pushed takes messages from the library's own reader. Where messages are pulled, the
// library answers a message without a subscriber with an error that does not say what it was;
// the gateway must know which of its calls it is (see messaging.IsNobody).
type pushed struct {
	out  chan *nats.Msg
	done chan struct{} // closed when the library hands out nothing more
	quit chan struct{} // closed when the reader has ended
}

func (c *Conn) push(s *subscription) (*nats.Subscription, error) {
	p := &pushed{out: make(chan *nats.Msg), done: make(chan struct{}), quit: make(chan struct{})}
	sub, err := c.nc.QueueSubscribe(s.o.Pattern, s.o.Queue, func(m *nats.Msg) {
		select {
		case p.out <- m:
		case <-p.quit:
		}
	})
	if err != nil {
		return nil, err
	}
	sub.SetClosedHandler(func(string) { close(p.done) })
	s.pushed = p
	return sub, nil
}

// next returns nats.ErrConnectionClosed at the end, as the library does.
func (p *pushed) next(ctx context.Context) (*nats.Msg, error) {
	select {
	case m := <-p.out:
		return m, nil
	case <-p.done:
		return nil, nats.ErrConnectionClosed
	case <-p.quit:
		return nil, nats.ErrConnectionClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
