//go:build linux

package jail

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ArgEnclosed is the argument of a helper that was started in an enclosure.
const ArgEnclosed = "enclosed"

// MinEnclosingABI is the first version of Landlock that restricts signals.
const MinEnclosingABI = 6

// Enclose puts the calling thread, and what it starts from then on, into an enclosure: a domain
// of Landlock whose processes may signal only each other. The program of the run gets a domain
// within it, from which it cannot signal the helper. So one signal to "all processes" reaches
// exactly the run, atomically. The caller has locked its goroutine to the thread, and lets the
// thread end. The kernel's Landlock has [MinEnclosingABI] or later.
func Enclose() error {
	attr := rulesetAttr{scoped: unix.LANDLOCK_SCOPE_SIGNAL}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("make the enclosure: %w", errno)
	}
	defer unix.Close(int(fd))
	if _, _, errno := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("no_new_privs: %w", errno)
	}
	return restrict(int(fd))
}

// isEnclosed reports whether the kernel refuses a signal to the parent, which is outside. Without
// an enclosure, a signal to all processes would reach the whole machine.
func isEnclosed() bool {
	return errors.Is(unix.Kill(os.Getppid(), 0), unix.EPERM)
}
