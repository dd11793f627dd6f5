package mcpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

const (
	beatEvery     = 15 * time.Second       // a comment on a quiet stream
	progressEvery = 100 * time.Millisecond // ten notices a second at most
	writeWithin   = 30 * time.Second       // a client that takes nothing in is gone
)

// answerCall runs a call and answers it: as JSON, or, where the client sent a
// progress token, as a stream of progress notices that ends with the response.
func (s *Surface) answerCall(ctx context.Context, w http.ResponseWriter, r *http.Request, c caller, m *message, e era) {
	token := m.params.meta.progress
	if token == nil || !acceptsStream(r) {
		out := s.call(ctx, c, &m.params, e, nil)
		writeOutcome(w, m.id, out, e)
		return
	}
	latest := &slot{ready: make(chan struct{}, 1)}
	done := make(chan outcome, 1)
	go func() { done <- s.call(ctx, c, &m.params, e, latest.put) }()
	// This goroutine is the only one that writes, and it ends with the call.
	st := &stream{w: w, rc: http.NewResponseController(w)}
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	ready := latest.ready
	for {
		select {
		case out := <-done:
			st.end(m.id, out, e)
			return
		case <-ready:
			if chunk, ok := latest.take(); ok {
				if chunk.Stage != "" {
					continue // progress has to grow
				}
				st.event(appendProgress(nil, token, chunk))
			}
			ready = nil
			pause.Reset(progressEvery)
		case <-pause.C:
			ready = latest.ready
		case <-beat.C:
			st.comment()
		}
	}
}

func acceptsStream(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accept, "text/event-stream") || strings.Contains(accept, "*/*") || strings.Contains(accept, "text/*")
}

// writeOutcome answers without a stream.
func writeOutcome(w http.ResponseWriter, id json.RawMessage, out outcome, e era) {
	switch {
	case out.silent:
		// A stream that ends without an event is the one answer in which nothing is
		// sent; a status alone would make some clients give up the session.
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
	case out.fault != nil:
		f := *out.fault
		if !e.modern {
			f.status = http.StatusOK
		}
		writeFault(w, id, &f)
	default:
		writeJSON(w, http.StatusOK, appendResponse(make([]byte, 0, len(out.result)+len(id)+64), id, out.result))
	}
}

// slot holds the newest progress notice that has not been sent.
type slot struct {
	ready chan struct{}
	mu    sync.Mutex
	chunk capability.Chunk
	full  bool
}

func (l *slot) put(c capability.Chunk) {
	l.mu.Lock()
	l.chunk, l.full = c, true
	l.mu.Unlock()
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

func (l *slot) take() (capability.Chunk, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ok := l.full
	l.full = false
	return l.chunk, ok
}

func appendProgress(dst []byte, token json.RawMessage, c capability.Chunk) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`...)
	dst = append(dst, token...)
	dst = append(dst, `,"progress":`...)
	dst = strconv.AppendFloat(dst, c.Progress, 'g', -1, 64)
	if c.Total > 0 {
		dst = append(dst, `,"total":`...)
		dst = strconv.AppendFloat(dst, c.Total, 'g', -1, 64)
	}
	if c.Message != "" {
		dst = append(dst, `,"message":`...)
		dst = appendString(dst, c.Message)
	}
	return append(dst, "}}"...)
}

// stream writes server-sent events. It opens with the first thing to say, so
// that a call refused at once still gets its status. Write errors are dropped:
// the call decides when it is over, not the connection.
type stream struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	opened bool
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
	_ = st.rc.SetWriteDeadline(time.Now().Add(writeWithin))
	if _, err := st.w.Write(data); err == nil {
		_ = st.rc.Flush()
	}
}

func (st *stream) end(id json.RawMessage, out outcome, e era) {
	switch {
	case !st.opened && (out.silent || out.fault != nil):
		writeOutcome(st.w, id, out, e)
	case out.silent:
	case out.fault != nil:
		st.event(appendFault(nil, id, out.fault))
	default:
		st.event(appendResponse(nil, id, out.result))
	}
	_ = st.rc.SetWriteDeadline(time.Time{})
}

// beating is the answer of a stream that the SDK writes: it adds the header that
// keeps proxies from buffering and a comment when nothing else is said. The SDK
// writes each event with one Write, so a comment never lands inside one.
type beating struct {
	http.ResponseWriter
	rc     *http.ResponseController
	mu     sync.Mutex
	wrote  bool
	timer  *time.Timer
	closed bool
}

func newBeating(w http.ResponseWriter) *beating {
	b := &beating{ResponseWriter: w, rc: http.NewResponseController(w)}
	w.Header().Set("X-Accel-Buffering", "no")
	b.timer = time.AfterFunc(beatEvery, b.beat)
	return b
}

func (b *beating) beat() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	if b.wrote { // before the first event the status is still open
		_ = b.rc.SetWriteDeadline(time.Now().Add(writeWithin))
		if _, err := b.ResponseWriter.Write([]byte(": still here\n\n")); err == nil {
			_ = b.rc.Flush()
		}
	}
	b.timer.Reset(beatEvery)
}

// stop must be called before the handler returns.
func (b *beating) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.timer.Stop()
	_ = b.rc.SetWriteDeadline(time.Time{})
}

func (b *beating) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrHandlerTimeout
	}
	b.wrote = true
	_ = b.rc.SetWriteDeadline(time.Now().Add(writeWithin))
	return b.ResponseWriter.Write(data)
}

// FlushError makes flushing wait its turn.
func (b *beating) FlushError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return http.ErrHandlerTimeout
	}
	return b.rc.Flush()
}

// Unwrap gives the rest of the connection's abilities.
func (b *beating) Unwrap() http.ResponseWriter { return b.ResponseWriter }
