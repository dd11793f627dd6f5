//go:build unix

package mcpclient_test

import (
	"os"
	"os/exec"
	"strconv"
)

// orphan starts a child that ignores the end of its parent's input, and notes its id.
func orphan() {
	cmd := exec.Command("/bin/sh", "-c", "trap '' TERM; while :; do sleep 60; done")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		os.Exit(9)
	}
	_ = os.WriteFile(os.Getenv("MCPCLIENT_TEST_MARK"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600)
}
