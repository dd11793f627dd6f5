//go:build unix

package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func status(cmd *exec.Cmd) (code int, signal string) {
	if cmd.ProcessState == nil {
		return -1, ""
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -1, unix.SignalName(ws.Signal())
	}
	return cmd.ProcessState.ExitCode(), ""
}

// pipeSize is the default capacity of a pipe.
const pipeSize = 64 << 10

// readable returns the content of a pipe, without waiting for more.
func readable(r *os.File) []byte {
	data := make([]byte, pipeSize)
	held := 0
	conn, err := r.SyscallConn()
	if err != nil || r.SetReadDeadline(time.Time{}) != nil {
		return nil
	}
	_ = conn.Read(func(fd uintptr) bool {
		for held < len(data) {
			n, err := unix.Read(int(fd), data[held:])
			if n <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
			held += max(n, 0)
		}
		return true
	})
	return data[:held]
}
