//go:build linux

package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// stepError is the failed step of building the private root.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

func at(step string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{step, err}
}

// helper is the running helper.
type helper struct {
	job   Job
	work  int    // handle of the work directory, if the job has one
	tool  int    // handle of the program, if it does
	extra []int  // the program's descriptors from 3 on
	base  string // where the private root is being built, "" before
	// enclosed is true if the kernel lets this process signal only itself and the run's tree.
	enclosed bool
	send     sync.Mutex

	mu       sync.Mutex
	pid      int // of the program, 0 before it is started
	exceeded string
}

// Main runs the helper, and returns its exit status. The status is 0 once the program's end
// was reported, for every outcome of the program.
//
// With [ArgEnclosed] as its argument, the process was started in an enclosure (see [Enclose]).
func Main(args []string) int {
	// Inherited descriptors are closed here, including those without close-on-exec.
	if err := unix.CloseRange(ControlFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		closeOnExecByHand()
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // prevents other processes from reading the job from this memory
	haveThreads()
	h := &helper{enclosed: len(args) == 1 && args[0] == ArgEnclosed && isEnclosed()}
	if err := h.life(); err != nil {
		step, errno := "sandbox", syscall.Errno(0)
		if s, ok := errors.AsType[*stepError](err); ok {
			step = s.step
		}
		errors.As(err, &errno)
		h.event(Event{Kind: EventFailed, Step: step, Errno: int(errno), Detail: err.Error()})
		h.killAll()
		if !h.job.Isolate {
			h.sweep()
		}
		return 1
	}
	return 0
}

// closeOnExecByHand is for kernels without close_range(CLOSE_RANGE_CLOEXEC), new in "5.11".
func closeOnExecByHand() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= ControlFD {
			unix.CloseOnExec(fd)
		}
	}
}

func (h *helper) life() error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)

	for ready := false; !ready; {
		var err error
		if ready, err = h.receive(); err != nil {
			return err
		}
	}
	pid, err := h.begin()
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.pid = pid
	h.mu.Unlock()
	h.event(Event{Kind: EventStarted})
	h.letGoOfStreams()
	go h.obey() // ends with the process
	go func() {
		for range signals {
			h.terminate()
		}
	}()
	go h.watch()
	return h.wait(pid)
}

// receive handles one command before the program starts: CommandRoom builds the shared part
// of the private root; CommandJob stores the job, and ready is true. Apart from the streams,
// descriptors keep their numbers, because the runtime may use any other number.
func (h *helper) receive() (ready bool, err error) {
	what, fds, err := message()
	if err != nil {
		return false, at("read the job", err)
	}
	if what == CommandRoom && len(fds) == 1 {
		var r Room
		if err := readJSON(fds[0], &r); err != nil {
			return false, at("read the room", err)
		}
		return false, h.ahead(&r)
	}
	if what != CommandJob || len(fds) < 4 {
		return false, at("read the job", io.ErrUnexpectedEOF)
	}
	return true, at("read the job", h.take(fds))
}

// message receives a command and its descriptors.
func message() (what byte, fds []int, err error) {
	buf, oob := make([]byte, 16), make([]byte, 256)
	n, oobn, _, _, err := unix.Recvmsg(ControlFD, buf, oob, unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		n, oobn, _, _, err = unix.Recvmsg(ControlFD, buf, oob, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil {
		return 0, nil, err
	}
	if n != 1 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return 0, nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	fds, err = unix.ParseUnixRights(&messages[0])
	return buf[0], fds, err
}

func readJSON(fd int, v any) error {
	file := os.NewFile(uintptr(fd), "message")
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// take stores the descriptors of CommandJob: it makes the first three the standard streams,
// reads the job from the fourth, and assigns the rest to work, tool and extra. A number of
// descriptors that contradicts the job is io.ErrUnexpectedEOF.
func (h *helper) take(fds []int) (err error) {
	for i, fd := range fds[:3] {
		if err := unix.Dup3(fd, i, 0); err != nil {
			return err
		}
		_ = unix.Close(fd)
	}
	if err := readJSON(fds[3], &h.job); err != nil {
		return err
	}
	rest := fds[4:]
	for _, want := range []struct {
		is bool
		to *int
	}{{h.job.HasWork, &h.work}, {h.job.ToolHandle, &h.tool}} {
		if !want.is {
			continue
		}
		if len(rest) == 0 {
			return io.ErrUnexpectedEOF
		}
		*want.to, rest = rest[0], rest[1:]
	}
	if len(rest) != h.job.Extra {
		return io.ErrUnexpectedEOF
	}
	h.extra = rest
	return nil
}

// begin builds the private root, or at T2 becomes the subreaper, waits for CommandGo and
// starts the program.
func (h *helper) begin() (pid int, err error) {
	syscall.Umask(0o022) // of the room; the program's is set after it
	if h.job.Isolate {
		if err := h.room(); err != nil {
			return 0, err
		}
	} else if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, at("become the subreaper", err)
	}
	if h.job.Proxy {
		if err := h.listen(); err != nil {
			return 0, at("listen for the proxy", err)
		}
	}
	syscall.Umask(0o077)
	if h.job.Dir != "" {
		err = unix.Chdir(h.job.Dir)
	} else {
		err = unix.Fchdir(h.work)
	}
	if err != nil {
		return 0, at("enter the work directory", err)
	}
	// The server adds this process to its control group and then sends CommandGo. The
	// private root is built meanwhile, because adding takes the kernel milliseconds.
	if c, err := h.command(); err != nil || c != CommandGo {
		return 0, at("wait to begin", errors.Join(err, io.ErrUnexpectedEOF))
	}
	return h.start()
}

// listen creates the proxy's listener inside the network namespace and passes it to the
// server, which accepts on it for this run only.
func (h *helper) listen() error {
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(ProxyPort))
	if err != nil {
		return err
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer f.Close()
	h.send.Lock()
	defer h.send.Unlock()
	data, err := json.Marshal(Event{Kind: EventListener})
	if err != nil {
		return err
	}
	return unix.Sendmsg(ControlFD, data, unix.UnixRights(int(f.Fd())), nil, 0)
}

// letGoOfStreams closes the helper's copies of the program's descriptors and replaces its
// streams by /dev/null, so that the server's reads end when the program closes its own.
func (h *helper) letGoOfStreams() {
	for _, fd := range h.extra {
		_ = unix.Close(fd)
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		for fd := range 3 {
			_ = unix.Close(fd)
		}
		return
	}
	for fd := range 3 {
		_ = unix.Dup3(null, fd, 0)
	}
}

func (h *helper) event(e Event) {
	data, err := json.Marshal(e)
	if err != nil {
		return
	}
	h.send.Lock()
	defer h.send.Unlock()
	for {
		if err := unix.Sendmsg(ControlFD, data, nil, nil, unix.MSG_NOSIGNAL); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (h *helper) command() (byte, error) {
	buf := make([]byte, 16)
	for {
		n, err := unix.Read(ControlFD, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return buf[0], nil
		}
	}
}

// obey executes commands. The end of the socket is the end of the parent, which this process
// must not outlive.
func (h *helper) obey() {
	for {
		c, err := h.command()
		switch {
		case err == nil && c == CommandTerm:
			h.terminate()
		case err != nil:
			h.killUntilNone()
			os.Exit(1)
		case c == CommandKill:
			h.killAll()
		}
	}
}
