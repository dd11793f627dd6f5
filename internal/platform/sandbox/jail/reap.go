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

// killAll sends KILL once to every process of the run. At T3 and in an enclosure that reaches
// all of them at once; otherwise a process may start another meanwhile, so callers repeat it
// until the tree is empty.
func (h *helper) killAll() {
	switch {
	case h.job.Isolate:
		_ = unix.Kill(-1, unix.SIGKILL)
	case h.enclosed && h.job.Drop && !mayKill():
		onThread(func() {
			if dropUser(h.job.UID, h.job.GID) == nil {
				_ = unix.Kill(-1, unix.SIGKILL)
			}
		})
	case h.enclosed: // the kernel refuses all others, and holds the list of processes meanwhile
		_ = unix.Kill(-1, unix.SIGKILL)
	default:
		h.killEach()
	}
}

// killEach kills the processes of the run one by one. A process that it has seen cannot start
// another any more, so that a tree does not grow faster than it is killed.
func (h *helper) killEach() {
	none := unix.Rlimit{}
	sterilize := func() {
		for _, p := range h.tree() {
			fd, err := unix.PidfdOpen(p.pid, 0)
			if err != nil {
				continue
			}
			// A storm uses up the numbers of processes, so this one may be another's by now.
			if now, ok := readProcess(p.pid); ok && now.started == p.started {
				_ = unix.Prlimit(p.pid, unix.RLIMIT_NPROC, &none, nil)
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			}
			_ = unix.Close(fd)
		}
	}
	if !h.job.Drop {
		sterilize()
		return
	}
	onThread(func() { // the limits of another user's processes need a capability, which root may lack
		if dropUser(h.job.UID, h.job.GID) == nil {
			sterilize()
		}
	})
}

// mayKill reports whether this process has the capability to signal processes of other users.
func mayKill() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	return unix.Capget(&header, &caps[0]) == nil && caps[0].Effective&(1<<unix.CAP_KILL) != 0
}

// killUntilNone repeats killAll until the tree is empty; at T3 it calls it once. The goroutine
// in wait must reap the killed processes meanwhile. It has no deadline, because a helper that
// ends before its tree leaves the tree to the machine.
func (h *helper) killUntilNone() {
	for pause := time.Millisecond; ; pause = min(2*pause, maxKillDelay) {
		h.killAll()
		if h.job.Isolate || len(h.tree()) == 0 {
			return
		}
		time.Sleep(pause)
	}
}

// maxKillDelay is the longest pause between two attempts to kill a tree, of which a process may
// be in an uninterruptible call.
const maxKillDelay = 250 * time.Millisecond

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
// because orphans are reparented to this process. It has no deadline: an end is reported only
// when no member of the tree lives.
func (h *helper) sweep() {
	for pause := time.Duration(0); ; pause = min(2*pause+time.Millisecond, maxKillDelay) {
		if pause > 0 { // usually all have ended already
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
		time.Sleep(pause) // they die at their own pace
	}
}

func usage() Usage {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &ru) != nil {
		return Usage{}
	}
	return Usage{User: time.Duration(ru.Utime.Nano()), System: time.Duration(ru.Stime.Nano()), MaxRSS: ru.Maxrss << 10}
}
