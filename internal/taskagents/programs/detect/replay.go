package detect

import (
	"path"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/cast"
	"github.com/junctor-run/junctor/internal/taskagents/term"
)

// ReplayStep is one change of state, in the terms of the recording's marks.
type ReplayStep struct {
	T        float64    `json:"t"` // seconds since the start
	From     string     `json:"from"`
	To       string     `json:"to"`
	Cause    string     `json:"cause"`
	Evidence []Evidence `json:"evidence"`
}

// Subject is the program that a recording shows.
type Subject struct {
	Framework programs.Name
	Version   string // "": not known
	How       string // how the program was recognised: the end of a sentence
}

// GuessProgram finds the program of a recording by its header, its note, the name of its
// file, or the output.
func GuessProgram(rec *cast.Recording, file string) (Subject, error) {
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
	return Subject{}, capability.Errorf(capability.CodeInvalidInput, "frameworks.replay",
		"nothing in the recording says which program it shows").
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

// Replay runs a recording through the screen model and the detector on the recording's own
// clock, and calls tell for each change of state that a live session would have had. An
// error of tell ends it. The mark "end" ends a recording, because the program is stopped
// after it. Other marks are ignored.
func Replay(rec *cast.Recording, file *File, version string, tell func(ReplayStep) error) error {
	start := time.Unix(0, 0)
	now := start
	screen := term.New(rec.Cols, rec.Rows)
	d := New(file, version, screen)
	screen.OSC = func(n int, data string) { d.OSC(now, n, data) }
	say := func(changes []Change) error {
		for _, c := range changes {
			from, to := c.From.Word(), c.To.Word()
			if from == to { // another dialog of the same kind
				continue
			}
			if c.Evidence == nil {
				c.Evidence = []Evidence{}
			}
			t := float64(c.At.Sub(start).Milliseconds()) / 1000
			if err := tell(ReplayStep{T: t, From: from, To: to, Cause: c.Cause, Evidence: c.Evidence}); err != nil {
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
	return until(now.Add(replayGrace))
}
