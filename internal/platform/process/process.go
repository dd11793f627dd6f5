// Package process runs one program in its own pseudo-terminal, or with pipes, and removes
// everything that it started when it ends.
//
// The program leads a session and a process group, and dies with the server where the system
// supports that. An agent's program starts others, and some of those detach: they create a
// new session and are adopted by init. So the members of the tree are found by descent, by
// group, by session, and by a unique variable in their environment. A process that has left
// all four is not found.
package process

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/platform/procgroup"

	"github.com/creack/pty"

	"github.com/junctor-run/junctor/capability"
)

// Spec describes the program to run.
type Spec struct {
	Argv []string // the program, absolute, and its arguments
	Env  []string // the whole environment
	Dir  string
	Cols int
	Rows int
	// Mark is an entry of Env, "NAME=value", that is unique to this program. Every process
	// that has it belongs to the program's tree.
	Mark string
	// HangUp makes [Process.Ask] send SIGHUP, because an interactive shell ignores SIGTERM.
	HangUp bool
}

// Exit describes how a program ended.
type Exit struct {
	Code   int    // exit status; -n if signal n ended it
	Signal string // such as "SIGKILL"; "" if no signal ended it
	// Left is the number of other processes that had to be ended after it.
	Left int
}

// Process is a program that runs, or has run. Its methods are safe for concurrent use.
type Process struct {
	cmd   *exec.Cmd
	spec  Spec
	words io.Writer     // receives the standard error of a program without a terminal; nil with one
	heard chan struct{} // closed when words is complete; nil with a terminal
	in    *os.File      // the program's input; a terminal is both
	out   *os.File
	err   *os.File // the source of words
	done  chan struct{}
	exit  Exit // once done is closed
	mu    sync.Mutex
	ended bool // about to be reaped, so it must not be signaled
}

// Start runs the program. The caller must read until the end, because otherwise the program
// blocks once the terminal is full.
//
// Errors: invalid_input (program_missing) if the program or the folder does not exist, and
// failed.
func Start(spec Spec) (*Process, error) { return start(spec, nil) }

// StartPiped is like [Start] without a terminal: Read reads the program's standard output,
// Write writes its standard input, and its standard error is copied to words, which must not
// block and is complete when Done is closed. A size is ignored.
func StartPiped(spec Spec, words io.Writer) (*Process, error) { return start(spec, words) }

// start implements Start, and StartPiped if words is not nil.
func start(spec Spec, words io.Writer) (*Process, error) {
	const op = "tasks.start"
	cmd := &exec.Cmd{Path: spec.Argv[0], Args: spec.Argv, Env: append([]string{}, spec.Env...), Dir: spec.Dir}
	p := &Process{cmd: cmd, spec: spec, words: words, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			return nil, capability.Wrap(capability.CodeInvalidInput, op, "the program or the folder it is to work in cannot be used",
				err).With("program_missing", "")
		}
		return nil, capability.Wrap(capability.CodeFailed, op, "the program could not be started", err)
	}
	return p, nil
}

// run starts the program and waits for its end. It stays on one thread, because the program
// is to die with its parent, which is a thread.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	prepare(p.cmd, p.words == nil)
	open := p.terminal
	if p.words != nil {
		open = p.pipes
	}
	err := open()
	started <- err
	if err != nil {
		return
	}
	err = procgroup.Reap(p.cmd, func() {
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		p.exit.Left = sweep(p.cmd.Process.Pid, p.spec.Mark)
	})
	p.exit.Code, p.exit.Signal = status(p.cmd, err)
	_ = p.out.SetReadDeadline(time.Now().Add(lastWordsTimeout))
	if p.heard != nil { // a process that left the tree may keep it open forever
		_ = p.err.SetReadDeadline(time.Now().Add(lastWordsTimeout))
		<-p.heard
	}
}

// terminal starts the program in a pseudo-terminal.
func (p *Process) terminal() error {
	master, err := pty.StartWithAttrs(p.cmd, &pty.Winsize{Cols: clamp(p.spec.Cols), Rows: clamp(p.spec.Rows)}, p.cmd.SysProcAttr)
	if err != nil {
		return err
	}
	if p.out, err = pollable(master); err != nil {
		kill(p.cmd.Process.Pid)
		_ = p.cmd.Wait() // its status reports that it was killed
	}
	p.in = p.out
	return err
}

// pipes starts the program with three pipes.
func (p *Process) pipes() error {
	var ends [6]*os.File // of each pipe the read end, then the write end
	defer func() {
		for _, f := range []*os.File{ends[0], ends[3], ends[5]} { // the program has its own
			_ = f.Close()
		}
	}()
	ours := func() {
		for _, f := range []*os.File{ends[1], ends[2], ends[4]} {
			_ = f.Close()
		}
	}
	for i := 0; i < len(ends); i += 2 {
		var err error
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			ours()
			return err
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = ends[0], ends[3], ends[5]
	if err := p.cmd.Start(); err != nil {
		ours()
		return err
	}
	p.in, p.out, p.err = ends[1], ends[2], ends[4]
	p.heard = make(chan struct{})
	go func() {
		defer close(p.heard)
		_, _ = io.Copy(p.words, p.err)
		_ = p.err.Close()
	}()
	return nil
}

// Pid returns the process id of the program.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Read reads the program's output, from its terminal or pipe. It returns io.EOF at the end.
func (p *Process) Read(b []byte) (int, error) {
	n, err := p.out.Read(b)
	if err != nil && n == 0 {
		return 0, io.EOF // a terminal without an open slave returns EIO
	}
	return n, nil
}

// Write writes input to the program. It blocks while the program does not read and its
// terminal is full.
func (p *Process) Write(b []byte) (int, error) { return p.in.Write(b) }

// Resize changes the size of the program's terminal.
func (p *Process) Resize(cols, rows int) error {
	return resize(p.out, clamp(cols), clamp(rows))
}

func clamp(n int) uint16 { return uint16(min(max(n, 1), 1000)) }

// Done returns a channel that is closed when the program and its tree have ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit returns how the program ended, once Done is closed.
func (p *Process) Exit() Exit {
	<-p.done
	return p.exit
}

// Ask requests that the program and its group end, by SIGTERM, or SIGHUP with Spec.HangUp. It does
// nothing once the program has ended.
func (p *Process) Ask() { p.signal(func() { ask(p.cmd.Process.Pid, p.spec.HangUp) }) }

// Kill sends SIGKILL to the program's group. The rest of the tree is ended after the program's end.
func (p *Process) Kill() { p.signal(func() { kill(p.cmd.Process.Pid) }) }

// signal runs f unless the program has ended, so that its process id cannot belong to another
// process.
func (p *Process) signal(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		f()
	}
}

// Close closes the terminal or the pipes, which unblocks Write. Call it when reading is over.
func (p *Process) Close() error {
	if p.in != p.out {
		_ = p.in.Close() // without buffered data that could be lost
	}
	return p.out.Close()
}

// Sweep ends all programs that have the mark, and returns their number. They are left over
// from a server that was killed.
func Sweep(mark string) int {
	if name, value, ok := strings.Cut(mark, "="); !ok || name == "" || value == "" {
		return 0
	}
	return sweep(0, mark)
}
