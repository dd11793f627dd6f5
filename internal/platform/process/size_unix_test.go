//go:build unix

package process_test

import (
	"os"

	"golang.org/x/sys/unix"
)

func size() (rows, cols uint16) {
	ws, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return ws.Row, ws.Col
}

// awaitSignal waits for a signal that ends the program.
func awaitSignal() {
	for {
		_, _ = unix.Poll(nil, -1)
	}
}
