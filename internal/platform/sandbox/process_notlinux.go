//go:build !linux

package sandbox

import "os/exec"

// reap sweeps after the reaping: these systems cannot show an exit without it.
func reap(cmd *exec.Cmd, sweep func()) error {
	err := cmd.Wait()
	sweep()
	return err
}

// sealDescriptors has no call of its own here; what we open is closed on exec.
func sealDescriptors() {}
