package sandbox

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/internal/platform/procgroup"
	"github.com/junctor-run/junctor/internal/platform/sandbox/jail"
)

// kind holds the parameters for starting a helper; all others are part of the job.
type kind struct {
	isolate bool // in new namespaces
	rawNet  bool // but in the machine's network namespace
	grouped bool // in a new control group
	noProc  bool // without a /proc
	bare    bool // without the system's files
	enclose bool // below T3: in an enclosure
}

func (r *confined) kind() kind {
	k := kind{isolate: r.p.Tier == T3, rawNet: r.p.Tier == T3 && r.p.Network == NetworkRaw, grouped: r.grouped(), bare: r.p.Tier == T3 &&
		r.c.Bare}
	_, k.noProc = r.p.Missing[LayerProc]
	k.enclose = !k.isolate && r.landlock() >= jail.MinEnclosingABI
	return k
}

// helperProcess is the server's own binary started again, waiting for a job or running it.
type helperProcess struct {
	cmd     *exec.Cmd
	control *net.UnixConn
	exited  chan struct{}
	group   *group // nil: none
	built   string // stamp of the private root that it has built ahead, or ""
	// last is true while the helper must end after the processes of its run: at T2, from the
	// job to the report of the end.
	last bool
}

// startHelper starts a helper, which waits for a job and ends when its control socket is
// closed. The caller must call close or discard.
func startHelper(k kind) (*helperProcess, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		return nil, err
	}
	control, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, errors.New("the control socket is not a socket")
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"junctor", helperName}, Dir: "/",
		Env:         []string{"GORACE=atexit_sleep_ms=0", "GOMAXPROCS=2", "GOGC=off", "GOMEMLIMIT=28MiB"},
		ExtraFiles:  []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if k.isolate {
		isolate(cmd.SysProcAttr, k.rawNet)
	}
	procgroup.SealDescriptors()
	start := cmd.Start
	if k.enclose {
		start = func() error { return startEnclosed(cmd) }
	}
	if err := start(); err != nil {
		control.Close()
		return nil, err
	}
	h := &helperProcess{cmd: cmd, control: control, exited: make(chan struct{})}
	go func() { // ends with the process
		defer close(h.exited)
		_ = cmd.Wait()
	}()
	if k.grouped { // in parallel with the helper's start, because entering takes the kernel milliseconds
		if err := h.enterGroup(); err != nil {
			h.close()
			return nil, err
		}
	}
	return h, nil
}

// startEnclosed starts cmd in an enclosure, from a thread that ends afterwards.
func startEnclosed(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		if err := jail.Enclose(); err != nil {
			result <- err
			return
		}
		cmd.Args = append(cmd.Args, jail.ArgEnclosed)
		result <- cmd.Start()
	}()
	return <-result
}

func (h *helperProcess) enterGroup() error {
	found, err := findCgroup()
	if err != nil {
		return err
	}
	if h.group, err = found.newGroup(); err != nil {
		return err
	}
	return h.group.add(h.cmd.Process.Pid)
}

// isolate requests the namespaces. Root does not need a user namespace, because the program
// runs as another user; otherwise a user namespace that contains only the server's user
// permits the other namespaces.
func isolate(attr *syscall.SysProcAttr, rawNet bool) {
	attr.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if !rawNet {
		attr.Cloneflags |= unix.CLONE_NEWNET
	}
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		return
	}
	attr.Cloneflags |= unix.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	// The helper is not root in the namespace either, so it keeps its capabilities over exec.
	attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_NET_ADMIN, unix.CAP_SYS_RESOURCE}
}

// give sends the job to the helper, with the descriptors of the program's streams, of work
// and tool unless they are nil, and of extra. The job is sent in an anonymous file, because
// other processes could read arguments and variables.
func (h *helperProcess) give(job jail.Job, streams *exec.Cmd, work, tool *os.File, extra []*os.File) error {
	job.HasWork, job.ToolHandle, job.Extra = work != nil, tool != nil, len(extra)
	file, err := anonymous(job)
	if err != nil {
		return err
	}
	defer file.Close()
	stdin, ok := streams.Stdin.(*os.File)
	if !ok {
		if stdin, err = os.Open(os.DevNull); err != nil {
			return err
		}
		defer stdin.Close()
	}
	stdout, _ := streams.Stdout.(*os.File)
	stderr, _ := streams.Stderr.(*os.File)
	var fds []int
	for _, f := range []*os.File{stdin, stdout, stderr, file, work, tool} {
		if f != nil {
			fds = append(fds, int(f.Fd()))
		}
	}
	for _, f := range extra {
		fds = append(fds, int(f.Fd()))
	}
	h.last = !job.Isolate
	_, _, err = h.control.WriteMsgUnix([]byte{jail.CommandJob}, unix.UnixRights(fds...), nil)
	return err
}

// anonymous returns a file in memory that contains v as JSON, positioned at its start.
func anonymous(v any) (*os.File, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("job", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "job")
	if _, err = file.Write(data); err == nil {
		_, err = file.Seek(0, 0)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// build lets the helper build the shared part of the private root before it receives a job.
func (h *helperProcess) build(s system) error {
	file, err := anonymous(s.room)
	if err != nil {
		return err
	}
	defer file.Close()
	h.built = s.stamp
	_, _, err = h.control.WriteMsgUnix([]byte{jail.CommandRoom}, unix.UnixRights(int(file.Fd())), nil)
	return err
}

// close ends a helper that may still run, and removes its group.
func (h *helperProcess) close() {
	h.end()
	if h.group != nil {
		h.group.remove()
	}
}

// end ends the helper: by a signal, or if it must end last, by closing its socket, after which it
// kills the processes of its run and ends with the last of them. It waits for the helper, but not
// longer than helperTimeout for one that must end last, and reports whether it has ended.
func (h *helperProcess) end() bool {
	if !h.last {
		_ = h.cmd.Process.Kill()
		<-h.exited
		h.control.Close()
		return true
	}
	h.control.Close()
	timer := time.NewTimer(helperTimeout)
	defer timer.Stop()
	select {
	case <-h.exited:
		return true
	case <-timer.C:
		return false
	}
}

// discard ends a used helper. If spares are enabled, it does so in the background, and Close
// waits for it.
func (b *Box) discard(h *helperProcess) {
	b.spares.mu.Lock()
	later := b.cfg.Spares > 0 && !b.spares.closed
	if later {
		b.spares.starting.Go(h.close)
	}
	b.spares.mu.Unlock()
	if !later {
		h.close()
	}
}

// spares are helpers that were started ahead, because most of the cost of a confined run is
// the start of this binary.
type spares struct {
	mu       sync.Mutex
	closed   bool
	waiting  map[kind][]*helperProcess
	coming   map[kind]int
	starting sync.WaitGroup
}

// takeHelper returns a spare helper, or starts one. It does not use a spare whose private
// root holds files that were replaced meanwhile.
func (b *Box) takeHelper(k kind, spare bool, stamp string) (h *helperProcess, warm bool, err error) {
	b.spares.mu.Lock()
	list := b.spares.waiting[k]
	for spare && len(list) > 0 && h == nil {
		h, list = list[0], list[1:]
		select {
		case <-h.exited: // it was killed from outside
			h.close()
			h = nil
		default:
			if h.built != stamp {
				h.close()
				h = nil
			}
		}
		b.spares.waiting[k] = list
	}
	b.spares.mu.Unlock()
	if h != nil {
		return h, true, nil
	}
	h, err = startHelper(k)
	return h, false, err
}

// refill starts helpers to replace the used ones, in the background.
func (b *Box) refill(k kind) {
	b.spares.mu.Lock()
	defer b.spares.mu.Unlock()
	if b.spares.closed || len(b.spares.waiting[k])+b.spares.coming[k] >= b.cfg.Spares {
		return
	}
	if b.spares.waiting == nil {
		b.spares.waiting, b.spares.coming = map[kind][]*helperProcess{}, map[kind]int{}
	}
	b.spares.coming[k]++
	b.spares.starting.Go(func() { // ends once the helper is started; Close waits
		h, err := startHelper(k)
		if err == nil && k.isolate {
			if err = h.build(b.system(k.noProc, k.bare)); err != nil {
				h.close()
			}
		}
		b.spares.mu.Lock()
		b.spares.coming[k]--
		keep := err == nil && !b.spares.closed
		if keep {
			b.spares.waiting[k] = append(b.spares.waiting[k], h)
		}
		b.spares.mu.Unlock()
		if err == nil && !keep {
			h.close()
		}
	})
}

// Close ends the spare helpers. Current runs continue; later ones start their helpers
// themselves.
func (b *Box) Close() {
	b.spares.mu.Lock()
	waiting := b.spares.waiting
	b.spares.waiting, b.spares.coming, b.spares.closed = nil, map[kind]int{}, true
	b.spares.mu.Unlock()
	b.spares.starting.Wait()
	for _, list := range waiting {
		for _, h := range list {
			h.close()
		}
	}
}
