//go:build linux

package jail

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// terminate sends TERM: at T3 to every process of the namespace, else to the program's group.
func (h *helper) terminate() {
	h.mu.Lock()
	pid := h.pid
	h.mu.Unlock()
	switch {
	case h.job.Isolate:
		_ = unix.Kill(-1, unix.SIGTERM)
	case pid > 0:
		_ = unix.Kill(-pid, unix.SIGTERM)
	}
}

// killAll sends KILL once to every process of the run. At T3 that reaches the whole namespace;
// at T2 a process may start another meanwhile, so callers repeat it until the tree is empty.
func (h *helper) killAll() {
	if h.job.Isolate {
		_ = unix.Kill(-1, unix.SIGKILL)
		return
	}
	for _, p := range h.tree() {
		_ = unix.Kill(p.pid, unix.SIGKILL)
	}
}

// killUntilNone repeats killAll until the tree is empty, for at most 5 s; at T3 it calls it
// once. The goroutine in wait must reap the killed processes meanwhile.
func (h *helper) killUntilNone() {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		h.killAll()
		if h.job.Isolate || len(h.tree()) == 0 {
			return
		}
	}
}

// exceed records the first limit that was exceeded and kills the tree.
func (h *helper) exceed(kind string) {
	h.mu.Lock()
	first := h.exceeded == ""
	if first {
		h.exceeded = kind
	}
	h.mu.Unlock()
	if first {
		h.event(Event{Kind: EventLimit, Limit: kind})
	}
	h.killAll()
}

// wait reaps children until the program has ended, kills the remaining processes, and then
// reports EventEnded.
func (h *helper) wait(program int) error {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return at("wait for the program", err)
		case pid != program:
			continue // an orphan, reparented to this process
		}
		e := Event{Kind: EventEnded, Code: ws.ExitStatus()}
		if ws.Signaled() {
			e.Code, e.Signal = -1, int(ws.Signal())
		}
		h.sweep()
		e.Usage = usage()
		h.event(e)
		return nil
	}
}

// sweep kills and reaps until all children have ended. Then descendants have ended too,
// because orphans are reparented to this process. It waits at most 5 s for a process that
// cannot be killed, such as one in an uninterruptible call.
func (h *helper) sweep() {
	deadline := time.Now().Add(5 * time.Second)
	for first := true; time.Now().Before(deadline); first = false {
		if !first { // usually all have ended already
			h.killAll()
		}
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.ECHILD) {
				return
			}
			if pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if !first {
			time.Sleep(time.Millisecond) // they die at their own pace
		}
	}
}

func usage() Usage {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &ru) != nil {
		return Usage{}
	}
	return Usage{User: time.Duration(ru.Utime.Nano()), System: time.Duration(ru.Stime.Nano()), MaxRSS: ru.Maxrss << 10}
}
