//go:build linux

package jail

import (
	"fmt"
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
	if err := h.holdTool(); err != nil {
		return 0, err
	}
	img, err := h.image()
	if err != nil {
		return 0, at("start the program", err)
	}
	onThread(func() {
		if err = h.walls(ruleset, filter); err != nil {
			return
		}
		pid, err = img.start()
		err = at("start the program", err)
	})
	return pid, err
}

// selfPath is the file that this process executes, even if its name was reused.
const selfPath = "/proc/self/exe"

// holdTool opens Path as a handle, and fails if it is not the file that the server verified. The handle
// is executed, so that a file that replaces it afterwards is not. A script is executed by its path,
// because its interpreter opens it again and may look for files beside it.
func (h *helper) holdTool() error {
	if h.job.ToolIno == 0 || h.job.ToolHandle || h.job.Self {
		return nil
	}
	fd, err := unix.Open(h.job.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return at("find the program", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return at("find the program", err)
	}
	if st.Dev != h.job.ToolDev || st.Ino != h.job.ToolIno {
		return at("find the program", fmt.Errorf("it was replaced: %w", unix.ESTALE))
	}
	if h.job.ToolByPath {
		return at("find the program", unix.Close(fd))
	}
	h.tool, h.job.ToolHandle = fd, true
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

// bounds returns the resource limits of the program.
func (h *helper) bounds() ([]bound, error) {
	l := h.job.Limits
	list := []bound{{unix.RLIMIT_CORE, unix.Rlimit{}}, {unix.RLIMIT_MEMLOCK, unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}}}
	add := func(resource int, n int64) {
		if n > 0 {
			list = append(list, bound{resource, unix.Rlimit{Cur: uint64(n), Max: uint64(n)}})
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
		list = append(list, bound{unix.RLIMIT_CPU, unix.Rlimit{Cur: seconds, Max: seconds + 1}}) // SIGXCPU first, KILL a second later
	}
	for i := range list {
		var old unix.Rlimit
		if err := unix.Getrlimit(list[i].resource, &old); err != nil {
			return nil, err
		}
		list[i].limit.Cur, list[i].limit.Max = min(list[i].limit.Cur, old.Max), min(list[i].limit.Max, old.Max)
	}
	return list, nil
}
