//go:build !unix

package sandbox

import "os/exec"

// Without process groups only the program itself is stopped.
func ownGroup(*exec.Cmd)      {}
func terminate(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
func kill(cmd *exec.Cmd)      { _ = cmd.Process.Kill() }

func status(cmd *exec.Cmd) (code int, signal string) {
	if cmd.ProcessState == nil {
		return -1, ""
	}
	return cmd.ProcessState.ExitCode(), ""
}
