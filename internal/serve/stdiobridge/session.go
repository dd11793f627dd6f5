package stdiobridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// binding is a session at the server; the zero value means no session.
type binding struct{ id, version string }

// session is the legacy client's session at the server. If the server loses it, the
// bridge opens a new one without the client's involvement.
type session struct {
	bridge *bridge

	mu         sync.Mutex
	at         binding
	initialize *message           // the client's initialize request
	confirmed  *message           // its notifications/initialized, nil until then
	stop       context.CancelFunc // ends the stream of notifications
	notices    sync.WaitGroup

	renewing sync.Mutex
}

func (s *session) current() binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// open sends initialize, stores the session that the response names and writes the
// response to the client.
func (s *session) open(ctx context.Context, m *message) {
	b := s.bridge
	resp, err := b.post(ctx, m, binding{}, nil)
	if err != nil {
		if ctx.Err() == nil {
			b.report(m.id, err)
		}
		return
	}
	defer resp.Body.Close()
	answer, err := s.adopt(resp, m)
	if err != nil {
		b.report(m.id, err)
		return
	}
	b.write(answer)
}

// adopt reads the response to initialize m, stores the session and returns the response.
func (s *session) adopt(resp *http.Response, m *message) ([]byte, error) {
	if resp.StatusCode != http.StatusOK {
		return nil, &refusedError{resp.StatusCode}
	}
	var answer []byte
	var err error
	if bytes.HasPrefix([]byte(resp.Header.Get("Content-Type")), []byte("text/event-stream")) {
		err = events(resp.Body, func(data []byte) {
			if answers(data, m.id) {
				answer = bytes.Clone(data)
			}
		})
	} else {
		answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	}
	if err != nil {
		return nil, err
	}
	var decoded struct {
		Result struct {
			Version string `json:"protocolVersion"`
		} `json:"result"`
	}
	if err := json.Unmarshal(answer, &decoded); err != nil {
		return nil, &refusedError{resp.StatusCode}
	}
	if id := resp.Header.Get(mcpwire.HeaderSession); id != "" && decoded.Result.Version != "" {
		s.mu.Lock()
		s.at = binding{id, decoded.Result.Version}
		s.initialize = m
		s.mu.Unlock()
	}
	return answer, nil
}

// ready forwards notifications/initialized and, the first time, opens the stream of notifications.
func (s *session) ready(ctx context.Context, m *message) {
	at := s.current()
	if at.id == "" {
		return
	}
	s.mu.Lock()
	first := s.confirmed == nil
	s.confirmed = m
	s.mu.Unlock()
	s.notify(ctx, m, at)
	if first {
		ctx, cancel := context.WithCancel(ctx)
		s.mu.Lock()
		s.stop = cancel
		s.mu.Unlock()
		s.notices.Go(func() { s.listen(ctx) })
	}
}

func (s *session) notify(ctx context.Context, m *message, at binding) {
	if resp, err := s.bridge.post(ctx, m, at, nil); err == nil {
		resp.Body.Close()
	}
}

// renew opens a new session after the server has lost old, and returns it. If several
// requests call it concurrently, only one session is opened.
func (s *session) renew(ctx context.Context, old binding) (binding, error) {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	if at := s.current(); at.id != old.id {
		return at, nil
	}
	s.mu.Lock()
	initialize, ready := s.initialize, s.confirmed
	s.mu.Unlock()
	resp, err := s.bridge.post(ctx, initialize, binding{}, nil)
	if err != nil {
		return binding{}, err
	}
	defer resp.Body.Close()
	if _, err := s.adopt(resp, initialize); err != nil {
		return binding{}, err
	}
	at := s.current()
	if at.id == old.id {
		return binding{}, errors.New("the server opens no new session")
	}
	if ready != nil {
		s.notify(ctx, ready, at)
	}
	return at, nil
}

// listen keeps the stream of notifications open until ctx ends, with increasing delays
// between attempts, or until the server reports that it has none.
func (s *session) listen(ctx context.Context) {
	wait, again := firstRetryDelay, false
	for ctx.Err() == nil {
		began := time.Now()
		at := s.current()
		err := s.stream(ctx, at, again)
		again = true
		if gone, ok := errors.AsType[*refusedError](err); ok && gone.status == http.StatusNotFound {
			_, _ = s.renew(ctx, at) // the delay applies too, because a server may lose every session
		} else if ok && gone.status == http.StatusMethodNotAllowed {
			return // the server has no such stream
		}
		if time.Since(began) > maxRetryDelay {
			wait = firstRetryDelay
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		wait = min(2*wait, maxRetryDelay)
	}
}

// stream forwards the messages of one stream of notifications until it ends. If again is
// set, it first sends tools/list_changed, because notifications may have been missed.
func (s *session) stream(ctx context.Context, at binding, again bool) error {
	b := s.bridge
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := b.do(req, at)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &refusedError{resp.StatusCode}
	}
	if again {
		// Notifications since the last stream are lost; a refresh is cheap.
		b.write(jsonrpc.AppendRequest(nil, nil, "notifications/tools/list_changed", nil))
	}
	return events(resp.Body, b.write)
}

// end closes the stream of notifications and deletes the session at the server.
func (s *session) end(ctx context.Context) {
	s.mu.Lock()
	stop, at := s.stop, s.at
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
	s.notices.Wait()
	if at.id == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, s.bridge.url, nil)
	if err != nil {
		return
	}
	if resp, err := s.bridge.do(req, s.current()); err == nil {
		resp.Body.Close()
	}
}

// events calls each with the data of every server-sent event. The data is valid until each returns.
func events(r io.Reader, each func(data []byte)) error {
	in := bufio.NewReaderSize(r, 32<<10)
	var data, text []byte
	for {
		part, err := in.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case len(text)+len(data) > maxAnswer:
			return fmt.Errorf("an event is larger than %d bytes", maxAnswer)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return nil // an incomplete event is ignored
		case err != nil:
			return err
		}
		field := bytes.TrimRight(text, "\r\n")
		switch value, isData := bytes.CutPrefix(field, []byte("data:")); {
		case len(field) == 0 && len(data) > 0:
			each(data)
			data = data[:0]
		case isData:
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		}
		text = text[:0]
	}
}
