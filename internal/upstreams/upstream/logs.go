package upstream

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/secret"
)

// The sources of lines in a log.
const (
	sourceErrors = "stderr"
	sourceOutput = "stdout" // a line that is not a message of the protocol
	sourceServer = "junctor"
)

// LogLine is a line in the log of an upstream. It contains no secrets.
type LogLine struct {
	Number uint64    `json:"number"` // counts from 1
	Time   time.Time `json:"time"`
	Source string    `json:"source"` // stderr, stdout or junctor
	Text   string    `json:"text"`
}

// LogPage is a part of a log, oldest line first. Dropped is the number of lines since the server
// started that are not stored any more.
type LogPage struct {
	Lines   []LogLine `json:"lines"`
	Dropped uint64    `json:"dropped"`
}

// outputLog holds the last lines of one upstream: what its programs wrote to standard error, what
// violated the protocol, and how its connections began and ended.
type outputLog struct {
	now func() time.Time

	mu      sync.Mutex
	lines   []LogLine
	bytes   int
	last    uint64
	dropped uint64
	// second, written and skipped bound the rate of lines.
	second  int64
	written int
	skipped int
}

// add appends a line, from which the caller has removed secrets.
func (l *outputLog) add(source, line string) {
	line = text.CutBytes(strings.TrimRight(ingest.Shown(line), " \t\r"), maxLogLine)
	if line == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now().UTC()
	if source != sourceServer {
		if second := now.Unix(); second != l.second {
			if l.skipped > 0 {
				l.append(now, sourceServer, strconv.Itoa(l.skipped)+" more lines within a second were not stored")
			}
			l.second, l.written, l.skipped = second, 0, 0
		}
		if l.written++; l.written > maxLinesASecond {
			l.skipped++
			l.dropped++
			return
		}
	}
	l.append(now, source, line)
}

// append stores a line and removes the oldest ones that exceed the limits. The caller holds mu.
func (l *outputLog) append(now time.Time, source, line string) {
	l.last++
	l.lines = append(l.lines, LogLine{l.last, now, source, line})
	l.bytes += len(line)
	old := 0
	for len(l.lines)-old > maxLogLines || l.bytes > maxLogBytes {
		l.bytes -= len(l.lines[old].Text)
		old++
	}
	l.dropped += uint64(old)
	l.lines = append(l.lines[:0], l.lines[old:]...)
}

// page returns the lines after a number, the last limit of them if limit is above 0.
func (l *outputLog) page(after uint64, limit int) LogPage {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := LogPage{Lines: []LogLine{}, Dropped: l.dropped}
	for _, line := range l.lines {
		if line.Number > after {
			p.Lines = append(p.Lines, line)
		}
	}
	if limit > 0 && len(p.Lines) > limit {
		p.Lines = p.Lines[len(p.Lines)-limit:]
	}
	return p
}

// Logs returns the lines of an upstream's log after a number, the last limit of them. They include
// those of an attempt to add it. Error: not_found.
func (r *Registry) Logs(name string, after uint64, limit int) (LogPage, error) {
	r.mu.Lock()
	l := r.logs[name]
	r.mu.Unlock()
	if l == nil {
		_, err := r.get(name)
		return LogPage{Lines: []LogLine{}}, err
	}
	return l.page(after, limit), nil
}

// logOf returns the log of a name, which it creates. It removes those of names that are neither
// added nor being added, so that the last failed attempt can still be read.
func (r *Registry) logOf(name string) *outputLog {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logs[name] == nil {
		for other := range r.logs {
			if r.upstreams[other] == nil && !r.adding[other] {
				delete(r.logs, other)
			}
		}
		r.logs[name] = &outputLog{now: r.cfg.Now}
	}
	return r.logs[name]
}

// masker removes the secrets of one connection from text. A secret of several lines is removed from
// each of its lines.
type masker struct {
	known  *strings.Replacer
	values []string
}

// masker returns the masker for the secrets of the record, and of an owner of a connection.
func (u *upstream) masker(owner string) *masker {
	m := new(masker)
	var pairs []string
	add := func(value, name string) {
		if len(value) >= minMasked {
			m.values = append(m.values, value)
			pairs = append(pairs, value, "[secret "+name+"]")
		}
	}
	for _, name := range u.record.Secrets() {
		for _, of := range []string{"", owner} {
			value, err := u.secret(of, name)
			if err != nil {
				continue
			}
			add(value, name)
			if strings.Contains(strings.TrimSpace(value), "\n") {
				for line := range strings.Lines(value) {
					if line = strings.TrimSpace(line); len(line) >= 2*minMasked {
						add(line, name)
					}
				}
			}
		}
	}
	m.known = strings.NewReplacer(pairs...)
	return m
}

// mask returns text without secrets.
func (m *masker) mask(s string) string { return secret.MaskTokens(m.known.Replace(s)) }

// cut masks the beginning of a longer text, which may end within a secret.
func (m *masker) cut(s string) string {
	for _, value := range m.values {
		for n := min(len(value)-1, len(s)); n >= minMasked; n-- {
			if strings.HasSuffix(s, value[:n]) {
				s = s[:len(s)-n]
				break
			}
		}
	}
	return m.mask(s)
}

// outputWriter splits the error output of a program into lines of a log. It is used by one
// goroutine at a time, except for flush.
type outputWriter struct {
	log  *outputLog
	mask *masker

	mu   sync.Mutex
	line []byte
	cut  bool // the line is longer than maxRawLine
}

// Write implements io.Writer.
func (w *outputWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	size := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end]
		}
		if room := maxRawLine - len(w.line); len(part) > room {
			part, w.cut = part[:room], true
		}
		w.line = append(w.line, part...)
		if end < 0 {
			break
		}
		w.end()
		p = p[end+1:]
	}
	return size, nil
}

// end stores the line. The caller holds mu.
func (w *outputWriter) end() {
	mask := w.mask.mask
	if w.cut {
		mask = w.mask.cut
	}
	w.log.add(sourceErrors, mask(string(w.line)))
	w.line, w.cut = w.line[:0], false
}

// flush stores a line that has not ended.
func (w *outputWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
}

// unreadable stores a line of standard output that is not a message.
func (w *outputWriter) unreadable(line []byte) {
	if len(line) > maxRawLine {
		w.log.add(sourceOutput, w.mask.cut(string(line[:maxRawLine])))
		return
	}
	w.log.add(sourceOutput, w.mask.mask(string(line)))
}

// logHandler is a slog.Handler that also writes to an upstream's log.
type logHandler struct {
	slog.Handler
	log  *outputLog
	mask *masker
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		line := r.Message
		r.Attrs(func(a slog.Attr) bool {
			if a.Key != "server" && a.Value.String() != "<nil>" {
				line += " " + a.Key + "=" + a.Value.String()
			}
			return true
		})
		h.log.add(sourceServer, h.mask.mask(line))
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// note stores a line about the upstream itself.
func (u *upstream) note(line string) { u.log.add(sourceServer, u.masker("").mask(line)) }

// noteFailure stores why a connection failed, with the cause for operators.
func (u *upstream) noteFailure(err error) {
	e := capability.AsError(err)
	line := "not connected: " + e.Message
	if e.Err != nil && !strings.Contains(e.Message, e.Err.Error()) {
		line += " (" + e.Err.Error() + ")"
	}
	u.note(line)
}
