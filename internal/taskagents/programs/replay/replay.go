// Package replay runs a recording through the screen model and the detector on the
// recording's own clock, and tells each change of state: what the detector would have
// said while it was recorded (task-agents, section 20, test 1).
package replay

import (
	"path"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/cast"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/term"
)

// runOn is how long the clock goes on after the last event: nothing more was printed,
// so what was shown then stayed, and may settle.
const runOn = 5 * time.Second

// Step is one change of state, in the words of the marks.
type Step struct {
	T        float64           `json:"t"` // seconds since the start
	From     string            `json:"from"`
	To       string            `json:"to"`
	Cause    string            `json:"cause"`
	Evidence []detect.Evidence `json:"evidence"`
}

// Subject is which program a recording shows.
type Subject struct {
	Framework programs.Name
	Version   string // "" where nothing says it
	How       string // how that is known: a sentence's end
}

// Guess finds the program: by the header, the note in it or the file's name, or what
// the program printed about itself.
func Guess(rec *cast.Recording, file string) (Subject, error) {
	name, version := programAndVersion(rec.CLI)
	if f, ok := programs.Normalise(name); ok {
		return Subject{f, version, "by the recording's header"}, nil
	}
	for _, text := range []string{rec.Note, strings.TrimSuffix(path.Base(file), ".cast")} {
		first, _, _ := strings.Cut(text, "-")
		if f, ok := programs.Normalise(first); ok {
			return Subject{f, version, "by the recording's name"}, nil
		}
	}
	if f, ok := byContent(rec); ok {
		return Subject{f, version, "by what it printed"}, nil
	}
	return Subject{}, capability.Errorf(capability.CodeInvalidInput, "frameworks.replay", "nothing in the recording says which program it shows").
		With("", "name it with --framework")
}

// programAndVersion splits "Claude Code 2.1.197".
func programAndVersion(cli string) (name, version string) {
	words := strings.Fields(cli)
	if n := len(words); n > 0 {
		if last := strings.TrimPrefix(words[n-1], "v"); last != "" && last[0] >= '0' && last[0] <= '9' {
			return strings.Join(words[:n-1], " "), last
		}
	}
	return cli, ""
}

func byContent(rec *cast.Recording) (programs.Name, bool) {
	screen := term.New(rec.Cols, rec.Rows)
	seen := 0
	for _, e := range rec.Events {
		if e.Kind != cast.Output {
			continue
		}
		_, _ = screen.Write([]byte(e.Data))
		if seen += len(e.Data); seen > 64<<10 {
			break
		}
	}
	shown := screen.Text() + screen.Title()
	for _, p := range programs.All() {
		if p.Greeting != "" && strings.Contains(shown, p.Greeting) {
			return p.Name, true
		}
	}
	return "", false
}

// Run replays a recording and tells each change. It ends early with the error that tell
// returns. The mark "end" ends a recording: what follows is the program being stopped.
// Other marks are not looked at.
func Run(rec *cast.Recording, file *detect.File, version string, tell func(Step) error) error {
	start := time.Unix(0, 0)
	now := start
	screen := term.New(rec.Cols, rec.Rows)
	d := detect.New(file, version, screen)
	screen.OSC = func(n int, data string) { d.OSC(now, n, data) }
	say := func(changes []detect.Change) error {
		for _, c := range changes {
			from, to := c.From.Word(), c.To.Word()
			if from == to { // another dialog of the same kind
				continue
			}
			if c.Evidence == nil {
				c.Evidence = []detect.Evidence{}
			}
			t := float64(c.At.Sub(start).Milliseconds()) / 1000
			if err := tell(Step{T: t, From: from, To: to, Cause: c.Cause, Evidence: c.Evidence}); err != nil {
				return err
			}
		}
		return nil
	}
	// Events of one moment are seen together, so how output was cut does not matter.
	until := func(limit time.Time) error {
		for {
			next, ok := d.Next()
			if !ok || !next.Before(limit) {
				return nil
			}
			if err := say(d.Tick(next)); err != nil {
				return err
			}
		}
	}
	if err := say(d.Start(start)); err != nil {
		return err
	}
	for _, e := range rec.Events {
		if e.Kind == cast.Mark && e.Data == "end" {
			break
		}
		at := start.Add(e.At)
		if err := until(at); err != nil {
			return err
		}
		now = at
		switch e.Kind {
		case cast.Output:
			_, _ = screen.Write([]byte(e.Data))
			d.Output(now)
		case cast.Input:
			d.Input(now, []byte(e.Data))
		case cast.Resize:
			cols, rows, _ := e.Size()
			screen.Resize(cols, rows)
			d.Output(now)
		}
	}
	return until(now.Add(runOn))
}
