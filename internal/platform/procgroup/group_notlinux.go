//go:build !linux

package procgroup

import "os/exec"

// SealDescriptors does nothing, because these systems have no call for it.
func SealDescriptors() {}

// Reap waits for the program and calls sweep after the reaping, because these systems
// cannot show an exit without it.
func Reap(cmd *exec.Cmd, sweep func()) error {
	err := cmd.Wait()
	sweep()
	return err
}
