package structured

import (
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/structured/dialect"
)

// ID returns the session's id.
func (s *Session) ID() string { return s.spec.ID }

// Info returns the present state of the session. It has no size because it has no terminal.
func (s *Session) Info() sessions.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.info
	i.Queued = s.x.Waiting()
	return s.spec.Mask.Info(i)
}

// Explain returns why the session is in its state: the last report of its program.
func (s *Session) Explain() detect.Explanation {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	age, quiet := now.Sub(s.moved), now.Sub(s.info.LastActivity)
	evidence := slices.Clone(s.why.Evidence)
	for i := range evidence {
		evidence[i].AgeMS = age.Milliseconds()
	}
	return s.spec.Mask.Explanation(detect.Explanation{
		Status: s.status, Word: s.status.Word(), SinceMS: age.Milliseconds(), Cause: s.why.Cause, Evidence: evidence, Rules: []detect.Explained{},
		RuleFile: "none: the program tells its state itself", QuietMS: quiet.Milliseconds(), Quiet: quiet >= quietTimeout,
	})
}

// Console returns the conversation as text for a terminal from an offset on, and the offset after
// it. The events of type output have the same text.
func (s *Session) Console(since uint64) (data []byte, next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.ring.From(since)
}

// Snapshot returns the stored part of the conversation as text for a terminal.
func (s *Session) Snapshot() sessions.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, next := s.view.ring.From(0)
	return sessions.Snapshot{Cols: sessions.Cols, Rows: sessions.Rows, Data: append([]byte("\x1b[H\x1b[2J\x1b[3J"), data...), Offset: next}
}

// Counts returns the numbers of received lines and faults so far.
func (s *Session) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Lines returns the last n lines of the conversation, at most a thousand. A line begins with > for
// a text to the agent, * for a tool, ? for a question, = for its answer and ! for a warning; other
// lines are the agent's text.
func (s *Session) Lines(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.spec.Mask.Lines(slices.Clone(s.view.all()))
	return list[max(0, len(list)-max(n, 0)):]
}

// view holds the end of a conversation as plain text.
type view struct {
	lines []string
	size  int // bytes of lines
	open  string
	more  bool          // open is an incomplete line
	ring  sessions.Ring // the text of output events
}

func (v *view) add(line string) {
	for {
		part := text.ClipBytes(line, maxShownLine)
		v.lines = append(v.lines, part)
		v.size += len(part) + 1
		if len(line) <= maxShownLine {
			break
		}
		line = strings.ToValidUTF8(line[maxShownLine:], "")
	}
	drop := 0
	for len(v.lines)-drop > maxLines || v.size > maxShown {
		v.size -= len(v.lines[drop]) + 1
		drop++
	}
	v.lines = v.lines[drop:]
}

// end completes the open line.
func (v *view) end() {
	if v.more {
		v.add(v.open)
		v.open, v.more = "", false
	}
}

// part adds a piece of the agent's text.
func (v *view) part(text string) {
	v.open += text
	v.more = true
	for {
		line, rest, found := strings.Cut(v.open, "\n")
		if !found && len(v.open) <= maxShownLine {
			return
		}
		if !found {
			line, rest = v.open, ""
		}
		v.add(line)
		v.open, v.more = rest, rest != ""
		if rest == "" {
			return
		}
	}
}

func (v *view) all() []string {
	if v.more {
		return append(v.lines[:len(v.lines):len(v.lines)], v.open)
	}
	return v.lines
}

func (v *view) tail(n int) string {
	list := v.all()
	return strings.Join(list[max(0, len(list)-n):], "\n")
}

// print adds a complete text to the conversation. The caller holds mu.
func (s *Session) print(text string) {
	lead := ""
	if s.view.more {
		lead = "\n"
		s.view.end()
	}
	text = strings.TrimRight(plain(text), "\n")
	s.view.part(text + "\n")
	s.shown(lead + text + "\n")
}

// say adds text of the agent; more reports that it is part of a message. The caller holds mu.
func (s *Session) say(text string, more bool) {
	if !more {
		s.print(text)
		return
	}
	text = plain(text)
	s.view.part(text)
	s.shown(text)
}

// shown reports text as an output event, with the line ends of a terminal.
func (s *Session) shown(text string) {
	data := []byte(strings.ReplaceAll(text, "\n", "\r\n"))
	offset := s.view.ring.Add(data)
	if s.cfg.Tell != nil {
		s.cfg.Tell(sessions.Event{Session: s.spec.ID, Seq: s.info.Seq, Type: sessions.Output, At: time.Now(), Data: data, Offset: offset})
	}
}

// questions returns all questions without answer. The caller holds mu.
func (s *Session) questions() (list []*dialect.Question) {
	for _, p := range s.open {
		list = append(list, p.Question)
	}
	return list
}
