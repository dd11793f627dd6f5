package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
	"github.com/junctor-run/junctor/internal/platform/sandbox/jail"
	"github.com/junctor-run/junctor/internal/platform/sandbox/seccomp"
)

// reasonLimit is the reason of a run that exceeded one of its limits.
const reasonLimit = "resource_limit"

// HelperMain runs this process as the helper or the canary, and returns its exit status. See
// [IsHelper].
func HelperMain(argv []string) int {
	if argv[1] == canaryName {
		return canaryMain(argv[2:])
	}
	return jail.Main(argv[2:])
}

// ComputeOnly permanently restricts this process to computing and the descriptors that it
// has: see [seccomp.ComputeOnly].
func ComputeOnly() error { return seccomp.ComputeOnly() }

// Run runs the program confined, and waits for it. Paths of the [Spec] are paths outside the
// private root. The error is nil if the program ended by itself, and ctx's error if it was
// stopped because ctx ended. Further errors: those of [Box.Place]; denied, reason
// security_violation, for a directory outside Work; failed, reason sandbox_setup_failed,
// with details step and errno, if the private root could not be built; failed, reason
// resource_limit, with detail kind (memory, cpu, processes, file_size, disk); failed, reason
// output_limit. The result holds the program's output up to that point. When Run returns, the
// program and everything it started have ended.
func (b *Box) Run(ctx context.Context, spec Spec, c Confinement) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	p, err := b.Place(c)
	if err != nil {
		return Result{}, err
	}
	if p.Tier == T1 {
		if spec.Dir == "" {
			spec.Dir = c.Work
		}
		r, err := Run(ctx, spec)
		r.Placement = p
		return r, err
	}
	return b.launch(ctx, spec, c, p, b.Facts())
}

// launch implements Run at T2 and T3, for a placement that was already decided.
func (b *Box) launch(ctx context.Context, spec Spec, c Confinement, p Placement, f Facts) (Result, error) {
	run := b.newRun(spec, c, p, f)
	defer run.cleanUp()
	if err := run.prepare(); err != nil {
		return Result{Placement: p}, err
	}
	return run.execute(ctx)
}

// newRun returns the state of a run whose placement was decided. The caller calls cleanUp.
func (b *Box) newRun(spec Spec, c Confinement, p Placement, f Facts) *confined {
	c.Limits = c.Limits.withDefaults()
	if c.ServerUser {
		c.UID, c.GID = os.Geteuid(), os.Getegid()
	} else if c.UID == 0 {
		c.UID, c.GID = DefaultUID, DefaultUID
	}
	return &confined{box: b, spec: spec, c: c, p: p, facts: f, events: make(chan struct{})}
}

// confined is the state of one run.
type confined struct {
	box   *Box
	spec  Spec
	c     Confinement
	p     Placement
	facts Facts

	job     jail.Job
	work    *os.File      // handle of the work directory; at T2 without one, of the temporary directory
	tool    *os.File      // handle of the program if it is executed by handle
	temp    string        // temporary directory of T2, removed by cleanUp
	group   *group        // the helper's
	control *net.UnixConn // the helper's
	warm    bool          // the helper was a spare
	proxy   sync.WaitGroup
	unproxy context.CancelFunc

	events chan struct{} // closed after the helper's last event

	mu      sync.Mutex
	ended   *jail.Event
	failed  *jail.Event
	limit   string
	flooded bool
	remain  bool          // processes of the run live that could not be killed
	started chan struct{} // if not nil, closed when the program was started
}

// cleanUp ends the proxy, closes the handles and removes the temporary directory.
func (r *confined) cleanUp() {
	if r.unproxy != nil {
		r.unproxy()
	}
	r.proxy.Wait()
	if r.work != nil {
		_ = r.work.Close()
	}
	if r.tool != nil {
		_ = r.tool.Close()
	}
	if r.temp != "" {
		_ = hostfs.RemoveAll(r.temp)
	}
}

func setupFailed(step string, err error) *capability.Error {
	e := capability.Wrap(capability.CodeFailed, "sandbox.run", "the sandbox could not be set up: "+step, err).
		With("sandbox_setup_failed", "see: junctor debug sandbox status").Detail("step", step)
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		e = e.Detail("errno", unix.ErrnoName(errno))
	}
	return e
}

// execute sends the job to a helper. If a spare helper could not build the private root,
// because the machine's mounts changed since it was started, a new helper builds it again;
// the program was not started before.
func (r *confined) execute(ctx context.Context) (Result, error) {
	result, err := r.attempt(ctx, true)
	if r.failed != nil && r.warm && r.failed.Step != "start the program" {
		if r.unproxy != nil {
			r.unproxy()
			r.proxy.Wait()
		}
		r.failed, r.ended, r.limit, r.events = nil, nil, "", make(chan struct{})
		return r.attempt(ctx, false)
	}
	return result, err
}

// attempt runs the job once in a helper: a spare one only if spare is set and one matches.
// When it returns, the program's tree has ended.
func (r *confined) attempt(ctx context.Context, spare bool) (Result, error) {
	result := Result{Placement: r.p}
	flood := make(chan struct{}, 2)
	overflow := func() { flood <- struct{}{} }
	stdout := newCapture(limit(r.spec.StdoutLimit, DefaultStdoutLimit))
	stderr := newCapture(limit(r.spec.StderrLimit, DefaultStderrLimit))
	stdout.flood, stderr.flood = overflow, overflow
	var streams exec.Cmd
	pumps, err := connect(&streams, stdout, stderr, r.spec)
	if err != nil {
		if e, ok := errors.AsType[*capability.Error](err); ok {
			return result, e
		}
		return result, setupFailed("open pipes", err)
	}
	if r.facts.Root {
		pumps.giveTo(r.c.UID, r.c.GID)
	}
	result.Started = time.Now()
	var shared system
	k := r.kind()
	if k.isolate {
		shared = r.box.system(k.noProc, k.bare)
	}
	h, warm, err := r.box.takeHelper(k, spare, shared.stamp)
	r.warm = warm
	if err == nil {
		defer r.box.discard(h)
		if r.job.Room = nil; h.built == "" {
			r.job.Room = shared.room
		}
		err = h.give(r.job, &streams, r.work, r.tool, r.spec.Files)
	}
	pumps.started()
	if err != nil {
		pumps.wait(0)
		return result, setupFailed("start the helper", err)
	}
	r.control, r.group = h.control, h.group
	go r.listen(ctx) // ends with the helper, which discard always kills
	if err = r.release(); err != nil {
		_ = h.cmd.Process.Kill()
	}
	stopped := r.supervise(ctx, h.cmd, flood)
	r.settle(h)
	pumps.wait(drainTimeout)
	r.box.refill(k)

	result.Ended = time.Now()
	result.Stdout, result.Stderr = stdout.output(), stderr.output()
	if err != nil {
		return result, setupFailed("control group", err)
	}
	return r.verdict(ctx, result, stopped)
}

// giveTo assigns the program's ends of its pipes to its user, because it could not open
// /dev/stdout otherwise.
func (p *pumps) giveTo(uid, gid int) {
	for _, w := range p.writers {
		_ = w.Chown(uid, gid)
	}
}

// release sets the limits of the control group and lets the helper go on.
func (r *confined) release() error {
	if r.group != nil {
		if err := r.group.limit(r.c.Limits, helperThreads); err != nil {
			return err
		}
	}
	r.say(jail.CommandGo)
	return nil
}

// say sends a command to the helper, and ignores errors, such as that the helper has ended.
func (r *confined) say(command byte) { _, _ = r.control.Write([]byte{command}) }

// supervise waits until the helper has reported the end of the program and its whole tree. It
// stops the program once ctx ends or the program exceeds the output limit, and reports
// whether ctx was the cause. The helper itself may still run, because the kernel takes a
// millisecond to remove its namespaces, for which callers need not wait.
func (r *confined) supervise(ctx context.Context, cmd *exec.Cmd, flood <-chan struct{}) bool {
	stopped := false
	select {
	case <-r.events:
		return false
	case <-flood:
		r.mu.Lock()
		r.flooded = true
		r.mu.Unlock()
	case <-ctx.Done():
		stopped = true
		r.say(jail.CommandTerm)
		timer := time.NewTimer(limitDuration(r.spec.Grace))
		defer timer.Stop()
		select {
		case <-r.events:
			return true
		case <-timer.C:
		}
	}
	r.say(jail.CommandKill)
	if r.p.Tier != T3 { // at T2 the helper must end last; at T3 its end kills the tree
		timer := time.NewTimer(helperTimeout)
		defer timer.Stop()
		select {
		case <-r.events:
			return stopped
		case <-timer.C:
		}
	}
	if r.group != nil {
		r.group.kill()
	}
	if r.p.Tier == T3 {
		_ = cmd.Process.Kill()
	} else { // ends listen; the helper goes on until its tree is empty
		r.control.Close()
	}
	<-r.events
	return stopped
}

// settle ends the helper if it did not report that the tree ended: at T3 that ends the tree; at T2
// the helper ends the tree and then itself. It records whether processes remain.
func (r *confined) settle(h *helperProcess) {
	r.mu.Lock()
	reported := r.ended != nil || r.failed != nil
	r.mu.Unlock()
	if reported {
		h.last = false
		return
	}
	gone := h.end()
	if r.group != nil { // at T2 the tree can outlive a helper that was killed from outside
		gone = r.group.killAll()
	}
	r.mu.Lock()
	r.remain = !gone
	r.mu.Unlock()
}

// helperTimeout is how long the helper may take to kill and reap a tree at T2. A storm of forks leaves
// it little time of the processors until its signal has ended the storm.
const helperTimeout = 30 * time.Second

// listen reads the helper's events until the last one, or until the helper ends.
func (r *confined) listen(ctx context.Context) {
	defer close(r.events)
	buf, oob := make([]byte, 8<<10), make([]byte, 256)
	for {
		n, oobn, _, _, err := r.control.ReadMsgUnix(buf, oob)
		if err != nil || n == 0 {
			return
		}
		var e jail.Event
		if json.Unmarshal(buf[:n], &e) != nil {
			continue
		}
		r.mu.Lock()
		switch e.Kind {
		case jail.EventFailed:
			r.failed = &e
		case jail.EventEnded:
			r.ended = &e
		case jail.EventLimit:
			r.limit = e.Limit
		}
		r.mu.Unlock()
		switch e.Kind {
		case jail.EventStarted:
			if r.started != nil {
				close(r.started)
			}
		case jail.EventListener:
			r.serveProxy(ctx, oob[:oobn])
		case jail.EventEnded, jail.EventFailed:
			return
		}
	}
}

// serveProxy starts the egress proxy on the listener that a message includes. It does nothing
// if the message does not include exactly one descriptor of a listener.
func (r *confined) serveProxy(ctx context.Context, oob []byte) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return
	}
	unix.CloseOnExec(fds[0])
	file := os.NewFile(uintptr(fds[0]), "proxy")
	l, err := net.FileListener(file)
	_ = file.Close()
	if err != nil {
		return
	}
	proxyCtx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a stopping program may still use the network
	r.unproxy = cancel
	r.proxy.Go(func() { // ends in cleanUp
		_ = egress.Serve(proxyCtx, l, egress.Config{
			Policy: r.c.Egress, Resolver: r.box.cfg.Resolver, Dialer: r.box.cfg.Dialer, OnDecision: r.c.OnEgress,
		})
	})
}

// verdict completes result and returns the first error that applies: output limit, resource
// limit, ctx's error if stopped, failed setup, helper ended without report.
func (r *confined) verdict(ctx context.Context, result Result, stopped bool) (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	result.ExitCode = -1
	if e := r.ended; e != nil {
		result.ExitCode = e.Code
		if e.Signal != 0 {
			result.Signal = unix.SignalName(syscall.Signal(e.Signal))
		}
		result.Usage = Usage{User: e.Usage.User, System: e.Usage.System, MaxRSS: e.Usage.MaxRSS}
	}
	refused := r.measure(&result)
	if r.limit == "" && refused && result.ExitCode != 0 && !stopped {
		r.limit = "processes"
	}
	switch {
	case r.remain:
		return result, capability.Errorf(capability.CodeFailed, "sandbox.run",
			"the program was stopped, but the kernel has not ended all of its processes yet").
			With("processes_remain", "look for processes in state D on the server; the sandbox's helper ends them as soon as it can")
	case r.flooded:
		return result, capability.Errorf(capability.CodeFailed, "sandbox.run",
			"the program wrote more than %d times the %d bytes that are kept of its output", floodFactor,
			limit(r.spec.StdoutLimit, DefaultStdoutLimit)).With("output_limit", "")
	case r.limit != "":
		return result, capability.Errorf(capability.CodeFailed, "sandbox.run", "the program went over its %s limit%s",
			strings.ReplaceAll(r.limit, "_", " "), r.c.Limits.text(r.limit)).
			With(reasonLimit, "raise the limit in the extension's manifest, up to the operator's ceiling").Detail("kind", r.limit)
	case stopped:
		return result, ctx.Err()
	case r.failed != nil:
		e := setupFailed(r.failed.Step, errors.New(r.failed.Detail)).Detail("detail", r.failed.Detail)
		if r.failed.Errno != 0 {
			e = e.Detail("errno", unix.ErrnoName(syscall.Errno(r.failed.Errno)))
		}
		return result, e
	case r.ended == nil:
		return result, setupFailed("watch the program", fmt.Errorf("the helper ended without a word"))
	}
	return result, nil
}

// measure adds the usage of the control group to result, and sets the limit that the signal of
// the program or its group shows. It reports whether a new process was refused. The caller
// holds mu.
func (r *confined) measure(result *Result) (refused bool) {
	if r.group != nil {
		result.Usage.MaxMemory, refused = r.group.peak()
		if r.limit == "" && r.group.killedForMemory() {
			r.limit = "memory"
		}
	}
	switch {
	case r.limit != "":
	case result.Signal == "SIGXCPU":
		r.limit = "cpu"
	case result.Signal == "SIGXFSZ":
		r.limit = "file_size"
	}
	return refused
}
