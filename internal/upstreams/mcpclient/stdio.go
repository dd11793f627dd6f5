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

// The steps of stopping a process.
const (
	inputGrace = 2 * time.Second // after its input is closed
	termGrace  = 3 * time.Second // after SIGTERM
)

// processLink is a server that is a process of ours: a message a line, on its standard
// input and output.
type processLink struct {
	*conn
	queue  chan line
	stdin  *os.File
	stdout *os.File
	exited chan struct{} // the process is gone, and its group with it
	leader *exec.Cmd
	once   sync.Once
}

// line is a message on its way out; ex may be nil.
type line struct {
	text []byte
	ex   *exchange
}

// openProcess starts the program in a process group of its own.
func (c *Client) openProcess() (link, error) {
	cmd := exec.Command(c.cfg.Command[0], c.cfg.Command[1:]...)
	cmd.Dir = c.cfg.Dir
	cmd.Env = append([]string{}, c.cfg.Env...) // nil would be our own
	procgroup.Own(cmd, true)
	l := &processLink{conn: c.newConn(), queue: make(chan line), exited: make(chan struct{}), leader: cmd}
	pipes, err := newPipes(3)
	if err != nil {
		l.stop()
		return nil, err
	}
	cmd.Stdin, l.stdin = pipes[0].out, pipes[0].in
	l.stdout, cmd.Stdout = pipes[1].out, pipes[1].in
	stderr := pipes[2].out
	cmd.Stderr = pipes[2].in
	started := make(chan error, 1)
	if c.spawn(func() { l.run(started) }) {
		err = <-started
	} else {
		err = c.errClosed()
	}
	if err != nil {
		l.stop()
		l.stdin.Close()
		l.stdout.Close()
		stderr.Close()
		return nil, err
	}
	c.spawn(func() {
		_, _ = io.Copy(&c.stderr, stderr)
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

// run is the life of the process. Its thread stays the same, because the process is
// to die with its parent, and that is a thread.
func (l *processLink) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(l.exited)
	procgroup.SealDescriptors()
	err := l.leader.Start()
	for _, f := range []any{l.leader.Stdin, l.leader.Stdout, l.leader.Stderr} {
		f.(*os.File).Close() // the child has its own
	}
	started <- err
	if err != nil {
		return
	}
	err = procgroup.Reap(l.leader, func() { procgroup.Kill(l.leader) })
	// A process that left the group may still hold the output open.
	_ = l.stdout.SetReadDeadline(time.Now().Add(time.Second))
	l.log("the process of an upstream ended", err)
}

func (l *processLink) log(what string, err error) {
	l.c.log.Debug(what, "server", l.c.cfg.Name, "err", err)
}

func (l *processLink) shared() *conn { return l.conn }

func (l *processLink) begin(renewed bool) { l.c.beginShared(l) }

// beginShared starts what runs beside the calls of a link that all share.
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

// put hands a message to the writer: it goes out whole or not at all, however long
// the process takes to read.
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
				if out.ex.ended.Load() { // and the waiting caller may have read that it was not sent
					continue
				}
			}
			if _, err := l.stdin.Write(out.text); err != nil {
				l.log("an upstream takes no more input", err)
				_ = l.stdout.SetReadDeadline(time.Now().Add(time.Second)) // what it still has to say
				return
			}
		case <-l.ctx.Done():
			return
		}
	}
}

// read takes messages until the output ends, and the process with it.
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

// overlong ends the one exchange that a line over the limit answers, as far as its
// beginning tells, or there is but one.
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

// idIn finds the id of a message of which only the beginning is there.
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

// readLine reads a line without its end. Of one over the limit it returns the
// beginning and throws the rest away. The bytes are the caller's.
func readLine(in *bufio.Reader, limit int) (text []byte, whole bool, err error) {
	const head = 4 << 10
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if !long {
			text = append(text, part...)
			if len(text) > limit+1 {
				text, long = append([]byte(nil), text[:head]...), true
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

// close stops the process and its group. It returns when they are gone.
func (l *processLink) close(bool) {
	l.once.Do(func() {
		l.stop()
		l.stdin.Close()
		for _, step := range []struct {
			grace time.Duration
			then  func(*exec.Cmd)
		}{{inputGrace, procgroup.Terminate}, {termGrace, procgroup.Kill}} {
			t := time.NewTimer(step.grace)
			select {
			case <-l.exited:
				t.Stop()
				return
			case <-t.C:
				step.then(l.leader)
			}
		}
		<-l.exited
	})
}

// tail keeps the end of what is written to it.
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
