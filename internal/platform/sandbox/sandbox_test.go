//go:build unix

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if IsHelper(os.Args) {
		syscall.Exit(HelperMain(os.Args)) // os.Exit waits a second with the race detector
	}
	if len(os.Args) > 2 && os.Args[1] == "attack" {
		os.Exit(attackMain(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

func shell(line string) Spec {
	return Spec{Path: "/bin/sh", Args: []string{"-c", line}, Env: Environment(), Grace: 200 * time.Millisecond}
}

func TestRunReportsHowTheProgramEnded(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, line, stdout, stderr, signal string
		code                               int
	}{
		{"success", "echo out; echo err >&2", "out\n", "err\n", "", 0},
		{"exit code", "exit 7", "", "", "", 7},
		{"signal", "kill -USR1 $$", "", "", "SIGUSR1", -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := Run(t.Context(), shell(tt.line))
			if err != nil {
				t.Fatal(err)
			}
			if r.Stdout.Text() != tt.stdout || r.Stderr.Text() != tt.stderr || r.ExitCode != tt.code || r.Signal != tt.signal {
				t.Errorf("got %q, %q, %d, %q; want r.Stdout.Text() = %v, r.Stderr.Text() = %v, r.ExitCode = %v, r.Signal = %v",
					r.Stdout.Text(), r.Stderr.Text(), r.ExitCode, r.Signal, tt.stdout, tt.stderr, tt.code, tt.signal)
			}
		})
	}
}

func TestMissingProgramWasNotStarted(t *testing.T) {
	t.Parallel()
	r, err := Run(t.Context(), Spec{Path: "/nonexistent/program"})
	if err == nil || !r.Started.IsZero() {
		t.Errorf("got %+v, %v; want an error, r.Started.IsZero()", r, err)
	}
}

func TestNilEnvironmentIsEmpty(t *testing.T) {
	t.Parallel()
	s := shell("env | grep -c -v -e ^PWD= -e ^SHLVL= -e ^_= -e ^OLDPWD=")
	s.Env = nil
	r, err := Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Stdout.Text(); got != "0\n" {
		t.Errorf(`%q variables leaked in; want got = "0\n"`, got)
	}
}

// A program that ignores TERM, and its child that does too, must both be gone.
func TestStopReachesTheWholeGroup(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(t.Context())
	line := fmt.Sprintf(`trap "" TERM; (trap "" TERM; while :; do sleep 1; done) & echo $$ $! > %s.tmp; mv %[1]s.tmp %[1]s; echo begun; wait; while :; do sleep 1; done`, file)
	done := make(chan error, 1)
	go func() {
		r, err := Run(ctx, shell(line))
		if r.Stdout.Text() != "begun\n" {
			err = fmt.Errorf("output before the stop was lost: %q, %w", r.Stdout.Text(), err)
		}
		done <- err
	}()
	pids := waitForFile(t, file)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want err is context.Canceled", err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d survived; want not alive(pid)", pid)
		}
	}
}

func TestProcessesLeftBehindAreKilled(t *testing.T) {
	t.Parallel()
	began := time.Now()
	r, err := Run(t.Context(), shell("sleep 600 & echo $!"))
	if err != nil {
		t.Fatal(err)
	}
	if time.Since(began) > time.Minute {
		t.Error("waited for a background process; want time.Since(began) at most a minute")
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(r.Stdout.Text()))
	if alive(pid) {
		t.Errorf("background process %d survived; want not alive(pid)", pid)
	}
}

func TestOutputKeepsHeadAndTail(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		limit  int
		writes []string
		want   string
	}{
		{"under the limit", 10, []string{"abc", "def"}, "abcdef"},
		{"exactly the limit", 6, []string{"abcdef"}, "abcdef"},
		{"one large write", 6, []string{"abcdefghij"}, "abc\n[… 4 bytes of output omitted …]\nhij"},
		{"many small writes", 6, strings.Split("abcdefghij", ""), "abc\n[… 4 bytes of output omitted …]\nhij"},
		{"ring wraps in one write", 8, []string{"abcd", "efg", "hijk"}, "abcd\n[… 3 bytes of output omitted …]\nhijk"},
		{"not UTF-8", 10, []string{"a\xff\xfeb"}, "a\uFFFDb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCapture(tt.limit)
			for _, w := range tt.writes {
				if n, err := c.Write([]byte(w)); n != len(w) || err != nil {
					t.Fatalf("c.Write([]byte(w)) = %v, err = %v, want n == len(w) && err == nil", n, err)
				}
			}
			if got := c.output().Text(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLargeOutputIsBounded(t *testing.T) {
	t.Parallel()
	s := shell("yes | head -c 5000000; echo end")
	s.StdoutLimit = 1000
	r, err := Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Stdout.Truncated() || !bytes.HasSuffix(r.Stdout.Bytes(), []byte("end\n")) || len(r.Stdout.Bytes()) > 1100 {
		t.Errorf(`kept %d bytes, omitted %d; want r.Stdout.Truncated(), bytes.HasSuffix(r.Stdout.Bytes(), []byte("end\n")), `+
			"len(r.Stdout.Bytes()) at most 1100", len(r.Stdout.Bytes()), r.Stdout.Omitted)
	}
}

// alive gives a killed process the moment that its end takes.
func alive(pid int) bool {
	for range 500 {
		if !running(pid) {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}

// running treats a zombie as gone: nothing of it runs.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// waitForFile polls for what another process does: there is nothing to wait on.
func waitForFile(t *testing.T, file string) []int {
	t.Helper()
	for range 1000 {
		data, err := os.ReadFile(file)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		var pids []int
		for _, f := range strings.Fields(string(data)) {
			pid, _ := strconv.Atoi(f)
			pids = append(pids, pid)
		}
		return pids
	}
	t.Fatal("the program did not begin")
	return nil
}

// slowWriter holds its first Write until it is released.
type slowWriter struct {
	held, release chan struct{}
	once          sync.Once
	got           bytes.Buffer
}

func (w *slowWriter) Write(p []byte) (int, error) {
	w.once.Do(func() {
		close(w.held)
		<-w.release
	})
	return w.got.Write(p)
}

// On a busy machine the time for the rest of the output can pass before any caller
// read it.
func TestOutputWrittenBeforeTheDeadlineIsKept(t *testing.T) {
	slow := &slowWriter{held: make(chan struct{}), release: make(chan struct{})}
	var cmd exec.Cmd
	p, err := connect(&cmd, slow, io.Discard, Spec{})
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if _, err := io.WriteString(cmd.Stdout, text); err != nil {
			t.Fatal(err)
		}
	}
	write("first ")
	<-slow.held
	write("second")
	p.expire(time.Now())
	close(slow.release)
	<-p.done
	if got := slow.got.String(); got != "first second" {
		t.Errorf("got %q, want %q", got, "first second")
	}
	p.started()
	p.wait(0)
}
