// Package exchange writes the answer to one MCP request: JSON, or a stream of events if
// there are messages before the end. It bounds the unread messages of a slow client, limits
// the rate of progress notices, and sends the comments that keep a quiet stream open.
package exchange

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// Outcome is the end of a call; exactly one of its members is set.
type Outcome struct {
	Result []byte
	Fault  *mcpwire.Fault
	Silent bool // the client cancelled the call: nothing more is sent
	// Narrow is the effect that the access token does not cover, if that caused the fault.
	Narrow capability.Effect
}

// Exchange is the answer to one request during its creation. It is JSON, unless there are messages
// before the end or the end takes long; then it is a stream of events whose last one is the
// response. A separate goroutine writes the events, starts with the first one and ends before the
// response, because a provider may send from any goroutine and must never wait for a client.
type Exchange struct {
	id       json.RawMessage
	Era      mcpwire.Era
	Streams  bool            // the client accepts events
	token    json.RawMessage // of progress; nil if the client has not requested it
	Logs     bool            // the client requests the provider's log,
	Severity int             // from this severity on
	Ask      capability.Asker
	Relay    *capability.Relay

	st   stream        // the writer's while there is one, then end's
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	unread  [][]byte
	bytes   int           // of unread, including the one being written
	writer  chan struct{} // closed when the writer has ended; nil before the first event
	over    bool
	beat    *time.Timer
	pause   *time.Timer // runs until progress may be sent again
	since   time.Time   // the first notice of the latest ones that count together,
	sent    int         // and how many they are
	latest  capability.Chunk
	waiting bool // latest has not been sent
}

// New returns the exchange that answers m in the protocol revisions of era e. If the client accepts a
// stream, it starts the timer that keeps a quiet stream open, so that the caller must call
// [Exchange.End]; otherwise the answer is JSON, and progress is not reported.
func New(w http.ResponseWriter, r *http.Request, m *mcpwire.Message, e mcpwire.Era) *Exchange {
	x := &Exchange{
		id: m.ID, Era: e, token: m.Params.Meta.Progress, Streams: acceptsStream(r),
		st: stream{w: w, events: httpapi.While(w, r), rc: http.NewResponseController(w)}, wake: make(chan struct{}, 1),
	}
	if x.Streams {
		x.beat = time.AfterFunc(beatInterval, x.beats)
	} else {
		x.token = nil
	}
	return x
}

func acceptsStream(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accept, "text/event-stream") || strings.Contains(accept, "*/*") || strings.Contains(accept, "text/*")
}

// ProgressFunc returns the function that the engine calls with the provider's progress and log, or
// nil if the client has not requested them.
func (x *Exchange) ProgressFunc() func(capability.Chunk) {
	if x.token == nil && !x.Logs {
		return nil
	}
	return x.SendChunk
}

// SendChunk sends a provider's chunk to the client before the result.
func (x *Exchange) SendChunk(c capability.Chunk) {
	switch {
	case c.Stage == capability.StageLog:
		if x.Logs && severityOf(c.Data) >= x.Severity {
			x.Event(jsonrpc.AppendRequest(nil, nil, "notifications/message", c.Data))
		}
	case c.Stage == "" && x.token != nil:
		x.progress(c)
	}
}

// progress sends the notice, or stores the newest until the next may be sent.
func (x *Exchange) progress(c capability.Chunk) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.latest = c
	if !x.waiting {
		x.waiting = true
		x.sendProgress()
	}
}

// sendProgress requires that the caller holds the lock.
func (x *Exchange) sendProgress() {
	now := time.Now()
	if now.Sub(x.since) >= progressInterval {
		x.since, x.sent = now, 0
	}
	if x.sent < MaxProgress && len(x.unread) < MaxProgress {
		x.sent++
		x.waiting = false
		x.push(progressNotice(x.token, x.latest))
		return
	}
	if x.pause == nil {
		x.pause = time.AfterFunc(x.since.Add(progressInterval).Sub(now), x.paused)
	} else {
		x.pause.Reset(max(x.since.Add(progressInterval).Sub(now), progressInterval/MaxProgress))
	}
}

func (x *Exchange) paused() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.waiting && !x.over {
		x.sendProgress()
	}
}

// Event sends one message before the response. It returns false if it cannot be sent.
func (x *Exchange) Event(data []byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.push(data)
}

// push queues a message; nil is a comment. The caller holds the lock.
func (x *Exchange) push(data []byte) bool {
	if x.over || !x.Streams || len(x.unread) >= maxUnread || x.bytes > 0 && x.bytes+len(data) > MaxUnreadBytes {
		return false
	}
	x.bytes += len(data)
	x.unread = append(x.unread, data)
	if x.writer == nil {
		x.writer = make(chan struct{})
		go x.write()
	}
	x.rouse()
	return true
}

func (x *Exchange) rouse() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// write sends the queued messages until the exchange is over; it is the writer goroutine.
func (x *Exchange) write() {
	defer close(x.writer)
	written := 0
	for {
		x.mu.Lock()
		next, over := x.unread, x.over
		x.unread = nil
		x.bytes -= written
		x.mu.Unlock()
		written = 0
		for _, data := range next {
			if data == nil {
				x.st.comment()
			} else {
				written += len(data)
				x.st.event(data)
			}
		}
		switch {
		case len(next) > 0:
		case over:
			return
		default:
			<-x.wake
		}
	}
}

func (x *Exchange) beats() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.over {
		x.push(nil)
		x.beat.Reset(beatInterval)
	}
}

// End sends the response; nothing is written afterwards.
func (x *Exchange) End(out Outcome) {
	x.mu.Lock()
	if x.waiting {
		x.push(progressNotice(x.token, x.latest)) // so that the client receives the final progress
	}
	x.over = true
	if x.beat != nil {
		x.beat.Stop()
	}
	if x.pause != nil {
		x.pause.Stop()
	}
	writer := x.writer
	x.mu.Unlock()
	if writer != nil {
		x.rouse()
		<-writer
	}
	x.st.end(x.id, out, x.Era)
}

// Severities returns the levels of RFC 5424 for logging, the lowest first.
func Severities() []string {
	return []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
}

// severityOf returns the severity of the params of notifications/message. An unknown one
// counts as the highest, so that it is not lost.
func severityOf(params json.RawMessage) int {
	level, _ := jsonx.Text(mcpwire.At(params, []string{"level"}))
	if i := slices.Index(Severities(), level); i >= 0 {
		return i
	}
	return len(Severities())
}

func progressNotice(token json.RawMessage, c capability.Chunk) []byte {
	dst := append([]byte(`{"progressToken":`), token...)
	dst = appendNumber(append(dst, `,"progress":`...), c.Progress, c.Literals[0])
	if c.Total > 0 || c.Literals[1] != "" {
		dst = appendNumber(append(dst, `,"total":`...), c.Total, c.Literals[1])
	}
	if c.Message != "" {
		dst = append(dst, `,"message":`...)
		dst = jsonx.AppendString(dst, c.Message)
	}
	return jsonrpc.AppendRequest(nil, nil, "notifications/progress", append(dst, '}'))
}

func appendNumber(dst []byte, n float64, literal string) []byte {
	if literal != "" {
		return append(dst, literal...)
	}
	return strconv.AppendFloat(dst, n, 'g', -1, 64)
}

// WriteFault writes a fault and its status; id is nil if it was not readable.
func WriteFault(w http.ResponseWriter, id json.RawMessage, f *mcpwire.Fault) {
	writeJSON(w, f.Status, mcpwire.AppendFault(nil, id, f))
}

func writeJSON(w http.ResponseWriter, status int, data []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// WriteOutcome writes an outcome without a stream.
func WriteOutcome(w http.ResponseWriter, id json.RawMessage, out Outcome, e mcpwire.Era) {
	switch {
	case out.Silent:
		// A stream that ends without an event is the one answer in which nothing is
		// sent; a status alone would make some clients give up the session.
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
	case out.Fault != nil:
		f := *out.Fault
		if !e.Modern && out.Narrow == "" {
			f.Status = http.StatusOK
		}
		WriteFault(w, id, &f)
	default:
		writeJSON(w, http.StatusOK, jsonrpc.AppendResult(make([]byte, 0, len(out.Result)+len(id)+64), id, out.Result))
	}
}
