package mcpclient

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

var errTooLarge = errors.New("the limit on its size is passed")

// event is one server-sent event. The reader does not retain data.
type event struct {
	name string
	data []byte
}

// events reads server-sent events (WHATWG HTML). It never buffers more than limit bytes.
type events struct {
	in     *bufio.Reader
	limit  int
	lastID string        // of the last event that had one: where to resume
	retry  time.Duration // the delay that the server requests before a resume
	waits  bool          // whether the server requested one
	begun  bool
}

func newEvents(r io.Reader, limit int) *events {
	return &events{in: bufio.NewReaderSize(r, 16<<10), limit: limit}
}

// next returns the next event that has data, or io.EOF at the end of the stream. An
// incomplete last event is dropped, as the standard requires.
func (e *events) next() (event, error) {
	var ev event
	var data []byte
	has, id := false, e.lastID
	for {
		line, err := e.line(e.limit - len(data))
		if err != nil {
			return event{}, err
		}
		if !e.begun {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
			e.begun = true
		}
		if len(line) == 0 {
			// Only now, so that an incomplete event is sent again after a resume.
			e.lastID = id
			if has && len(data) > 0 {
				ev.data = data
				return ev, nil
			}
			ev, has = event{}, false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if has {
				data = append(data, '\n')
			}
			data, has = append(data, value...), true
		case "event":
			ev.name = string(value[:min(len(value), 64)])
		case "id":
			if len(value) <= maxEventID && bytes.IndexByte(value, 0) < 0 {
				id = string(value)
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				e.retry, e.waits = min(time.Duration(ms)*time.Millisecond, maxRetryDelay), true
			}
		}
	}
}

// line reads up to a line break of either kind. The result is valid until the next read.
func (e *events) line(limit int) ([]byte, error) {
	var long []byte
	for {
		part, err := e.in.ReadSlice('\n')
		if err == nil && long == nil {
			long = part
		} else {
			long = append(long, part...)
		}
		// The field's name is not counted.
		if len(long) > limit+64 {
			return nil, errTooLarge
		}
		switch {
		case err == nil:
			return bytes.TrimSuffix(long[:len(long)-1], []byte("\r")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// isMessage reports whether the event contains a message of the protocol.
func (ev event) isMessage() bool { return ev.name == "" || strings.EqualFold(ev.name, "message") }
