//go:build unix

package procgroup

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Own makes the program the leader of its own process group. If withParent is set,
// Linux kills it when the thread that starts it ends.
func Own(cmd *exec.Cmd, withParent bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if withParent {
		dieWithParent(cmd.SysProcAttr)
	}
}

// Terminate sends SIGTERM to the group that the program leads. The group's id is the
// program's process id, so the only error is that the group is gone.
func Terminate(cmd *exec.Cmd) { _ = unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }

// Kill sends SIGKILL to the group that the program leads.
func Kill(cmd *exec.Cmd) { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
