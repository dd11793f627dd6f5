package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// errGone reports that the browser has ended or has sent malformed data.
var errGone = errors.New("the browser ended")

// message is one message of the DevTools protocol, in either direction.
type message struct {
	ID      int64           `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// pipe implements the DevTools protocol over two pipes; messages end with a NUL.
// events receives the events in order, and must not wait for an answer.
type pipe struct {
	to       *os.File
	events   func(session, method string, params json.RawMessage)
	broken   func() // ends a browser that does not read its pipe
	patience time.Duration

	mu      sync.Mutex
	next    int64
	waiting map[int64]chan message
	done    chan struct{} // closed when listen has returned
}

func newPipe(to *os.File, broken func(), events func(session, method string, params json.RawMessage)) *pipe {
	return &pipe{
		to: to, broken: broken, patience: commandTimeout, events: events, waiting: make(map[int64]chan message),
		done: make(chan struct{}),
	}
}

// listen reads messages until the browser ends or sends malformed data, hands answers
// to their calls and events to events, and closes done.
func (p *pipe) listen(from io.Reader) {
	defer close(p.done)
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		text, err := readMessage(r)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text, &m) != nil {
			return
		}
		if m.ID == 0 {
			p.events(m.Session, m.Method, m.Params)
			continue
		}
		p.mu.Lock()
		ch := p.waiting[m.ID]
		delete(p.waiting, m.ID)
		p.mu.Unlock()
		if ch != nil {
			ch <- m
		}
	}
}

func readMessage(r *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := r.ReadSlice(0)
		if text = append(text, part...); len(text) > maxMessage {
			return nil, bufio.ErrTooLong
		}
		if err == nil {
			return text[:len(text)-1], nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// call sends a command to a session ("" is the browser), waits for its answer and
// decodes it into result unless that is nil. If the browser refuses the command, the
// error is a *refusal; if the browser is gone, errGone.
func (p *pipe) call(ctx context.Context, session, method string, params, result any) error {
	ch := make(chan message, 1)
	id, err := p.send(session, method, params, ch)
	if err != nil {
		return err
	}
	defer p.forget(id)
	select {
	case m := <-ch:
		if m.Error != nil {
			return &refusal{method, m.Error.Message}
		}
		if result == nil {
			return nil
		}
		if err := json.Unmarshal(m.Result, result); err != nil {
			return capability.Wrap(capability.CodeFailed, op, "the browser's answer cannot be read", err).With("execution_failed", "")
		}
		return nil
	case <-p.done:
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tell sends a command without waiting for its answer.
func (p *pipe) tell(session, method string, params any) { _, _ = p.send(session, method, params, nil) }

// send writes a command and returns its id. The answer will be sent to ch unless that is
// nil. If the write fails, send ends the browser and returns errGone.
func (p *pipe) send(session, method string, params any, ch chan message) (int64, error) {
	doc, err := json.Marshal(params)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next++
	text, err := json.Marshal(message{ID: p.next, Session: session, Method: method, Params: doc})
	if err != nil {
		return 0, err
	}
	if ch != nil {
		p.waiting[p.next] = ch
	}
	_ = p.to.SetWriteDeadline(time.Now().Add(p.patience)) // pipes support deadlines
	if _, err := p.to.Write(append(text, 0)); err != nil {
		delete(p.waiting, p.next)
		p.broken()
		return 0, errGone
	}
	return p.next, nil
}

func (p *pipe) forget(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, id)
}

// refusal is the error with which the browser answered a command.
type refusal struct{ method, text string }

func (r *refusal) Error() string { return r.method + ": " + r.text }
