//go:build !unix

package sandbox

import (
	"os"
	"os/exec"
)

func status(cmd *exec.Cmd) (code int, signal string) {
	if cmd.ProcessState == nil {
		return -1, ""
	}
	return cmd.ProcessState.ExitCode(), ""
}

// readable returns nothing: pipes are read by deadline here.
func readable(*os.File) []byte { return nil }
