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
	screen *screens.Screen
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
	mark := "JUNCTOR_TEST_SEAT=" + strings.ReplaceAll(t.Name(), "/", "_")
	all := append(os.Environ(), "GORACE=atexit_sleep_ms=0", "JUNCTOR_HOME="+h.home, "TERM=xterm-256color", "NO_COLOR=", mark)
	s := &seat{t: t, screen: screens.New(cols, rows)}
	s.p, err = programs.Start(programs.Spec{
		Argv: append([]string{program}, args...), Env: append(append(all, h.env...), env...), Dir: dir, Cols: cols, Rows: rows, Mark: mark,
	})
	if err != nil {
		t.Fatalf("start %v in a terminal: got %v, want no error", args, err)
	}
	s.screen.Reply = func(b []byte) { _, _ = s.p.Write(b) }
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 32<<10)
		for {
			n, err := s.p.Read(buf)
			s.mu.Lock()
			s.screen.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		s.p.Kill()
		<-s.p.Done()
		<-read
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

// ends waits for the end of the command, and returns its status.
func (s *seat) ends() int {
	s.t.Helper()
	select {
	case <-s.p.Done():
		return s.p.Exit().Code
	case <-time.After(seatTimeout):
		s.t.Fatalf("the command still runs and shows\n%s\nwant its end", s.text())
		return 0
	}
}
