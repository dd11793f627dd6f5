package mcpclient

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// sealDescriptors keeps the program from inheriting what we inherited ourselves:
// our own descriptors are closed on exec, a parent's may not be.
func sealDescriptors() { _ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) }

// reap ends the group between the leader's end and its reaping: until then its
// process id, which is the group's, cannot belong to anyone else.
func reap(cmd *exec.Cmd) error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	kill(cmd)
	return cmd.Wait()
}
