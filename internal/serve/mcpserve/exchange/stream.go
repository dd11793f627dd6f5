package exchange

import (
	"bytes"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// stream writes server-sent events. It opens with the first event, so that a call rejected at
// once still gets its status. After a failed write, the stream is not used again: the call
// decides when it is over, not the connection.
type stream struct {
	w      http.ResponseWriter
	events http.ResponseWriter // w while the credential stands
	rc     *http.ResponseController
	opened bool
	gone   bool // the client does not read
}

func (st *stream) open() {
	if st.opened {
		return
	}
	st.opened = true
	streamHeaders(st.w.Header())
	st.w.WriteHeader(http.StatusOK)
}

func streamHeaders(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
}

func (st *stream) event(data []byte) {
	st.open()
	out := make([]byte, 0, len(data)+32)
	out = append(out, "event: message\n"...)
	for {
		// Only white space between tokens can hold a line break.
		i := bytes.IndexAny(data, "\r\n")
		if i < 0 {
			break
		}
		out = append(append(append(out, "data: "...), data[:i]...), '\n')
		data = data[i+1:]
	}
	out = append(append(append(out, "data: "...), data...), "\n\n"...)
	st.write(out)
}

func (st *stream) comment() {
	st.open()
	st.write([]byte(": still here\n\n"))
}

func (st *stream) write(data []byte) {
	if st.gone {
		return
	}
	_ = st.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := st.events.Write(data)
	if err == nil {
		err = st.rc.Flush()
	}
	st.gone = err != nil
}

func (st *stream) end(id json.RawMessage, out Outcome, e mcpwire.Era) {
	switch {
	case !st.opened:
		WriteOutcome(st.w, id, out, e)
		return
	case out.Silent:
	case out.Fault != nil:
		st.event(mcpwire.AppendFault(nil, id, out.Fault))
	default:
		st.event(jsonrpc.AppendResult(nil, id, out.Result))
	}
	_ = st.rc.SetWriteDeadline(time.Time{})
}

// Beating is the ResponseWriter of a stream that the SDK writes. It adds the header that
// disables buffering in proxies, and a comment during silence. The SDK writes each event with
// one Write, so a comment never lands inside one.
type Beating struct {
	http.ResponseWriter
	rc     *http.ResponseController
	mu     sync.Mutex
	wrote  bool
	timer  *time.Timer
	closed bool
}

// NewBeating wraps w; [Beating.Stop] must be called before the handler returns.
func NewBeating(w http.ResponseWriter) *Beating {
	b := &Beating{ResponseWriter: w, rc: http.NewResponseController(w)}
	w.Header().Set("X-Accel-Buffering", "no")
	b.timer = time.AfterFunc(beatInterval, b.beat)
	return b
}

func (b *Beating) beat() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if b.wrote { // before the first event the status is still open
		_ = b.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := b.ResponseWriter.Write([]byte(": still here\n\n")); err == nil {
			_ = b.rc.Flush()
		}
	}
	b.timer.Reset(beatInterval)
}

// Stop ends the comments. It must be called before the handler returns.
func (b *Beating) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.timer.Stop()
	_ = b.rc.SetWriteDeadline(time.Time{})
}

func (b *Beating) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrHandlerTimeout
	}
	b.wrote = true
	_ = b.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	return b.ResponseWriter.Write(data)
}

// FlushError flushes between two writes.
func (b *Beating) FlushError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return http.ErrHandlerTimeout
	}
	return b.rc.Flush()
}

// Unwrap returns the wrapped ResponseWriter, for [http.ResponseController].
func (b *Beating) Unwrap() http.ResponseWriter { return b.ResponseWriter }
