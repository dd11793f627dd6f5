// Package fakecli is an agent's program for tests: it draws what Claude Code draws
// (see the recordings of package term), takes what is typed
// as that takes it, and does what a script says. It runs in any terminal: a real one,
// where it is a program, or one made of pipes.
package fakecli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Dialog is a question with a selection list.
type Dialog struct {
	Question string
	Options  []string
	Default  int // index of the option under the cursor at first
	Footer   string
	Deaf     int // how often Enter is lost
}

// Trust is the folder dialog, with a default that says no.
func Trust() Dialog {
	return Dialog{
		Question: "Quick safety check: Is this a project you created or one you trust?",
		Options:  []string{"Yes, I trust this folder", "No, exit"}, Default: 1,
		Footer: "Enter to confirm · Esc to cancel",
	}
}

// Permission is the dialog before a file is written.
func Permission(file string) Dialog {
	return Dialog{
		Question: "Do you want to create " + file + "?", Options: []string{"Yes", "Yes, allow all edits during this session", "No"},
		Footer: "Esc to cancel · Tab to amend",
	}
}

// Question is one of the question tool.
func Question(text string, options ...string) Dialog {
	return Dialog{
		Question: text, Options: append(options, "Type something.", "Chat about this"),
		Footer: "Enter to select · ↑/↓ to navigate · Esc to cancel",
	}
}

// Screen is what a script draws on and reads from.
type Screen struct {
	// Swallow is how long after a paste Enter is not taken: it makes a line of its
	// own.
	Swallow time.Duration
	// Flicker is how long it looks busy, with an empty input box, after an Enter that it did not take.
	Flicker time.Duration
	// Placeholder is shown in the input box while it is empty, and Cleared after Ctrl-C has emptied it.
	Placeholder, Cleared string
	// Silent keeps the program from telling its state by its title.
	Silent bool

	out   io.Writer
	keys  chan string // what was typed: characters, sequences, pastes as "paste:…"
	lines []string    // the transcript
	box   string      // what stands in the input box
	below []string    // in place of the box
	title string
}

// Run plays a script until it returns or nothing can be typed any more.
func Run(ctx context.Context, in io.Reader, out io.Writer, script func(ctx context.Context, s *Screen)) {
	s := &Screen{out: out, keys: make(chan string, 1024)}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		read(ctx, bufio.NewReader(in), s.keys)
		cancel()
	}()
	s.print("\x1b[?2004h\x1b[?1004h\x1b[?25l")
	script(ctx, s)
}

// read cuts what is typed into keys.
func read(ctx context.Context, in *bufio.Reader, keys chan<- string) {
	give := func(key string) bool {
		select {
		case keys <- key:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for {
		c, _, err := in.ReadRune()
		if err != nil {
			return
		}
		key := string(c)
		if c == 0x1b && in.Buffered() > 0 {
			for {
				c, _, err := in.ReadRune()
				if err != nil {
					return
				}
				if key += string(c); c != '[' && (c < '0' || c > '?') {
					break
				}
			}
			if key == "\x1b[200~" {
				var text strings.Builder
				for !strings.HasSuffix(text.String(), "\x1b[201~") {
					c, _, err := in.ReadRune()
					if err != nil {
						return
					}
					text.WriteRune(c)
				}
				key = "paste:" + strings.TrimSuffix(text.String(), "\x1b[201~")
			}
		}
		if !give(key) {
			return
		}
	}
}

func (s *Screen) print(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// Print writes bytes as they are.
func (s *Screen) Print(text string) { s.print("%s", text) }

// draw redraws the whole screen, in one synchronised update.
func (s *Screen) draw() {
	var b strings.Builder
	b.WriteString("\x1b[?2026h\x1b[H\x1b[2J")
	if s.title != "" && !s.Silent {
		fmt.Fprintf(&b, "\x1b]0;%s\a", s.title)
	}
	for _, line := range s.lines[max(0, len(s.lines)-24):] {
		b.WriteString(line + "\r\n")
	}
	rule := strings.Repeat("─", 120) + "\r\n"
	if s.below != nil {
		b.WriteString(rule)
		b.WriteString(strings.Join(s.below, "\r\n") + "\r\n")
	} else {
		box := strings.ReplaceAll(cmp.Or(s.box, s.Placeholder), "\n", "\r\n  ")
		b.WriteString("\r\n" + rule + "❯ " + box + "\r\n" + rule + "  ? for shortcuts")
	}
	b.WriteString("\x1b[?2026l")
	s.print("%s", b.String())
}

// Say adds lines to the transcript.
func (s *Screen) Say(lines ...string) {
	s.lines = append(s.lines, lines...)
	s.draw()
}

// Idle draws the input box of a program that waits.
func (s *Screen) Idle() {
	s.title, s.below = "✳ Claude Code", nil
	s.draw()
}

// Prompt waits until something is submitted, and returns it; false: nothing can come.
func (s *Screen) Prompt(ctx context.Context) (string, bool) {
	s.Idle()
	var pasted time.Time
	for {
		select {
		case <-ctx.Done():
			return "", false
		case key := <-s.keys:
			text, paste := strings.CutPrefix(key, "paste:")
			switch {
			case paste:
				s.box += text
				pasted = time.Now()
			case key == "\r" && s.box == "":
			case key == "\r" && time.Since(pasted) < s.Swallow:
				s.box += "\n"
				if s.Flicker > 0 {
					held := s.box
					s.box = ""
					s.Work(ctx, s.Flicker)
					s.box = held
					s.Idle()
				}
			case key == "\r":
				got := strings.TrimSpace(s.box)
				s.box = ""
				s.lines = append(s.lines, "", "❯ "+strings.ReplaceAll(got, "\n", "\n  "))
				return got, true
			case key == "\x03" && s.box != "":
				s.box, s.Placeholder = "", cmp.Or(s.Cleared, s.Placeholder)
			case key == "\x7f" && s.box != "":
				_, size := utf8.DecodeLastRuneInString(s.box)
				s.box = s.box[:len(s.box)-size]
			case key == "\x03":
				return "", false
			case len(key) == 1 && key[0] >= ' ' || key == "\n" || len(key) > 1 && key[0] != 0x1b:
				s.box += key
			}
			s.draw()
		}
	}
}

// Work is a turn that takes a while: a spinner over the box.
func (s *Screen) Work(ctx context.Context, long time.Duration) {
	const frameInterval = 100 * time.Millisecond
	for i := range int(long/frameInterval) + 1 {
		s.title = "⠂ Claude Code"
		if i%2 == 1 {
			s.title = "⠐ Claude Code"
		}
		s.below = nil
		s.lines = append(s.lines, "", fmt.Sprintf("✻ Pondering… (%ds · esc to interrupt)", i/10))
		s.draw()
		s.lines = s.lines[:len(s.lines)-2]
		select {
		case <-ctx.Done():
			return
		case <-time.After(frameInterval):
		}
	}
}

// Done ends a turn.
func (s *Screen) Done(answer ...string) {
	for i, line := range answer {
		if i == 0 {
			line = "● " + line
		} else {
			line = "  " + line
		}
		s.lines = append(s.lines, line)
	}
	s.lines = append(s.lines, "", "✻ Churned for 3s")
	s.Idle()
}

// Notes shows a text until Enter is pressed: there is nothing to choose.
func (s *Screen) Notes(ctx context.Context, lines ...string) {
	s.title, s.below = "✳ Claude Code", append(lines, "", " Press Enter to continue…")
	s.draw()
	for {
		select {
		case <-ctx.Done():
			return
		case key := <-s.keys:
			if key == "\r" {
				s.below = nil
				return
			}
		}
	}
}

// Ask shows a dialog until an option is chosen; -1: Esc, or nothing can come.
func (s *Screen) Ask(ctx context.Context, d Dialog) int {
	at := d.Default
	for {
		s.title, s.below = "✳ Claude Code", []string{" " + d.Question, ""}
		for i, o := range d.Options {
			cursor := "   "
			if i == at {
				cursor = " ❯ "
			}
			s.below = append(s.below, fmt.Sprintf("%s%d. %s", cursor, i+1, o))
		}
		s.below = append(s.below, "", " "+d.Footer)
		s.draw()
		select {
		case <-ctx.Done():
			return -1
		case key := <-s.keys:
			for ; key == "\r" && d.Deaf > 0; d.Deaf-- { // nothing is drawn
				select {
				case <-ctx.Done():
					return -1
				case key = <-s.keys:
				}
			}
			switch key {
			case "\x1b[A":
				at = max(at-1, 0)
			case "\x1b[B":
				at = min(at+1, len(d.Options)-1)
			case "\r":
				s.below = nil
				return at
			case "\x1b", "\x03":
				s.below = nil
				return -1
			default: // the number of an option chooses it
				if n, err := strconv.Atoi(key); err == nil && n >= 1 && n <= len(d.Options) {
					s.below = nil
					return n - 1
				}
			}
		}
	}
}
