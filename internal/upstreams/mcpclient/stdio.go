package mcpclient

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/internal/platform/procgroup"
)

// processLink is a server that the client started as a process. Each line of its standard
// input and output is a message.
type processLink struct {
	*conn
	queue  chan line
	stdin  *os.File
	stdout *os.File
	exited chan struct{} // closed when the process and all it started have ended
	once   sync.Once

	process Process // nil until it was started; set before openProcess returns
}

// Process is a program that was started, with all that it starts itself.
type Process interface {
	Wait()
	Terminate()
	Kill()
}

// localProcess is a program in its own process group, without confinement.
type localProcess struct{ *exec.Cmd }

// Wait returns when the program has ended, and ends the rest of its group.
func (p localProcess) Wait() { _ = procgroup.Reap(p.Cmd, func() { procgroup.Kill(p.Cmd) }) }

// Terminate asks the group to end.
func (p localProcess) Terminate() { procgroup.Terminate(p.Cmd) }

// Kill ends the group.
func (p localProcess) Kill() { procgroup.Kill(p.Cmd) }

// startLocal starts Config.Command in its own process group.
func (c *Client) startLocal(in, out, errs *os.File) (Process, error) {
	cmd := exec.Command(c.cfg.Command[0], c.cfg.Command[1:]...)
	cmd.Dir = c.cfg.Dir
	cmd.Env = append([]string{}, c.cfg.Env...) // nil would inherit the server's
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errs
	procgroup.Own(cmd, true)
	procgroup.SealDescriptors()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return localProcess{cmd}, nil
}

// line is an outgoing message; ex may be nil.
type line struct {
	text []byte
	ex   *exchange
}

// openProcess starts the program with Config.Start, or in its own process group.
func (c *Client) openProcess() (link, error) {
	l := &processLink{conn: c.newConn(), queue: make(chan line), exited: make(chan struct{})}
	pipes, err := newPipes(3)
	if err != nil {
		l.stop()
		return nil, err
	}
	l.stdin, l.stdout = pipes[0].in, pipes[1].out
	stderr := pipes[2].out
	started := make(chan error, 1)
	if c.spawn(func() { l.run(pipes[0].out, pipes[1].in, pipes[2].in, started) }) {
		err = <-started
	} else {
		err = c.errClosed()
		pipes[0].out.Close()
		pipes[1].in.Close()
		pipes[2].in.Close()
	}
	if err != nil {
		l.stop()
		l.stdin.Close()
		l.stdout.Close()
		stderr.Close()
		return nil, err
	}
	c.spawn(func() {
		var out io.Writer = &c.stderr
		if c.cfg.Errors != nil {
			out = io.MultiWriter(out, c.cfg.Errors)
		}
		_, _ = io.Copy(out, stderr)
		stderr.Close()
	})
	c.spawn(l.write)
	c.spawn(l.read)
	return l, nil
}

type pipe struct{ out, in *os.File }

func newPipes(n int) ([]pipe, error) {
	var pipes []pipe
	for range n {
		out, in, err := os.Pipe()
		if err != nil {
			for _, p := range pipes {
				p.out.Close()
				p.in.Close()
			}
			return nil, err
		}
		pipes = append(pipes, pipe{out, in})
	}
	return pipes, nil
}

// run starts the process with its ends of the pipes and waits for its end. It locks its
// thread, because a local process is set to die with its parent thread.
func (l *processLink) run(in, out, errs *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(l.exited)
	start := l.c.cfg.Start
	if start == nil {
		start = l.c.startLocal
	}
	process, err := start(in, out, errs)
	for _, f := range []*os.File{in, out, errs} {
		f.Close() // the child has its own copy
	}
	l.process = process
	started <- err
	if err != nil {
		return
	}
	process.Wait()
	// A process that left the group may still hold the output open.
	_ = l.stdout.SetReadDeadline(time.Now().Add(time.Second))
	l.log("the process of an upstream ended", nil)
}

func (l *processLink) log(what string, err error) {
	l.c.log.Debug(what, "server", l.c.cfg.Name, "err", err)
}

func (l *processLink) shared() *conn { return l.conn }

func (l *processLink) begin(renewed bool) { l.c.beginShared(l) }

// beginShared starts the background work of a link with one shared stream.
func (c *Client) beginShared(lk link) {
	if lk.shared().server.Modern() {
		c.spawn(func() { c.listen(lk) })
		return
	}
	c.spawn(func() { c.restore(lk) })
}

func (l *processLink) start(ctx context.Context, ex *exchange) {
	if err := l.put(ctx, line{text: ex.body(), ex: ex}); err != nil {
		ex.end(answer{err: err})
	}
}

func (l *processLink) post(ctx context.Context, body []byte) error {
	return l.put(ctx, line{text: body})
}

// put queues a message for the writer, which writes it completely even if ctx ends
// meanwhile. A message above maxLine is too_large.
func (l *processLink) put(ctx context.Context, out line) error {
	if len(out.text) > maxLine {
		return l.c.askedTooMuch(maxLine)
	}
	out.text = append(oneLine(out.text), '\n')
	select {
	case l.queue <- out:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.ctx.Done():
		return errors.New("the process is being stopped")
	}
}

func (l *processLink) write() {
	for {
		select {
		case out := <-l.queue:
			if out.ex != nil {
				out.ex.sent.Store(true)
				if out.ex.ended.Load() { // its caller may already have reported that it was not sent
					continue
				}
			}
			if _, err := l.stdin.Write(out.text); err != nil {
				l.log("an upstream takes no more input", err)
				_ = l.stdout.SetReadDeadline(time.Now().Add(time.Second)) // for its remaining output
				return
			}
		case <-l.ctx.Done():
			return
		}
	}
}

// read handles messages until the output ends, and then the link is lost.
func (l *processLink) read() {
	err := l.messages()
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) {
		err = errEnded
	}
	l.c.lost(l, err)
	l.stdout.Close()
}

func (l *processLink) messages() error {
	in := bufio.NewReaderSize(l.stdout, 64<<10)
	garbage := 0
	for {
		raw, whole, err := readLine(in, maxLine)
		if err != nil {
			return err
		}
		if !whole {
			l.overlong(raw)
			continue
		}
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		list, err := parseAll(raw)
		if err != nil {
			garbage++
			if l.c.cfg.Unreadable != nil {
				l.c.cfg.Unreadable(raw)
			}
			l.c.log.Warn("an upstream wrote a line that is not a message", "server", l.c.cfg.Name, "in_a_row", garbage)
			if garbage == maxGarbage {
				return fmt.Errorf("%d %w", garbage, errGarbage)
			}
			continue
		}
		garbage = 0
		for _, m := range list {
			receive(l, nil, m)
		}
	}
}

// overlong ends the exchange that a line above the limit answers, by the id in its
// beginning, or the only one in flight, with too_large.
func (l *processLink) overlong(head []byte) {
	ex := l.flight.sole()
	if id, ok := idIn(head); ok {
		ex = l.flight.get(id)
	}
	l.c.log.Warn("an upstream wrote a line over the limit", "server", l.c.cfg.Name, "limit", maxLine)
	if ex != nil {
		ex.end(answer{err: l.c.tooLarge(maxLine)})
	}
}

// idIn returns the id of a message of which only the beginning is known.
func idIn(head []byte) (int64, bool) {
	dec := jsontext.NewDecoder(bytes.NewReader(head), jsontext.AllowInvalidUTF8(true))
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '{' {
		return 0, false
	}
	for dec.PeekKind() == '"' {
		t, err := dec.ReadToken()
		if err != nil {
			break
		}
		found := t.String() == "id"
		value, err := dec.ReadValue()
		if err != nil {
			break
		}
		if found {
			id, err := strconv.ParseInt(string(value), 10, 64)
			return id, err == nil
		}
	}
	return 0, false
}

// readLine reads a line without its line break. If it exceeds limit, readLine returns the
// beginning, discards the rest, and whole is false. The caller owns the bytes.
func readLine(in *bufio.Reader, limit int) (text []byte, whole bool, err error) {
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if !long {
			text = append(text, part...)
			if len(text) > limit+1 {
				text, long = append([]byte(nil), text[:maxLongLine]...), true
			}
		}
		if err == nil {
			return bytes.TrimSuffix(text, []byte("\n")), !long, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, false, err
		}
	}
}

// close stops the process and its group, and waits for their end.
func (l *processLink) close(bool) {
	l.once.Do(func() {
		l.stop()
		l.stdin.Close()
		for _, step := range []struct {
			grace time.Duration
			then  func()
		}{{inputGrace, l.process.Terminate}, {termGrace, l.process.Kill}} {
			t := time.NewTimer(step.grace)
			select {
			case <-l.exited:
				t.Stop()
				return
			case <-t.C:
				step.then()
			}
		}
		<-l.exited
	})
}

// tail is a writer that keeps the end of its input.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > 2*maxStderr {
		t.text = append(t.text[:0], t.text[len(t.text)-maxStderr:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text[max(0, len(t.text)-maxStderr):])
}
