package seccomp

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneThread is the clone flag that creates a thread instead of a process.
const cloneThread = 0x00010000

// computing returns the calls of a Go program that only computes and uses the descriptors it
// has: memory, threads, clocks, timers.
func computing() []uint32 {
	return []uint32{
		unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_LSEEK, unix.SYS_FCNTL,
		unix.SYS_PIPE2,
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PPOLL,
		unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK,
		unix.SYS_FUTEX, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETPID,
		unix.SYS_GETTID,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
		unix.SYS_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRUSAGE,
		unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER,
		unix.SYS_GETRANDOM, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	}
}

// computeOnly returns the filter of a process that only computes. It permits the listed calls, clone
// for threads of the process, and tgkill to the process pid. The other numbers are those of
// clone, clone3 and tgkill. It refuses all other calls with EPERM, and clone3 with ENOSYS.
func computeOnly(t table, calls []uint32, clone, clone3, tgkill, pid uint32) []Instruction {
	a := begin(t)
	for _, nr := range calls {
		a.jump(opEqual, nr, 0, 1)
		a.emit(opRet, retAllow)
	}
	a.jump(opEqual, clone3, 0, 1) // its flags are behind a pointer; libc falls back to clone
	a.errno(errNoSys)
	a.jump(opEqual, clone, 0, 3)
	a.emit(opLoad, argLow(0))
	a.jump(opSet, cloneThread, 0, 1)
	a.emit(opRet, retAllow)
	a.emit(opLoad, offNr)
	a.jump(opEqual, tgkill, 0, 3)
	a.emit(opLoad, argLow(0))
	a.jump(opEqual, pid, 0, 1)
	a.emit(opRet, retAllow)
	a.errno(errPerm)
	return a.prog
}

// ComputeOnly permanently restricts this process, in all its threads, to computing and the
// descriptors it has: calls that open a file, create a socket, start a program or signal
// another process fail with EPERM. If the filter is not available, ComputeOnly returns an
// error and the process is not changed.
func ComputeOnly() error {
	t, ok := native()
	if !ok {
		return fmt.Errorf("there is no system call filter for %s", runtime.GOARCH)
	}
	prog := computeOnly(t, computing(), unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_TGKILL, uint32(os.Getpid()))
	runtime.LockOSThread() // until both calls are made on one thread
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	fprog := struct {
		Len    uint16
		Filter *Instruction
	}{uint16(len(prog)), &prog[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	switch {
	case errno != 0:
		return fmt.Errorf("install the system call filter: %w", errno)
	case thread != 0:
		return fmt.Errorf("thread %d cannot be filtered like the others", thread)
	}
	return nil
}
