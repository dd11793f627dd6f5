package mcpserve

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/internal/surface/mcpserve/mcpwire"
)

const (
	beatEvery     = 15 * time.Second // a comment on a quiet stream
	progressMost  = 10               // notices in
	progressEvery = time.Second      // this time; then only the newest counts
	writeWithin   = 30 * time.Second // a client that takes nothing in is gone
)

// What a client that reads slowly may leave unread of one stream: messages, and their
// bytes, of which one message may have more.
const (
	maxUnread      = 256
	maxUnreadBytes = 2 << 20
)

// exchange is the answer to one request while it is being made. It is JSON, unless
// there is something to say before the end, or the end is long in coming: then it
// is a stream of events whose last one is the response. Events are written by a
// goroutine of their own, which begins with the first and ends before the response:
// what a provider says may come from any goroutine, and must never wait for a
// client.
type exchange struct {
	id       json.RawMessage
	era      mcpwire.Era
	token    json.RawMessage // of progress, nil: none is wanted
	logs     bool            // the provider's log is wanted,
	severity int             // from this severity on
	ask      capability.Asker
	relay    *capability.Relay

	st   stream        // the writer's while there is one, then end's
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	unread  [][]byte
	bytes   int           // of unread, and of what is being written
	writer  chan struct{} // closed when the writer has ended; nil before the first event
	streams bool          // the client takes events
	over    bool
	beat    *time.Timer
	pause   *time.Timer // runs until progress may be sent again
	since   time.Time   // the first notice of the latest ones that count together,
	sent    int         // and how many they are
	latest  capability.Chunk
	waiting bool // latest has not been sent
}

func newExchange(w http.ResponseWriter, r *http.Request, m *mcpwire.Message, e mcpwire.Era) *exchange {
	x := &exchange{
		id: m.ID, era: e, token: m.Params.Meta.Progress, streams: acceptsStream(r),
		st: stream{w: w, rc: http.NewResponseController(w)}, wake: make(chan struct{}, 1),
	}
	if x.streams {
		x.beat = time.AfterFunc(beatEvery, x.beats)
	} else {
		x.token = nil
	}
	return x
}

func acceptsStream(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accept, "text/event-stream") || strings.Contains(accept, "*/*") || strings.Contains(accept, "text/*")
}

// hears is what the engine is to call with the provider's progress and log; nil
// where nobody would hear it.
func (x *exchange) hears() func(capability.Chunk) {
	if x.token == nil && !x.logs {
		return nil
	}
	return x.heard
}

func (x *exchange) heard(c capability.Chunk) {
	switch {
	case c.Stage == capability.StageLog:
		if x.logs && severityOf(c.Data) >= x.severity {
			x.event(appendNotice(nil, "notifications/message", c.Data))
		}
	case c.Stage == "" && x.token != nil:
		x.progress(c)
	}
}

// progress sends the notice, or keeps the newest until the next may be sent.
func (x *exchange) progress(c capability.Chunk) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.latest = c
	if !x.waiting {
		x.waiting = true
		x.sendProgress()
	}
}

// sendProgress wants the lock to be held.
func (x *exchange) sendProgress() {
	now := time.Now()
	if now.Sub(x.since) >= progressEvery {
		x.since, x.sent = now, 0
	}
	if x.sent < progressMost && len(x.unread) < progressMost {
		x.sent++
		x.waiting = false
		x.push(appendProgress(nil, x.token, x.latest))
		return
	}
	if x.pause == nil {
		x.pause = time.AfterFunc(x.since.Add(progressEvery).Sub(now), x.paused)
	} else {
		x.pause.Reset(max(x.since.Add(progressEvery).Sub(now), progressEvery/progressMost))
	}
}

func (x *exchange) paused() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.waiting && !x.over {
		x.sendProgress()
	}
}

// event sends one message before the response; false when it cannot be sent.
func (x *exchange) event(data []byte) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.push(data)
}

// push wants the lock to be held. A nil message is a comment.
func (x *exchange) push(data []byte) bool {
	if x.over || !x.streams || len(x.unread) >= maxUnread || x.bytes > 0 && x.bytes+len(data) > maxUnreadBytes {
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

func (x *exchange) rouse() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func (x *exchange) write() {
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

func (x *exchange) beats() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.over {
		x.push(nil)
		x.beat.Reset(beatEvery)
	}
}

// end sends the response; nothing is written afterwards.
func (x *exchange) end(out outcome) {
	x.mu.Lock()
	if x.waiting {
		x.push(appendProgress(nil, x.token, x.latest)) // the last one tells how far it came
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
	x.st.end(x.id, out, x.era)
}

func appendNotice(dst []byte, method string, params json.RawMessage) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":`...)
	dst = jsonx.AppendString(dst, method)
	if len(params) > 0 {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
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
		dst = jsonx.AppendString(dst, c.Message)
	}
	return append(dst, "}}"...)
}

// writeOutcome answers without a stream.
func writeOutcome(w http.ResponseWriter, id json.RawMessage, out outcome, e mcpwire.Era) {
	switch {
	case out.silent:
		// A stream that ends without an event is the one answer in which nothing is
		// sent; a status alone would make some clients give up the session.
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
	case out.fault != nil:
		f := *out.fault
		if !e.Modern && out.narrow == "" {
			f.Status = http.StatusOK
		}
		mcpwire.WriteFault(w, id, &f)
	default:
		mcpwire.WriteJSON(w, http.StatusOK, mcpwire.AppendResponse(make([]byte, 0, len(out.result)+len(id)+64), id, out.result))
	}
}
