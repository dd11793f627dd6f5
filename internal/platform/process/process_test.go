//go:build unix

package process_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/process"
)

const role = "PROCESS_TEST_ROLE"

func TestMain(m *testing.M) {
	if r := os.Getenv(role); r != "" {
		play(r)
		return
	}
	os.Exit(m.Run())
}

// play is what the programs of these tests do. Each tells that it is ready by a line.
func play(r string) {
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	again := func(as string, change func(*exec.Cmd)) {
		self, _ := os.Executable()
		cmd := exec.Command(self)
		cmd.Env = []string{role + "=" + as}
		for _, e := range os.Environ() {
			if strings.HasPrefix(e, "MARK=") {
				cmd.Env = append(cmd.Env, e)
			}
		}
		change(cmd)
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			say("cannot start: %v", err)
			return
		}
		_, _ = bufio.NewReader(out).ReadString('\n')
		say("child %d", cmd.Process.Pid)
	}
	switch r {
	case "size":
		rows, cols := size()
		say("%d x %d", cols, rows)
		resized := make(chan os.Signal, 1)
		signal.Notify(resized, syscall.SIGWINCH)
		say("ready")
		<-resized
		rows, cols = size()
		say("%d x %d", cols, rows)
	case "exit":
		say("last words")
		os.Exit(7)
	case "complain":
		fmt.Fprintln(os.Stderr, "it is broken")
		os.Exit(3)
	case "deaf":
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
		say("ready")
		awaitSignal()
	case "polite":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		say("ready")
		<-asked
		say("bye")
	case "sleep":
		say("ready")
		awaitSignal()
	case "parent": // leaves a child in its group and one that has left everything but the mark
		again("sleep", func(*exec.Cmd) {})
		again("middle", func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} })
		say("ready")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	case "middle": // whose child is adopted when it ends
		again("sleep", func(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} })
	case "env":
		say("%s", strings.Join(os.Environ(), " "))
	}
}

type run struct {
	*process.Process
	out *bufio.Reader
}

// markOf is a test's own, beside other runs of it.
func markOf(t *testing.T) string { return fmt.Sprintf("MARK=%s-%d", t.Name(), os.Getpid()) }

func start(t *testing.T, r string, change ...func(*process.Spec)) run {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mark := markOf(t)
	spec := process.Spec{Argv: []string{self}, Env: []string{role + "=" + r, mark}, Dir: t.TempDir(), Cols: 120, Rows: 40, Mark: mark}
	for _, c := range change {
		c(&spec)
	}
	p, err := process.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		<-p.Done()
		_ = p.Close()
	})
	return run{p, bufio.NewReader(p)}
}

// until reads lines until one begins with a word, and returns that.
func (r run) until(t *testing.T, word string) string {
	t.Helper()
	var seen strings.Builder
	for {
		line, err := r.out.ReadString('\n')
		if err != nil {
			t.Fatalf("no %q in %q: %v", word, seen.String(), err)
		}
		if seen.WriteString(line); strings.HasPrefix(line, word) {
			return strings.TrimSpace(line)
		}
	}
}

func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(data), ") Z ")
}

func TestATerminalHasItsSize(t *testing.T) {
	r := start(t, "size")
	r.until(t, "120 x 40")
	r.until(t, "ready")
	if err := r.Resize(90, 30); err != nil {
		t.Fatal(err)
	}
	r.until(t, "90 x 30")
}

func TestTheEndIsTheExitAndAllThatWasSaid(t *testing.T) {
	r := start(t, "exit")
	said, err := io.ReadAll(r.out)
	if err != nil || string(said) != "last words\r\n" {
		t.Errorf(`%q %v; want no error, string(said) = "last words\r\n"`, said, err)
	}
	if e := r.Exit(); e != (process.Exit{Code: 7}) {
		t.Errorf("%+v; want e = (process.Exit{Code: 7})", e)
	}
	r.Ask() // and nothing happens
	r.Kill()
}

func TestAskingAndKilling(t *testing.T) {
	t.Run("a program that listens", func(t *testing.T) {
		r := start(t, "polite")
		r.until(t, "ready")
		r.Ask()
		r.until(t, "bye")
		if e := r.Exit(); e.Code != 0 || e.Signal != "" {
			t.Errorf(`%+v; want e.Code = 0, e.Signal = ""`, e)
		}
	})
	t.Run("one that does not", func(t *testing.T) {
		r := start(t, "deaf")
		r.until(t, "ready")
		r.Ask()
		r.Kill()
		if e := r.Exit(); e.Code != -9 || e.Signal != "SIGKILL" {
			t.Errorf(`%+v; want e.Code = -9, e.Signal = "SIGKILL"`, e)
		}
	})
	t.Run("a shell is hung up", func(t *testing.T) {
		r := start(t, "", func(s *process.Spec) {
			s.Argv, s.Env, s.HangUp = []string{"/bin/bash", "--norc", "-i"}, []string{"PS1=$ ", "PATH=/usr/bin:/bin", s.Mark}, true
		})
		if _, err := r.Write([]byte("echo re''ady\n")); err != nil {
			t.Fatal(err)
		}
		r.until(t, "ready")
		for gone := false; !gone; {
			r.Ask() // between two lines it must be asked again to notice
			select {
			case <-r.Done():
				gone = true
			case <-time.After(100 * time.Millisecond):
			}
		}
		if e := r.Exit(); e.Signal != "SIGHUP" {
			t.Errorf(`%+v; want e.Signal = "SIGHUP"`, e)
		}
	})
}

func TestWhatAProgramStartedEndsWithIt(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("this system does not tell of processes")
	}
	for name, end := range map[string]func(run){
		"when it is killed": func(r run) { r.Kill() },
		"when it ends":      func(r run) { _, _ = r.Write([]byte("\n")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, "parent")
			var pids [2]int
			for i := range pids {
				if _, err := fmt.Sscanf(r.until(t, "child"), "child %d", &pids[i]); err != nil {
					t.Fatal(err)
				}
			}
			r.until(t, "ready")
			end(r)
			if e := r.Exit(); e.Left < 1 { // the system hangs up on some itself
				t.Errorf("%+v; want e.Left at least 1", e)
			}
			for _, pid := range pids {
				if alive(pid) {
					t.Errorf("process %d is left; want not alive(pid)", pid)
				}
			}
		})
	}
}

func TestASweepEndsWhoCarriesTheMark(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("this system does not tell of processes")
	}
	r := start(t, "sleep", func(s *process.Spec) { s.Mark += "-one"; s.Env = append(s.Env, s.Mark) })
	other := start(t, "sleep", func(s *process.Spec) { s.Env = append(s.Env, s.Mark+"-one-and-more") })
	r.until(t, "ready")
	other.until(t, "ready")
	if n := process.Sweep(markOf(t) + "-one"); n != 1 {
		t.Errorf("%d were ended; want n = 1", n)
	}
	if e := r.Exit(); e.Signal != "SIGKILL" {
		t.Errorf(`%+v; want e.Signal = "SIGKILL"`, e)
	}
	if !alive(other.Pid()) {
		t.Error("another program was ended")
	}
	if process.Sweep("") != 0 || process.Sweep("MARK=") != 0 {
		t.Error(`no mark fits everybody; want process.Sweep("") = 0, process.Sweep("MARK=") = 0`)
	}
}

func TestOnlyTheGivenEnvironmentIsPassed(t *testing.T) {
	t.Setenv("A_SECRET", "x")
	r := start(t, "env")
	if line := r.until(t, role); strings.Contains(line, "A_SECRET") {
		t.Errorf(`r.until(t, role) = %v, want !strings.Contains(line, "A_SECRET")`, line)
	}
}

func TestAProgramThatCannotBeStarted(t *testing.T) {
	self, _ := os.Executable()
	for name, spec := range map[string]process.Spec{
		"no such program": {Argv: []string{"/nowhere/at/all"}, Dir: t.TempDir()},
		"no such folder":  {Argv: []string{self}, Dir: "/nowhere/at/all"},
		"not a program":   {Argv: []string{"/etc/passwd"}, Dir: t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := process.Start(spec)
			if e := capability.AsError(err); err == nil || e.Code != capability.CodeInvalidInput || e.Reason != "program_missing" {
				t.Errorf(`%v; want an error, e.Code = capability.CodeInvalidInput, e.Reason = "program_missing"`, err)
			}
		})
	}
}

func TestAProgramWithoutATerminalHasPipesAndTheSameEnd(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mark := markOf(t)
	spec := process.Spec{Argv: []string{self}, Env: []string{role + "=parent", mark}, Dir: t.TempDir(), Mark: mark}
	var words strings.Builder
	p, err := process.StartPiped(spec, &words)
	if err != nil {
		t.Fatal(err)
	}
	r := run{p, bufio.NewReader(p)}
	r.until(t, "ready")
	if _, err := p.Write([]byte("go\n")); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(r.out); err != nil || len(rest) != 0 {
		t.Errorf("after the end it read %q, %v; want no error, len(rest) = 0", rest, err)
	}
	if exit := p.Exit(); exit.Code != 0 || exit.Left == 0 {
		t.Errorf("it ended with %+v; what it left behind has to be ended too; want exit.Code = 0, exit.Left other than 0", exit)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatAProgramSaysOnItsStandardErrorIsThereAtItsEnd(t *testing.T) {
	var words strings.Builder
	self, _ := os.Executable()
	p, err := process.StartPiped(process.Spec{Argv: []string{self}, Env: []string{role + "=complain"}, Dir: t.TempDir()}, &words)
	if err != nil {
		t.Fatal(err)
	}
	if exit := p.Exit(); exit.Code != 3 || words.String() != "it is broken\n" {
		t.Errorf(`%+v, %q; want exit.Code = 3, words.String() = "it is broken\n"`, exit, words.String())
	}
	_ = p.Close()
	if _, err := process.StartPiped(process.Spec{Argv: []string{self + "-not"}, Dir: t.TempDir()}, &words); err == nil ||
		capability.AsError(err).Reason != "program_missing" {
		t.Errorf(`a program that is not there: %v; want an error, capability.AsError(err).Reason = "program_missing"`, err)
	}
}
