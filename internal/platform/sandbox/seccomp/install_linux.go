package seccomp

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Install permanently filters the calling thread and everything it starts from then on. The
// caller must have locked its goroutine to the thread and set no_new_privs.
func Install(prog []Instruction) error {
	fprog := struct {
		Len    uint16
		Filter *Instruction
	}{uint16(len(prog)), &prog[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return fmt.Errorf("install the system call filter: %w", errno)
	}
	return nil
}

// Available returns nil if the kernel and this build support the filter, else the reason.
func Available() error {
	if _, ok := native(); !ok {
		return fmt.Errorf("there is no system call filter for %s", runtime.GOARCH)
	}
	action := uint32(retKill)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return fmt.Errorf("the kernel filters no system calls: %w", errno)
	}
	return nil
}
