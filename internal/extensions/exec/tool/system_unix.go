//go:build unix

package tool

import (
	"strings"

	"golang.org/x/sys/unix"
)

// noWait does not open a pipe without a writer, and leaves nothing open to programs.
const noWait = unix.O_NONBLOCK | unix.O_CLOEXEC

// signalNumber is the number of a signal's name, 0 for an unknown name.
func signalNumber(name string) int {
	if n := unix.SignalNum(name); n != 0 {
		return int(n)
	}
	return int(unix.SignalNum("SIG" + strings.ToUpper(name)))
}
