package sessions_test

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/testkit/fakecli"
)

const role = "SESSIONS_TEST_ROLE"

// TestMain plays the program of the tests in real terminals.
func TestMain(m *testing.M) {
	if r := os.Getenv(role); r != "" {
		program(r)
		return
	}
	os.Exit(m.Run())
}

// program runs in a real terminal.
func program(r string) {
	fd := int(os.Stdin.Fd())
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		os.Exit(9)
	}
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Iflag &^= unix.ICRNL | unix.IXON
	_ = unix.IoctlSetTermios(fd, unix.TCSETS, t)
	if r == "deaf" {
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	}
	fakecli.Run(context.Background(), os.Stdin, os.Stdout, func(ctx context.Context, s *fakecli.Screen) {
		if s.Ask(ctx, fakecli.Trust()) != 0 {
			os.Exit(1)
		}
		for {
			text, ok := s.Prompt(ctx)
			if !ok {
				return
			}
			s.Work(ctx, 500*time.Millisecond)
			switch word, _, _ := strings.Cut(text, " "); word {
			case "write":
				if s.Ask(ctx, fakecli.Permission("hello.txt")) == 0 {
					s.Work(ctx, 500*time.Millisecond)
					_ = os.WriteFile("hello.txt", []byte("hello"), 0o600)
				}
			case "daemon":
				cmd := exec.Command("sleep", "1000")
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
				if cmd.Start() == nil {
					_ = os.WriteFile("daemon.pid", []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
				}
			case "burst":
				for range 10 << 10 {
					s.Print(strings.Repeat("y", 1022) + "\r\n")
				}
			case "crash":
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			s.Done("Did it: " + text)
		}
	})
}

func inTerminal(t *testing.T, r string, change func(*sessions.Spec)) (*sessions.Session, *sessions.Subscription) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := sessions.New(sessions.Config{})
	heard := m.Subscribe()
	spec := sessions.Spec{
		Framework: programs.Claude, Version: "2.1.197", Rules: claude(t), Dir: t.TempDir(), Argv: []string{self},
		Env: []string{role + "=" + r, "TERM=xterm-256color", "PATH=" + os.Getenv("PATH")},
		Answers: []programs.Answer{
			{ID: "trust", Type: "trust", Label: "Yes, I trust"},
			{ID: "write", Type: "permission", Prompt: "create hello.txt", Label: "Yes"},
		},
	}
	if change != nil {
		change(&spec)
	}
	s, err := m.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background()) })
	return s, heard
}

func waitFor(t *testing.T, heard *sessions.Subscription, kind sessions.Type) sessions.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		e, ok, err := heard.Next(ctx)
		if !ok {
			t.Fatalf("no %s: %v; want ok = true", kind, err)
		}
		if e.Type == kind {
			return e
		}
	}
}

// Acceptance test 3: a program in a real terminal, from its dialog to its end.
func TestInARealTerminal(t *testing.T) {
	t.Parallel()
	s, heard := inTerminal(t, "polite", func(s *sessions.Spec) { s.Task = "write a file" })
	if e := waitFor(t, heard, sessions.TaskComplete); e.Text != "● Did it: write a file" {
		t.Errorf(`%+v; want e.Text = "● Did it: write a file"`, e)
	}
	dir := s.Info().Workdir
	if data, err := os.ReadFile(filepath.Join(dir, "hello.txt")); string(data) != "hello" {
		t.Errorf(`%v; want string(data) = "hello"`, err)
	}
	for _, text := range []string{"daemon please", "burst of 10 MiB"} {
		if outcome, err := s.Send(t.Context(), text, false); outcome != sessions.Delivered {
			t.Fatalf("%s: %s %v; want outcome = sessions.Delivered", text, outcome, err)
		}
		if e := waitFor(t, heard, sessions.TaskComplete); e.Text != "● Did it: "+text {
			t.Errorf(`%+v; want e.Text = "● Did it: " + text`, e)
		}
	}
	s.Stop(false)
	<-s.Done()
	if i := s.Info(); i.Status != detect.Stopped {
		t.Errorf("%+v; want i.Status = detect.Stopped", i)
	}
	data, err := os.ReadFile(filepath.Join(dir, "daemon.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(string(data))
	if stat, err := os.ReadFile("/proc/" + string(data) + "/stat"); pid == 0 || err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf(`the daemon %d is left; want pid other than 0, not (err == nil && !strings.Contains(string(stat), ") Z "))`, pid)
	}
}

func TestARealCrash(t *testing.T) {
	t.Parallel()
	s, heard := inTerminal(t, "polite", nil)
	waitFor(t, heard, sessions.ReadyAgain)
	_, _ = s.Send(t.Context(), "crash now", false)
	e := waitFor(t, heard, sessions.Failed)
	if i := s.Info(); e.Signal != "SIGKILL" || i.Status != detect.Error || i.ExitSignal != "SIGKILL" {
		t.Errorf(`%+v %+v; want e.Signal = "SIGKILL", i.Status = detect.Error, i.ExitSignal = "SIGKILL"`, e, i)
	}
}

func TestARealProgramThatDoesNotListen(t *testing.T) {
	t.Parallel()
	s, heard := inTerminal(t, "deaf", nil)
	waitFor(t, heard, sessions.ReadyAgain)
	s.Stop(false)
	if e := waitFor(t, heard, sessions.Ended); e.Signal != "SIGKILL" {
		t.Errorf(`%+v; want e.Signal = "SIGKILL"`, e)
	}
	<-s.Done()
}

// A shell that marks its prompts is known by those, whatever is printed.
func TestARealShell(t *testing.T) {
	t.Parallel()
	files, err := detect.Load(filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	rules, _, err := detect.Pick(files, programs.Shell, "")
	if err != nil {
		t.Fatal(err)
	}
	s, heard := inTerminal(t, "", func(s *sessions.Spec) {
		s.Framework, s.Rules, s.HangUp = programs.Shell, rules, true
		s.Argv = []string{"/bin/bash", "--norc", "-i"}
		s.Env = []string{
			`PS1=\[\e]133;A\a\]pty> \[\e]133;B\a\]`, `PS0=\e]133;C\a`, `PROMPT_COMMAND=last=$?; [ -n "$began" ] && printf '\e]133;D;%s\a' $last; began=1`, // no command ends before the first prompt
			"TERM=xterm-256color", "PATH=" + os.Getenv("PATH"),
		}
	})
	waitFor(t, heard, sessions.ReadyAgain)
	for _, text := range []string{
		"sleep 1; echo first", "echo second; exit_is_no_end=1", "clear; echo wiped",
		"for i in 1 2; do\n  echo third $i\ndone",
	} {
		if outcome, err := s.Send(t.Context(), text, false); outcome != sessions.Delivered {
			t.Fatalf("%s %v\n%s\nwant outcome = sessions.Delivered", outcome, err, strings.Join(s.Screen().Lines, "\n"))
		}
		e := waitFor(t, heard, sessions.TaskComplete)
		if !strings.Contains(e.Text, strings.Fields(text[strings.Index(text, "echo"):])[1][:5]) {
			t.Errorf(`%q: %q; want e.Text with strings.Fields(text[strings.Index(text, "echo"):])[1][:5]`, text, e.Text)
		}
	}
	// A command that is silent for long was taken all the same: no second Enter is for it.
	if outcome, err := s.Send(t.Context(), "sleep 3; read -t 0.2 x && echo pressed || echo quiet", false); outcome != sessions.Delivered {
		t.Fatalf("s.Send: outcome = %q, want sessions.Delivered; err = %v", outcome, err)
	}
	if e := waitFor(t, heard, sessions.TaskComplete); strings.TrimSpace(e.Text) != "quiet" {
		t.Errorf(`a silent command: %q; want strings.TrimSpace(e.Text) = "quiet"`, e.Text)
	}
	// A command that reads a line gets it while it runs, once; a text for one that does not waits.
	reader := "sleep 0.3; read -p 'Accept? (y/n) ' x; read -t 0.2 y || echo one $x"
	if outcome, err := s.Send(t.Context(), reader, false); outcome != sessions.Delivered {
		t.Fatalf("the command that reads: got %q and %v, want %q", outcome, err, sessions.Delivered)
	}
	if outcome, err := s.Send(t.Context(), "yes", false); outcome != sessions.Delivered {
		t.Fatalf("the line: got %q and %v, want %q", outcome, err, sessions.Delivered)
	}
	if e := waitFor(t, heard, sessions.TaskComplete); !strings.Contains(e.Text, "one yes") {
		t.Errorf("the command that read a line: got %q, want it with %q", e.Text, "one yes")
	}
	s.Stop(false)
	if e := waitFor(t, heard, sessions.Ended); e.Signal != "SIGHUP" {
		t.Errorf(`%+v; want e.Signal = "SIGHUP"`, e)
	}
	<-s.Done()
}
