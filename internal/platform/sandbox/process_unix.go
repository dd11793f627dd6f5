//go:build unix

package sandbox

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func status(cmd *exec.Cmd) (code int, signal string) {
	if cmd.ProcessState == nil {
		return -1, ""
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -1, unix.SignalName(ws.Signal())
	}
	return cmd.ProcessState.ExitCode(), ""
}
