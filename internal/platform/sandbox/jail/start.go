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

// start applies the layers to a new thread, starts the program from there, and returns its
// process id. The thread ends afterwards; the helper's other threads are not restricted.
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
			path = "/proc/self/fd/" + strconv.Itoa(h.tool) // open in the child until exec
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

// selfPath is the file that this process executes, even if its name was reused.
const selfPath = "/proc/self/exe"

// own reports whether a limit may be final for the helper as well, so that it can be made
// final for the program without further permission.
func own(resource int) bool {
	return resource == unix.RLIMIT_FSIZE || resource == unix.RLIMIT_CORE || resource == unix.RLIMIT_MEMLOCK || resource == unix.RLIMIT_NOFILE
}

// sameTool fails if Path is not the file that the server verified. It skips a program that is
// executed by handle.
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

// walls applies the layers to the calling thread: privileges first, because the later layers
// prevent the calls that drop them.
func (h *helper) walls(ruleset int, filter []seccomp.Instruction) error {
	for c := 0; c <= unix.CAP_LAST_CAP; c++ {
		// EINVAL: the kernel lacks this capability; EPERM: the helper may not drop it.
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

// dropUser changes user and group of the calling thread, without supplementary groups. It
// uses raw calls, because those of the library change every thread.
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

// lowerLimits lowers the helper's own limits, which the program inherits. Limits that suit
// the helper (see own) stay lowered; of the others it lowers only the soft limit, which
// restore resets. [helper.fixLimits] then lowers the program's hard limits; until then the
// program could raise its soft limits.
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
			next.Cur = max(next.Cur, 32) // enough for the helper's own
			if len(h.extra) > 0 {
				next.Cur = max(next.Cur, toolFD) // ForkExec moves them to higher numbers
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

// fixLimits lowers the hard limits of the started program, and ignores errors, such as that
// the program has ended. With Drop it does so as the program's user, on a thread that ends
// afterwards, because root may lack the capability to change another user's limits.
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
