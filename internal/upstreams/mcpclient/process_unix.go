//go:build unix

package mcpclient

import (
	"os/exec"

	"golang.org/x/sys/unix"
)

// The group's id is the leader's process id; the only errors are "already gone".
func terminate(cmd *exec.Cmd) { _ = unix.Kill(-cmd.Process.Pid, unix.SIGTERM) }
func kill(cmd *exec.Cmd)      { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
