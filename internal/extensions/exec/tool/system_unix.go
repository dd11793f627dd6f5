//go:build unix

package tool

import (
	"strings"

	"golang.org/x/sys/unix"
)

// noWait makes an open return at once for a pipe, and closes the file on exec.
const noWait = unix.O_NONBLOCK | unix.O_CLOEXEC

// signalNumber returns the number of a signal by its name, 0 for an unknown name.
func signalNumber(name string) int {
	if n := unix.SignalNum(name); n != 0 {
		return int(n)
	}
	return int(unix.SignalNum("SIG" + strings.ToUpper(name)))
}
