//go:build unix && !linux

package mcpclient

import (
	"os/exec"
	"syscall"
)

func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// sealDescriptors has no call of its own here; what we open is closed on exec.
func sealDescriptors() {}

// reap ends the group after the reaping: these systems cannot show an exit without it.
func reap(cmd *exec.Cmd) error {
	err := cmd.Wait()
	kill(cmd)
	return err
}
