//go:build !unix

package process

import (
	"errors"
	"os"
	"os/exec"
)

func pollable(master *os.File) (*os.File, error) { return master, nil }
func resize(*os.File, uint16, uint16) error      { return errors.ErrUnsupported }

// prepare does nothing, because the system does not have process groups: only the program
// itself is ended.
func prepare(*exec.Cmd, bool) {}
func sweep(int, string) int   { return 0 }
func ask(int, bool)           {}
func kill(int)                {}

func status(cmd *exec.Cmd, _ error) (code int, signal string) {
	if cmd.ProcessState == nil {
		return -1, ""
	}
	return cmd.ProcessState.ExitCode(), ""
}
