//go:build linux

package jail

import (
	"fmt"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/internal/platform/sandbox/seccomp"
)

// start puts up the walls on a thread of its own and starts the program from
// there. The thread is never used for anything else: its goroutine ends locked,
// and the runtime ends the thread with it.
func (h *helper) start() (pid int, err error) {
	ruleset, err := h.ruleset()
	if err != nil {
		return 0, at("landlock", err)
	}
	if ruleset >= 0 {
		defer unix.Close(ruleset)
	}
	var filter []seccomp.Instruction
	if h.job.Filter {
		filter, err = seccomp.Program(seccomp.Options{
			Internet: h.job.Internet, Processes: !h.job.Isolate, Files: !h.job.Isolate && !h.job.Drop,
			Uncounted: h.job.Limits.Memory > 0,
		})
		if err != nil {
			return 0, at("seccomp", err)
		}
	}
	if err := h.sameTool(); err != nil {
		return 0, err
	}
	restore, err := h.lowerLimits()
	if err != nil {
		return 0, at("limits", err)
	}
	onThread(func() {
		if err = h.walls(ruleset, filter); err != nil {
			return
		}
		path := h.job.Path
		if h.job.ToolHandle {
			path = "/proc/self/fd/" + strconv.Itoa(h.tool) // still open in the child until it has executed it
		}
		if h.job.Self {
			path = selfPath
		}
		files := []uintptr{0, 1, 2}
		for _, fd := range h.extra {
			files = append(files, uintptr(fd))
		}
		pid, err = syscall.ForkExec(path, h.job.Args, &syscall.ProcAttr{
			Env: h.job.Env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		err = at("start the program", err)
	})
	restore()
	if err == nil {
		h.fixLimits(pid)
	}
	return pid, err
}

// selfPath is the file this process executes, whatever has become of its name.
const selfPath = "/proc/self/exe"

// own reports whether a limit may be final for the helper as well, so that it can be made
// final for the program without further permission.
func own(resource int) bool {
	return resource == unix.RLIMIT_FSIZE || resource == unix.RLIMIT_CORE || resource == unix.RLIMIT_MEMLOCK || resource == unix.RLIMIT_NOFILE
}

// sameTool checks that the program is still the file that was judged.
func (h *helper) sameTool() error {
	if h.job.ToolIno == 0 || h.job.ToolHandle || h.job.Self {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(h.job.Path, &st); err != nil {
		return at("find the program", err)
	}
	if st.Dev != h.job.ToolDev || st.Ino != h.job.ToolIno {
		return at("find the program", fmt.Errorf("it was replaced: %w", unix.ESTALE))
	}
	return nil
}

// walls restricts the calling thread: privileges first, since the later walls
// refuse what dropping them needs.
func (h *helper) walls(ruleset int, filter []seccomp.Instruction) error {
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		// EINVAL: the kernel does not know it; EPERM: we hold nothing to drop.
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if h.job.Drop {
		if err := dropUser(h.job.UID, h.job.GID); err != nil {
			return at("drop the user", err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return at("drop capabilities", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return at("no_new_privs", err)
	}
	if err := restrict(ruleset); err != nil {
		return at("landlock", err)
	}
	if filter != nil {
		if err := seccomp.Install(filter); err != nil {
			return at("seccomp", err)
		}
	}
	return nil
}

// dropUser makes the calling thread another user's. Raw calls: the library's would
// change every thread.
func dropUser(uid, gid int) error {
	for _, call := range []struct{ nr, a, b, c uintptr }{
		{unix.SYS_SETGROUPS, 0, 0, 0},
		{unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
		{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
	} {
		if _, _, errno := unix.RawSyscall(call.nr, call.a, call.b, call.c); errno != 0 {
			return errno
		}
	}
	return nil
}

// bound is one resource limit.
type bound struct {
	resource int
	value    uint64
	hard     uint64
}

func (h *helper) bounds() []bound {
	l := h.job.Limits
	list := []bound{{unix.RLIMIT_CORE, 0, 0}, {unix.RLIMIT_MEMLOCK, 64 << 10, 64 << 10}}
	add := func(resource int, n int64) {
		if n > 0 {
			list = append(list, bound{resource, uint64(n), uint64(n)})
		}
	}
	add(unix.RLIMIT_FSIZE, l.FileSize)
	add(unix.RLIMIT_NOFILE, int64(l.OpenFiles))
	add(unix.RLIMIT_AS, l.AddrSpace)
	if l.Processes > 0 {
		add(unix.RLIMIT_NPROC, int64(l.Processes+h.job.ExtraProcesses))
	}
	if l.CPU > 0 {
		seconds := uint64((l.CPU + time.Second - 1) / time.Second)
		list = append(list, bound{unix.RLIMIT_CPU, seconds, seconds + 1}) // SIGXCPU first, KILL a second later
	}
	return list
}

// lowerLimits lowers our own limits, so that the program is born with them. Those
// that we can live with ourselves are lowered for good; of the others only the
// soft ones, and restore takes that back. Their hard limits follow by
// [helper.fixLimits]: ours must stay, and the program can raise its own soft limit
// only in the moment between.
func (h *helper) lowerLimits() (restore func(), err error) {
	type saved struct {
		resource int
		old      unix.Rlimit
	}
	var before []saved
	restore = func() {
		for _, s := range before {
			_ = unix.Setrlimit(s.resource, &s.old)
		}
	}
	for _, b := range h.bounds() {
		if b.resource == unix.RLIMIT_AS && hugeAddressSpace {
			continue
		}
		var old unix.Rlimit
		if err := unix.Getrlimit(b.resource, &old); err != nil {
			restore()
			return nil, err
		}
		next := unix.Rlimit{Cur: min(b.value, old.Max), Max: old.Max}
		if b.resource == unix.RLIMIT_NOFILE {
			next.Cur = max(next.Cur, 32) // our own few stay usable
			if len(h.extra) > 0 {
				next.Cur = max(next.Cur, toolFD) // and have room to be moved about
			}
			next.Cur = min(next.Cur, old.Max)
		}
		if own(b.resource) {
			next.Max = next.Cur
		}
		if err := unix.Setrlimit(b.resource, &next); err != nil {
			restore()
			return nil, err
		}
		if !own(b.resource) {
			before = append(before, saved{b.resource, old})
		}
	}
	return restore, nil
}

// fixLimits makes the program's limits final. A program that is gone already
// needs none. Root without the capability for it may not change another user's,
// so that it is done as that user, on a thread that ends with it.
func (h *helper) fixLimits(pid int) {
	if !h.job.Drop {
		h.setLimits(pid)
		return
	}
	onThread(func() {
		if dropUser(h.job.UID, h.job.GID) == nil {
			h.setLimits(pid)
		}
	})
}

func (h *helper) setLimits(pid int) {
	for _, b := range h.bounds() {
		var old unix.Rlimit
		if unix.Getrlimit(b.resource, &old) != nil {
			continue
		}
		limit := unix.Rlimit{Cur: min(b.value, old.Max), Max: min(b.hard, old.Max)}
		_ = unix.Prlimit(pid, b.resource, &limit, nil)
	}
}
