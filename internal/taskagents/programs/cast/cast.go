// Package cast reads and writes recordings of terminal sessions in junctor's format and in that
// of asciicast 2: a header line, then one event on each line. Reading is strict and bounded,
// because recordings may come from other users.
package cast

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Kind is the kind of an event.
type Kind string

// The kinds of events.
const (
	Output Kind = "o" // output of the program
	Input  Kind = "i" // input to the program
	Mark   Kind = "m" // a note: the state from here on, or "end"
	Resize Kind = "r" // "120x40"
)

// Event is one line of a recording.
type Event struct {
	At   time.Duration // since its start
	Kind Kind
	Data string
}

// Recording is the content of one file.
type Recording struct {
	Cols, Rows int
	CLI        string // program and version, "Claude Code 2.1.197"; may be empty
	Note       string // may be empty
	Events     []Event
}

// header holds the members of the first line that are read; others are ignored.
type header struct {
	Version int    `json:"version"`
	Cols    int    `json:"cols"`
	Rows    int    `json:"rows"`
	Width   int    `json:"width,omitzero"`
	Height  int    `json:"height,omitzero"`
	CLI     string `json:"cli"`
	Note    string `json:"note,omitzero"`
	Title   string `json:"title,omitzero"`
}

// Read reads a whole recording. Its errors name the line.
func Read(r io.Reader) (*Recording, error) {
	lines := bufio.NewScanner(io.LimitReader(r, MaxFile+1))
	lines.Buffer(make([]byte, 64<<10), MaxLine)
	var rec *Recording
	size := 0
	for n := 1; lines.Scan(); n++ {
		line := lines.Bytes()
		if size += len(line) + 1; size > MaxFile {
			return nil, capability.Errorf(capability.CodeTooLarge, "cast.read", "the recording has more than %d MiB", MaxFile>>20)
		}
		var err error
		switch {
		case n == 1:
			rec, err = readHeader(line)
		case len(strings.TrimSpace(string(line))) == 0:
		case len(rec.Events) == MaxEvents:
			err = errors.New("there are more than " + strconv.Itoa(MaxEvents) + " events")
		default:
			var e Event
			if e, err = readEvent(line); err == nil && len(rec.Events) > 0 && e.At < rec.Events[len(rec.Events)-1].At {
				err = errors.New("its time lies before that of the event above")
			}
			rec.Events = append(rec.Events, e)
		}
		if err != nil {
			return nil, capability.Errorf(capability.CodeInvalidInput, "cast.read", "line %d of the recording: %s", n, err.Error())
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, capability.Errorf(capability.CodeTooLarge, "cast.read", "a line of the recording has more than %d MiB", MaxLine>>20)
	case err != nil:
		return nil, capability.Wrap(capability.CodeFailed, "cast.read", "the recording cannot be read", err)
	case rec == nil:
		return nil, capability.Errorf(capability.CodeInvalidInput, "cast.read", "the recording is empty").With("",
			"its first line is a header: {\"version\":1,\"cols\":120,\"rows\":40}")
	}
	return rec, nil
}

func readHeader(line []byte) (*Recording, error) {
	var h header
	if err := jsonx.Unmarshal(line, &h); err != nil {
		return nil, errors.New("it must be a header, a JSON object: " + err.Error())
	}
	rec := &Recording{Cols: h.Cols, Rows: h.Rows, CLI: h.CLI, Note: h.Note}
	switch {
	case h.Version == 2:
		rec.Cols, rec.Rows = h.Width, h.Height
	case h.Version != 1:
		return nil, errors.New("version is " + strconv.Itoa(h.Version) + " and must be 1 or 2")
	}
	if rec.Note == "" {
		rec.Note = h.Title
	}
	if rec.Cols < 1 || rec.Rows < 1 || rec.Cols > maxSide || rec.Rows > maxSide {
		return nil, errors.New("the size of the terminal must be from 1 to 1000 columns and rows")
	}
	return rec, nil
}

func readEvent(line []byte) (e Event, err error) {
	if !jsonx.Valid(line) {
		return e, errors.New("it is not JSON")
	}
	bad := errors.New("it must be [seconds, kind, data]: a number and two strings")
	n := 0
	err = jsonx.Elements(line, func(value []byte) error {
		n++
		var ok bool
		switch n {
		case 1:
			seconds, err := strconv.ParseFloat(string(value), 64)
			if err != nil || !(seconds >= 0 && seconds <= MaxEventDelay.Seconds()) {
				return errors.New("its time must be a number of seconds, from 0 to a week")
			}
			e.At = time.Duration(seconds * float64(time.Second)).Round(time.Microsecond)
			return nil
		case 2:
			var kind string
			kind, ok = jsonx.Text(value)
			e.Kind = Kind(kind)
		case 3:
			e.Data, ok = jsonx.Text(value)
		}
		if !ok {
			return bad
		}
		return nil
	})
	switch {
	case err != nil:
		return e, err
	case n != 3:
		return e, bad
	}
	switch e.Kind {
	case Output, Input, Mark:
	case Resize:
		if _, _, ok := e.Size(); !ok {
			return e, errors.New("a size is written like 120x40, up to 1000x1000")
		}
	default:
		return e, errors.New("its kind must be o, i, m or r")
	}
	return e, nil
}

// Size parses the size in a resize event. ok is false if it is malformed or too large.
func (e Event) Size() (cols, rows int, ok bool) {
	left, right, found := strings.Cut(e.Data, "x")
	cols, err := strconv.Atoi(left)
	rows, err2 := strconv.Atoi(right)
	return cols, rows, found && err == nil && err2 == nil && min(cols, rows) >= 1 && max(cols, rows) <= maxSide
}
