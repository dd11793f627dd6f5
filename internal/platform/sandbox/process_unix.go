//go:build unix

package sandbox

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// The group's id is the leader's process id; the only errors are "already gone".
func terminate(cmd *exec.Cmd) { _ = unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
func kill(cmd *exec.Cmd)      { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }

func status(cmd *exec.Cmd) (code int, signal string) {
	if cmd.ProcessState == nil {
		return -1, ""
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -1, unix.SignalName(ws.Signal())
	}
	return cmd.ProcessState.ExitCode(), ""
}
