package natsdial

import (
	"context"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// pushed takes messages from the library's own reader. Where messages are pulled, the
// library answers a message without a subscriber with an error that does not say what it was;
// the gateway must know which of its calls it is (see messaging.IsNobody).
type pushed struct {
	out  chan *nats.Msg
	done chan struct{} // closed when the library hands out nothing more
	quit chan struct{} // closed when the reader has ended

	direct  chan *nats.Msg // messages of Push; its capacity is their limit
	bytes   atomic.Int64   // of the messages in direct
	most    int64          // limit of bytes
	dropped atomic.Int64   // messages of Push above the limits
}

// Push gives the subscription a message that did not come from a server. It never waits: as for those of
// a server, a message above the limits is dropped, and Next reports it.
func (s *subscription) Push(m messaging.Message) {
	p, size := s.pushed, int64(len(m.Data))
	if p.bytes.Add(size) <= p.most {
		select {
		case p.direct <- &nats.Msg{Subject: m.Subject, Data: m.Data}:
			return
		default:
		}
	}
	p.bytes.Add(-size)
	p.dropped.Add(1)
}

func (c *Conn) push(s *subscription, pending, bytes int) (*nats.Subscription, error) {
	p := &pushed{
		out: make(chan *nats.Msg), done: make(chan struct{}), quit: make(chan struct{}),
		direct: make(chan *nats.Msg, pending), most: int64(bytes),
	}
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
	case m := <-p.direct:
		p.bytes.Add(-int64(len(m.Data)))
		return m, nil
	case <-p.done:
		return nil, nats.ErrConnectionClosed
	case <-p.quit:
		return nil, nats.ErrConnectionClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
