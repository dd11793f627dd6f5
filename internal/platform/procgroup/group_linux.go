package procgroup

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// SealDescriptors prevents programs that are started later from inheriting the descriptors that
// this process inherited, because those may lack close-on-exec.
func SealDescriptors() { _ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) }

// Reap waits for the program and calls sweep between its end and its reaping. Until then
// its process id, which is the group's, cannot belong to another process.
func Reap(cmd *exec.Cmd, sweep func()) error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	sweep()
	return cmd.Wait()
}
