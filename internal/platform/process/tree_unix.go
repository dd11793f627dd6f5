//go:build unix && !linux

package process

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func prepare(cmd *exec.Cmd, terminal bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: terminal}
}

// sweep ends the rest of the program's group. It does not find processes that left the group.
func sweep(leader int, _ string) int {
	if leader == 0 || unix.Kill(-leader, unix.SIGKILL) != nil {
		return 0
	}
	return 1
}
