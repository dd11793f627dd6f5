package sessions

import (
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// ID returns the session's id.
func (s *Session) ID() string { return s.spec.ID }

// Info returns the current state of the session.
func (s *Session) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.info
	i.Queued, i.Control = s.x.Waiting(), !s.taken.IsZero()
	return s.spec.Mask.Info(i)
}

// Fact applies a fact that a hook or a structured protocol reported. response is the last message
// of a completed turn, and token the program's id of the conversation; either may be "". It does
// nothing after the program has ended.
func (s *Session) Fact(f detect.Fact, response, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return
	}
	if token != "" {
		s.info.ResumeToken = token
	}
	if f.Begin {
		s.submits++
	}
	now := time.Now()
	s.info.LastActivity = now
	if f.State == detect.Ready && f.Phase == "" && s.info.Status == detect.Ready {
		return // the state is known, with more detail about the last turn
	}
	late := s.detector.Fact(now, f)
	if response != "" && !late {
		source := "hook"
		if f.Class == 1 {
			source = "structured"
		}
		s.result = result{response, source}
	}
	s.moved(s.detector.Tick(now))
	s.x.Notify()
	poke(s.wake)
}

// Spend sets the usage of the session so far, and reports what has been added. The event is sent after
// the end of the session too.
func (s *Session) Spend(u programs.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, more := s.info.Spend(u); more {
		s.emit(e)
	}
}

// Spend sets i.Usage and returns the event that reports the change. more is false if nothing changed.
func (i *Info) Spend(u programs.Usage) (e Event, more bool) {
	was := programs.Usage{}
	if i.Usage != nil {
		was = *i.Usage
	}
	if u = u.Max(was); u == was {
		return e, false
	}
	i.Usage = &u
	return Event{Type: Used, Usage: &u, More: u.Minus(was)}, true
}

// By is who has refused a tool call.
type By string

// The values of By.
const (
	ByPreset  By = "preset"  // the preset and the rules of package permit
	ByAnswer  By = "answer"  // an answer to the question
	ByProgram By = "program" // the program, what the preset allows
	Unasked   By = "unasked" // the program or junctor, what the preset asks about: the turn is not done
)

// Refusal is a tool call that was refused.
type Refusal struct {
	Tool string `json:"tool"`
	What string `json:"what,omitempty"` // the beginning of the command, or the files
	By   By     `json:"by"`
}

// Refuse adds a refused tool call to the session and reports it.
func (s *Session) Refuse(r Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emit(s.info.Refuse(r))
}

// Refuse adds a refused tool call to i and returns the event that reports it.
func (i *Info) Refuse(r Refusal) Event {
	r.What = text.ShortenBytes(r.What, maxWhat)
	i.Refusals = append(slices.Clone(i.Refusals[max(0, len(i.Refusals)-maxRefusals+1):]), r)
	return Event{Type: Refused, Refusal: &r}
}

// Asked reports whether one of the texts was among the last sent ones, because programs also
// report turns that they started by themselves.
func (s *Session) Asked(texts []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(texts, func(content string) bool { return slices.Contains(s.sent, text.Fold(content)) })
}

// Explain returns why the session is in its state.
func (s *Session) Explain() detect.Explanation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spec.Mask.Explanation(s.detector.Explain(time.Now()))
}

// Picture is the current content of the screen.
type Picture struct {
	Cols    int      `json:"cols"`
	Rows    int      `json:"rows"`
	Title   string   `json:"title,omitempty"`
	Lines   []string `json:"lines"`
	CursorX int      `json:"cursorX"`
	CursorY int      `json:"cursorY"`
	Cursor  bool     `json:"cursorVisible"`
}

// Screen returns the masked content of the screen.
func (s *Session) Screen() Picture {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := Picture{Cols: s.screen.Cols(), Rows: s.screen.Rows(), Title: s.screen.Title()}
	p.Title = s.spec.Mask.Text(p.Title)
	p.CursorX, p.CursorY, p.Cursor = s.screen.Cursor()
	for y := range p.Rows {
		p.Lines = append(p.Lines, strings.TrimRight(s.screen.Row(y), " "))
	}
	p.Lines = s.spec.Mask.Lines(p.Lines)
	return p
}

// Lines returns the last n masked lines of scrollback and screen. Successive blank lines are
// reduced to one.
func (s *Session) Lines(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.spec.Mask.Lines(s.lines())
	return lines[max(0, len(lines)-n):]
}

func (s *Session) lines() []string {
	var out []string
	blank := true
	add := func(line string) {
		line = strings.TrimRight(line, " ")
		if line == "" && blank {
			return
		}
		blank = line == ""
		out = append(out, line)
	}
	for _, line := range s.screen.Scrollback() {
		add(line)
	}
	for y := range s.screen.Rows() {
		add(s.screen.Row(y))
	}
	if blank && len(out) > 0 {
		out = out[:len(out)-1]
	}
	return out
}

func tail(lines []string, n int) string {
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Console returns the unmasked output from an offset on, and the offset after it. If since is 0 or
// not stored any more, it begins with the oldest stored output.
func (s *Session) Console(since uint64) (data []byte, next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.console.From(since)
}

// Snapshot holds the bytes with which another terminal shows the same content, and the offset of
// the next output.
type Snapshot struct {
	Cols, Rows int
	Data       []byte
	Offset     uint64
}

// Snapshot returns the snapshot of the screen with its scrollback.
func (s *Session) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Snapshot{s.screen.Cols(), s.screen.Rows(), s.screen.Repaint(), s.console.Total()}
}
