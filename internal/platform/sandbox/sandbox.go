// Package sandbox runs one program with the precautions that apply to every program,
// independent of its confinement: an environment built from an allow-list, no
// inherited descriptors, its own process group, a stop that reaches the whole
// group (TERM, then KILL), and output that is bounded while it is read, keeping
// head and tail with a marker between.
//
// That is [Run], tier T1. A [Box] confines a program on Linux by several layers:
// namespaces, a private root, Landlock, a filter of system calls, limits on the
// whole tree, and a proxy as the only way out (capability-runner). It reports the
// active layers, and runs nothing below the required tier.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/procgroup"
)

// Spec describes the program to run. Path is the resolved program; a shell is not
// involved unless it is the program.
type Spec struct {
	Path string
	// Self runs this process's own binary instead of Path. A confined run with /proc executes
	// the very file, even if its name was reused.
	Self bool
	Args []string // without the program's name
	Dir  string
	Env  []string // the whole environment; nil means empty, never the server's
	// StdoutLimit and StderrLimit bound the captured output; 0 means the defaults.
	StdoutLimit int
	StderrLimit int
	// MergeStderr writes both streams to Stdout in the order they came.
	MergeStderr bool
	// Grace is the time between TERM and KILL; 0 means 2 s.
	Grace time.Duration
	// Stdin is the program's input, up to MaxStdin bytes; nil means empty.
	Stdin []byte
	// Program is Path, already opened and verified; a confined run executes exactly that file.
	// The caller closes it. If nil, Path is trusted as it is.
	Program *os.File
	// Files become the program's descriptors 3, 4, …, up to MaxFiles of them: ends of pipes and
	// socket pairs by which it communicates with the server. The sandbox does not restrict what is
	// behind them. The caller closes them once Run has returned; until then the other ends do
	// not see an end of file.
	Files []*os.File
}

// Result is the outcome of a program that was started.
type Result struct {
	Stdout, Stderr Output
	ExitCode       int    // -1 when a signal ended it
	Signal         string // name of that signal, "" otherwise
	Started, Ended time.Time

	// Placement and Usage are those of a confined run.
	Placement Placement
	Usage     Usage
}

// Run starts the program and waits for it. The error is nil if the program ended by
// itself, with any exit code, and ctx's error if it was stopped because ctx ended (the
// Result then holds its output up to that point). Any other error means that it was not
// started. Processes that the program left behind in its group are killed before Run
// returns.
func Run(ctx context.Context, spec Spec) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if spec.Self {
		self, err := os.Executable()
		if err != nil {
			return Result{}, fmt.Errorf("find our own binary: %w", err)
		}
		spec.Path = self
	}
	cmd := exec.Command(spec.Path, spec.Args...)
	if spec.Self && runtime.GOOS == "linux" {
		cmd.Path = "/proc/self/exe" // the very file, even if its name was reused
	}
	cmd.Dir, cmd.Env, cmd.ExtraFiles = spec.Dir, spec.Env, spec.Files
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	procgroup.Own(cmd, false)
	procgroup.SealDescriptors()

	stdout := newCapture(limit(spec.StdoutLimit, DefaultStdoutLimit))
	stderr := newCapture(limit(spec.StderrLimit, DefaultStderrLimit))
	pumps, err := connect(cmd, stdout, stderr, spec)
	if err != nil {
		return Result{}, fmt.Errorf("open pipes: %w", err)
	}
	result := Result{Started: time.Now()}
	err = cmd.Start()
	pumps.started()
	if err != nil {
		pumps.wait(0)
		return Result{}, fmt.Errorf("start: %w", err)
	}

	exited := make(chan struct{})
	var waitErr error
	go func() { // ends when the leader does, and the leader is always killed in the end
		defer close(exited)
		waitErr = waitAndSweep(ctx, cmd, pumps, limitDuration(spec.Grace))
	}()
	stopped := supervise(ctx, cmd, exited, limitDuration(spec.Grace))
	pumps.wait(drainTimeout)

	result.Ended = time.Now()
	result.Stdout, result.Stderr = stdout.output(), stderr.output()
	result.ExitCode, result.Signal = status(cmd)
	if stopped {
		return result, ctx.Err()
	}
	if _, isExit := errors.AsType[*exec.ExitError](waitErr); waitErr != nil && !isExit {
		return result, fmt.Errorf("wait: %w", waitErr)
	}
	return result, nil
}

// supervise waits for the leader. Once ctx ends it stops the group: TERM, and KILL after
// grace. It reports whether it stopped the group.
func supervise(ctx context.Context, cmd *exec.Cmd, exited <-chan struct{}, grace time.Duration) bool {
	select {
	case <-exited:
		return false
	case <-ctx.Done():
	}
	procgroup.Terminate(cmd)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-exited:
	case <-timer.C:
		procgroup.Kill(cmd)
		<-exited
	}
	return true
}

// waitAndSweep waits for the leader to end and kills the rest of its group. After a stop, the
// rest gets the grace period to end by itself.
func waitAndSweep(ctx context.Context, cmd *exec.Cmd, pumps *pumps, grace time.Duration) error {
	return procgroup.Reap(cmd, func() {
		if ctx.Err() != nil {
			pumps.await(grace)
		}
		procgroup.Kill(cmd)
	})
}

func limit(n, otherwise int) int {
	if n <= 0 {
		return otherwise
	}
	return n
}

func limitDuration(d time.Duration) time.Duration {
	if d <= 0 {
		return defaultGrace
	}
	return d
}

// pumps copy the program's output into the captures.
type pumps struct {
	readers, writers []*os.File // writers: the program's ends, including that of its input
	input            *os.File   // nil: none
	wg               sync.WaitGroup
	done             chan struct{}
}

// connect gives cmd pipes as its streams and starts to copy them. The caller must call
// started and wait. Errors: too_large for Stdin or Files; otherwise a pipe failed to open.
func connect(cmd *exec.Cmd, stdout, stderr io.Writer, spec Spec) (*pumps, error) {
	if len(spec.Stdin) > MaxStdin {
		return nil, capability.Errorf(capability.CodeTooLarge, "sandbox.run", "a program's input may have %d bytes, and this has %d", MaxStdin,
			len(spec.Stdin))
	}
	if len(spec.Files) > MaxFiles {
		return nil, capability.Errorf(capability.CodeTooLarge, "sandbox.run",
			"a program may be given %d descriptors beside its streams, and this has %d", MaxFiles, len(spec.Files))
	}
	p := &pumps{done: make(chan struct{})}
	pipe := func(to io.Writer) (*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		p.readers, p.writers = append(p.readers, r), append(p.writers, w)
		p.wg.Go(func() { pump(to, r) }) // ends at EOF or at the read deadline set by wait
		return w, nil
	}
	out, err := pipe(stdout)
	errOut := out
	if err == nil && !spec.MergeStderr {
		errOut, err = pipe(stderr)
	}
	if err == nil && spec.Stdin != nil {
		err = p.feed(cmd, spec.Stdin)
	}
	if err != nil {
		p.started()
		p.wait(0)
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = out, errOut
	go func() { p.wg.Wait(); close(p.done) }() // ends with the pumps
	return p, nil
}

// feed sets cmd's Stdin to a pipe and writes data to it in the background.
func (p *pumps) feed(cmd *exec.Cmd, data []byte) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	p.writers, p.input = append(p.writers, r), w
	cmd.Stdin = r
	p.wg.Go(func() { // ends at EOF, at a read error, or at wait's deadline
		_, _ = w.Write(data)
		_ = w.Close()
	})
	return nil
}

// started closes the server's copies of the write ends, so that EOF can arrive.
func (p *pumps) started() {
	for _, w := range p.writers {
		_ = w.Close()
	}
}

// await returns at EOF of all streams, or after d.
func (p *pumps) await(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	}
}

// pump copies until EOF or until the read deadline. On a busy machine the deadline can pass
// before the program's output was read, so pump then reads what is available.
func pump(to io.Writer, r *os.File) {
	if _, err := io.Copy(to, r); errors.Is(err, os.ErrDeadlineExceeded) {
		_, _ = to.Write(readable(r))
	}
}

// wait ends the pumps: at EOF, or after d at the latest.
func (p *pumps) wait(d time.Duration) {
	p.expire(time.Now().Add(d))
	p.wg.Wait()
	for _, r := range p.readers {
		_ = r.Close()
	}
}

// expire sets the time at which the pumps end without EOF.
func (p *pumps) expire(deadline time.Time) {
	for _, r := range p.readers {
		_ = r.SetReadDeadline(deadline)
	}
	if p.input != nil {
		_ = p.input.SetWriteDeadline(deadline)
	}
}

// Environment returns the allow-listed variables of the server's environment, such as PATH,
// HOME, LANG and TMPDIR. The list excludes the server's credentials.
func Environment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SYSTEMROOT"} {
		if value, ok := os.LookupEnv(name); ok && !strings.ContainsRune(value, 0) {
			env = append(env, name+"="+value)
		}
	}
	return env
}
