package sandbox

import (
	"context"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/internal/platform/sandbox/jail"
)

// Start starts the program confined, with the caller's streams, and returns once it runs. It
// captures nothing: Stdin, the output limits and MergeStderr of the [Spec] are not used. Errors:
// those of [Box.Place] and the setup errors of [Box.Run]; a program never starts below T2. The
// process ends with the server at the latest.
func (b *Box) Start(spec Spec, c Confinement, streams Streams) (*Process, error) {
	if c.MinTier == T1 {
		c.MinTier = T2
	}
	p, err := b.Place(c)
	if err != nil {
		return nil, err
	}
	run := b.newRun(spec, c, p, b.Facts())
	run.started = make(chan struct{})
	if err := run.prepare(); err != nil {
		run.cleanUp()
		return nil, err
	}
	return run.start(streams)
}

// start gives the job to a new helper and waits until the program has started. The goroutine
// that it starts ends with the helper, and calls cleanUp.
func (r *confined) start(streams Streams) (*Process, error) {
	if r.facts.Root {
		for _, f := range []interface{ Chown(int, int) error }{streams.In, streams.Out, streams.Err} {
			_ = f.Chown(r.c.UID, r.c.GID) // it could not open /dev/stdout otherwise
		}
	}
	k := r.kind()
	if k.isolate {
		r.job.Room = r.box.system(k.noProc, k.bare).room
	}
	h, err := startHelper(k)
	if err != nil {
		r.cleanUp()
		return nil, setupFailed("start the helper", err)
	}
	err = h.give(r.job, &exec.Cmd{Stdin: streams.In, Stdout: streams.Out, Stderr: streams.Err}, r.work, r.tool, r.spec.Files)
	if err != nil {
		h.close()
		r.cleanUp()
		return nil, setupFailed("start the helper", err)
	}
	r.control, r.group = h.control, h.group
	go r.listen(context.Background()) // ends with the helper
	err = r.release()
	if err != nil {
		_ = h.cmd.Process.Kill()
	}
	p := &Process{placement: r.p, done: make(chan struct{}), process: &service{r: r, h: h}}
	go func() { // ends with the helper, whose tree ends when the server does
		defer close(p.done)
		<-r.events
		r.finish(h)
	}()
	select {
	case <-r.started:
		return p, nil
	case <-p.done:
	}
	if err != nil {
		return nil, setupFailed("control group", err)
	}
	_, err = r.verdict(context.Background(), Result{}, false)
	if err == nil { // it started and has ended already
		return p, nil
	}
	return nil, err
}

// finish ends the helper of a program that has ended, and whatever a killed helper left.
func (r *confined) finish(h *helperProcess) {
	r.mu.Lock()
	clean := r.ended != nil
	var result Result
	if clean && r.ended.Signal != 0 {
		result.Signal = unix.SignalName(unix.Signal(r.ended.Signal))
	}
	r.mu.Unlock()
	r.settle(h)
	if clean {
		h.end()
	}
	r.mu.Lock()
	if r.measure(&result) && r.limit == "" {
		r.limit = "processes"
	}
	r.group = nil // no longer asked once it is removed
	r.mu.Unlock()
	if h.group != nil {
		h.group.remove()
	}
	r.cleanUp()
}

// service is a confined run that was started by Start.
type service struct {
	r *confined
	h *helperProcess
}

func (s *service) terminate() { s.r.say(jail.CommandTerm) }

// kill kills the tree. At T3 the end of the helper ends it at once; at T2 the helper must end
// last, so that it finds every process.
func (s *service) kill() {
	s.r.say(jail.CommandKill)
	if s.r.p.Tier == T3 {
		_ = s.h.cmd.Process.Kill()
		return
	}
	timer := time.AfterFunc(helperTimeout, func() { s.r.control.Close() }) // ends listen
	go func() {                                                            // ends with the helper, or when the timer has closed its socket
		<-s.r.events
		timer.Stop()
	}()
}

func (s *service) limitText() string {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	kind := s.r.limit
	if kind == "" && s.r.group != nil {
		if s.r.group.killedForMemory() {
			kind = "memory"
		} else if _, refused := s.r.group.peak(); refused {
			kind = "processes"
		}
	}
	if kind == "" {
		return ""
	}
	return strings.ReplaceAll(kind, "_", " ") + " limit" + s.r.c.Limits.text(kind)
}
