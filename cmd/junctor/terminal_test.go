package main

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	programs "github.com/junctor-run/junctor/internal/platform/process"
	screens "github.com/junctor-run/junctor/internal/taskagents/term"
)

// seat is a user at a terminal in which one command of junctor runs.
type seat struct {
	t      *testing.T
	p      *programs.Process
	mu     sync.Mutex
	read   chan struct{} // closed after the end of the command, when all that it wrote was read
	screen *screens.Screen
	bytes  strings.Builder // all that the command wrote
}

// seatTimeout is far above what a slow machine needs.
const seatTimeout = 2 * time.Minute

// sit runs a command of a home in a pseudo-terminal.
func (h *patient) sit(t *testing.T, cols, rows int, dir string, env []string, args ...string) *seat {
	t.Helper()
	program, err := exec.LookPath("junctor")
	if err != nil {
		t.Fatalf("find the program: got %v, want no error", err)
	}
	// Every process with the mark ends with the command, so each command has its own.
	mark := "TEST_SEAT=" + strings.NewReplacer("/", "_", " ", "_").Replace(t.Name()+" "+strings.Join(args, " "))
	all := append(os.Environ(), "GORACE=atexit_sleep_ms=0", "JUNCTOR_HOME="+h.home, "TERM=xterm-256color", "NO_COLOR=", mark)
	s := &seat{t: t, read: make(chan struct{}), screen: screens.New(cols, rows)}
	s.p, err = programs.Start(programs.Spec{
		Argv: append([]string{program}, args...), Env: append(append(all, h.env...), env...), Dir: dir, Cols: cols, Rows: rows, Mark: mark,
	})
	if err != nil {
		t.Fatalf("start %v in a terminal: got %v, want no error", args, err)
	}
	s.screen.Reply = func(b []byte) { _, _ = s.p.Write(b) }
	go func() {
		defer close(s.read)
		buf := make([]byte, 32<<10)
		for {
			n, err := s.p.Read(buf)
			s.mu.Lock()
			s.screen.Write(buf[:n])
			s.bytes.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		s.p.Kill()
		<-s.p.Done()
		<-s.read
		_ = s.p.Close()
	})
	return s
}

// text returns what the terminal shows.
func (s *seat) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.Text()
}

// raw returns all that was written to the terminal.
func (s *seat) raw() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes.String()
}

// until waits until the terminal shows all of the texts.
func (s *seat) until(texts ...string) string {
	s.t.Helper()
	return s.when(strings.Join(texts, " and "), func(shown string) bool {
		for _, one := range texts {
			if !strings.Contains(shown, one) {
				return false
			}
		}
		return true
	})
}

// when waits until what the terminal shows satisfies a condition.
func (s *seat) when(what string, ok func(shown string) bool) string {
	s.t.Helper()
	for deadline := time.Now().Add(seatTimeout); ; time.Sleep(5 * time.Millisecond) {
		shown := s.text()
		if ok(shown) {
			return shown
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the terminal shows\n%s\nwant %s", shown, what)
		}
	}
}

func (s *seat) keys(text string) {
	s.t.Helper()
	if _, err := s.p.Write([]byte(text)); err != nil {
		s.t.Fatalf("type %q: got %v, want no error", text, err)
	}
}

// resize changes the size of the terminal.
func (s *seat) resize(cols, rows int) {
	s.t.Helper()
	s.mu.Lock()
	s.screen.Resize(cols, rows)
	s.mu.Unlock()
	if err := s.p.Resize(cols, rows); err != nil {
		s.t.Fatalf("resize: got %v, want no error", err)
	}
}

// ends waits for the end of the command, and returns its status.
func (s *seat) ends() int {
	s.t.Helper()
	select {
	case <-s.read:
		return s.p.Exit().Code
	case <-time.After(seatTimeout):
		s.t.Fatalf("the command still runs and shows\n%s\nwant its end", s.text())
		return 0
	}
}
