package cast

import (
	"io"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// roomForEnd is the number of bytes reserved for the mark that ends a full recording.
const roomForEnd = 64

// Writer writes a recording for [Read], up to a size. It is safe for concurrent use. If the
// recording is full or its file fails, it ends and ignores further events.
type Writer struct {
	mu    sync.Mutex
	to    io.WriteCloser
	began time.Time
	last  time.Duration
	left  int    // bytes
	rest  []byte // incomplete character at the end of the output
	err   error
	over  bool
}

// NewWriter writes the header and returns a writer. cli is the program with its version, as in
// [Recording]. limit is in bytes, at most MaxFile. Close also closes to.
func NewWriter(to io.WriteCloser, began time.Time, cols, rows int, cli, note string, limit int) *Writer {
	w := &Writer{to: to, began: began, left: min(limit, MaxFile)}
	head, _ := jsonx.Marshal(header{Version: 1, Cols: cols, Rows: rows, CLI: cli, Note: note}) // plain values: it cannot fail
	w.line(head)
	return w
}

// Add adds an event. Output may be split within a character; the parts are joined again.
func (w *Writer) Add(at time.Time, kind Kind, data []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if kind == Output {
		data = append(w.rest, data...)
		whole := len(data)
		for i := 1; i <= min(utf8.UTFMax-1, len(data)); i++ {
			if begin := len(data) - i; utf8.RuneStart(data[begin]) {
				if !utf8.FullRune(data[begin:]) {
					whole = begin
				}
				break
			}
		}
		w.rest = append([]byte(nil), data[whole:]...)
		if data = data[:whole]; whole == 0 {
			return
		}
	}
	w.event(at, kind, data)
}

func (w *Writer) event(at time.Time, kind Kind, data []byte) {
	w.last = min(max(at.Sub(w.began), w.last), MaxEventDelay) // the clock may be set back
	line := append([]byte{'['}, strconv.FormatFloat(w.last.Seconds(), 'f', 6, 64)...)
	line = jsonx.AppendString(append(line, `,"`+string(kind)+`",`...), string(data))
	w.line(append(line, ']'))
}

// line writes one line, or ends the recording if the line does not fit. The caller holds mu.
func (w *Writer) line(line []byte) {
	if w.over {
		return
	}
	if len(line)+1 > w.left-roomForEnd || len(line) >= MaxLine {
		line, w.over = []byte("["+strconv.FormatFloat(w.last.Seconds(), 'f', 6, 64)+`,"m","end"]`), true
	}
	w.left -= len(line) + 1
	if _, err := w.to.Write(append(line, '\n')); err != nil {
		w.err, w.over = err, true
	}
}

// Close ends the recording and closes its file. It returns the first error of the file.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if err := w.to.Close(); w.err == nil {
		w.err = err
	}
	return w.err
}
