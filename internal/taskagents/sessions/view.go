package sessions

import (
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// ID is the session's id.
func (s *Session) ID() string { return s.spec.ID }

// Info is how the session is now.
func (s *Session) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.info
	i.Queued, i.Control = len(s.messages), !s.taken.IsZero()
	return s.spec.Mask.Info(i)
}

// Fact takes what a hook or a structured protocol said. response is the last message
// of the turn, where this ends one and says it; token the program's own name of the
// conversation, if it was received.
func (s *Session) Fact(f detect.Fact, response, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return
	}
	if response != "" {
		source := "hook"
		if f.Class == 1 {
			source = "structured"
		}
		s.result = result{response, source}
	}
	if token != "" {
		s.info.ResumeToken = token
	}
	if f.Source == "hook:UserPromptSubmit" || f.Source == "hook:BeforeAgent" {
		s.submits++
	}
	now := time.Now()
	s.info.LastActivity = now
	if f.State == detect.Ready && f.Phase == "" && s.info.Status == detect.Ready {
		return // it waits, which is known, and how its last turn ended is known better
	}
	s.detector.Fact(now, f)
	s.moved(s.detector.Tick(now))
	s.news()
	poke(s.wake)
}

// Asked reports whether one of the texts is among the last that were sent: programs tell of
// turns, too, that they made up themselves.
func (s *Session) Asked(texts []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(texts, func(content string) bool { return slices.Contains(s.sent, text.Fold(content)) })
}

// Explain states why the session is in its state.
func (s *Session) Explain() detect.Explanation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spec.Mask.Explanation(s.detector.Explain(time.Now()))
}

// Picture is the screen as it is now.
type Picture struct {
	Cols    int      `json:"cols"`
	Rows    int      `json:"rows"`
	Title   string   `json:"title,omitempty"`
	Lines   []string `json:"lines"`
	CursorX int      `json:"cursorX"`
	CursorY int      `json:"cursorY"`
	Cursor  bool     `json:"cursorVisible"`
}

// Screen is what a person would see.
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

// Lines are the last n lines that the program printed, as they would be read: what
// scrolled away, and the screen. Blank ones in a row are one.
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

// Console is what the program printed, byte for byte, from an offset on; what is no
// longer kept, or 0, begins with the oldest that is. next is the offset of what comes.
func (s *Session) Console(since uint64) (data []byte, next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.console.From(since)
}

// Snapshot is what makes a terminal show what this one shows, and the offset of what
// comes next.
type Snapshot struct {
	Cols, Rows int
	Data       []byte
	Offset     uint64
}

// Snapshot repaints the screen, with what scrolled away before it.
func (s *Session) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Snapshot{s.screen.Cols(), s.screen.Rows(), s.screen.Repaint(), s.console.Total()}
}
