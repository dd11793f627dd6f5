//go:build !unix

package process

import (
	"errors"
	"os"
	"os/exec"
)

func pollable(master *os.File) (*os.File, error) { return master, nil }
func resize(*os.File, uint16, uint16) error      { return errors.ErrUnsupported }

// There are no process groups here: only the program itself is ended.
func prepare(*exec.Cmd, bool) {}
func sweep(int, string) int   { return 0 }
func ask(int, bool)           {}
func kill(int)                {}

// OwnGroup does nothing, because there are no process groups here.
func OwnGroup(*exec.Cmd, bool) {}

// TerminateGroup ends the program itself.
func TerminateGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

// KillGroup ends the program itself.
func KillGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func status(cmd *exec.Cmd, _ error) (code int, signal string) {
	if cmd.ProcessState == nil {
		return -1, ""
	}
	return cmd.ProcessState.ExitCode(), ""
}
