//go:build unix

package process

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// OwnGroup makes the program the leader of its own process group. If withParent is set,
// Linux kills it when the thread that starts it ends.
func OwnGroup(cmd *exec.Cmd, withParent bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if withParent {
		dieWithParent(cmd.SysProcAttr)
	}
}

// TerminateGroup sends SIGTERM to the group that the program leads. The group's id is the
// program's process id, so the only error is that the group is gone.
func TerminateGroup(cmd *exec.Cmd) { _ = unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }

// KillGroup sends SIGKILL to the group that the program leads.
func KillGroup(cmd *exec.Cmd) { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
