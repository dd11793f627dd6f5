package channels

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/coder/websocket"

	"github.com/junctor-run/junctor/capability"
)

// Socket is a WebSocket to a service. Frames and Failed are read by one goroutine.
type Socket struct {
	// Frames has the frames that arrive. After the last one, Failed has the reason of the end.
	Frames <-chan []byte
	Failed <-chan error

	conn *websocket.Conn
	stop context.CancelFunc
	done chan struct{}
}

// Dial opens a WebSocket. Its address comes from the service, so that only a secure one is used,
// unless the account has a service of its own.
func (r *REST) Dial(ctx context.Context, address string, query url.Values) (*Socket, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "wss" && (u.Scheme != "ws" || r.Account.URL == "") {
		return nil, capability.Errorf(capability.CodeUnavailable, r.Account.Kind, "%s named an address that cannot be used", r.Service)
	}
	if query != nil {
		u.RawQuery = query.Encode()
	}
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, _, err := websocket.Dial(dialing, u.String(), nil) //nolint:bodyclose // there is none
	if err != nil {
		return nil, capability.Errorf(capability.CodeUnavailable, r.Account.Kind, "the gateway of %s cannot be reached", r.Service)
	}
	conn.SetReadLimit(maxFrame)
	ctx, stop := context.WithCancel(ctx)
	frames, failed := make(chan []byte), make(chan error, 1)
	s := &Socket{Frames: frames, Failed: failed, conn: conn, stop: stop, done: make(chan struct{})}
	go func() { // ends with ctx or the connection
		defer close(s.done)
		for {
			_, data, err := conn.Read(ctx)
			if err != nil {
				failed <- err
				return
			}
			select {
			case frames <- data:
			case <-ctx.Done():
				failed <- ctx.Err()
				return
			}
		}
	}()
	return s, nil
}

// Write sends a value as a frame of JSON.
func (s *Socket) Write(ctx context.Context, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, data)
}

// KeepAlive sends a ping twice a minute until ctx ends or one is not answered; the connection ends
// then.
func (s *Socket) KeepAlive(ctx context.Context) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.done:
			return
		case <-ctx.Done():
			return
		}
		asked, cancel := context.WithTimeout(ctx, dialTimeout)
		err := s.conn.Ping(asked)
		cancel()
		if err != nil {
			s.stop()
			return
		}
	}
}

// Close ends the connection and waits for its goroutine.
func (s *Socket) Close() {
	s.stop()
	_ = s.conn.CloseNow()
	<-s.done
}
