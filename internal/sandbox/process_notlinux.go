//go:build !linux

package sandbox

import "os/exec"

// reap sweeps after the reaping: these systems cannot show an exit without it.
func reap(cmd *exec.Cmd, sweep func()) error {
	err := cmd.Wait()
	sweep()
	return err
}
