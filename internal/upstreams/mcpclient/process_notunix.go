//go:build !unix

package mcpclient

import "os/exec"

// Without process groups only the program itself is stopped.
func ownGroup(*exec.Cmd)       {}
func sealDescriptors()         {}
func terminate(cmd *exec.Cmd)  { _ = cmd.Process.Kill() }
func kill(cmd *exec.Cmd)       { _ = cmd.Process.Kill() }
func reap(cmd *exec.Cmd) error { return cmd.Wait() }
