//go:build !unix

package procgroup

import "os/exec"

// Own does nothing, because the system lacks process groups.
func Own(*exec.Cmd, bool) {}

// Terminate ends the program itself.
func Terminate(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

// Kill ends the program itself.
func Kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
