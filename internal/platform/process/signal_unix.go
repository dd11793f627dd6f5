//go:build unix

package process

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// pollable returns the terminal as a file whose reads and writes end with a deadline or when it is
// closed, because the library leaves it in blocking mode.
func pollable(master *os.File) (*os.File, error) {
	defer master.Close()
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "terminal"), nil
}

// resize sets the terminal's window size.
func resize(master *os.File, cols, rows uint16) error {
	raw, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows})
	})
	if err != nil {
		return err
	}
	return failed
}

// ask sends SIGTERM or SIGHUP to the program's group, whose id is the program's process id. The only
// possible error is that the group has ended.
func ask(pid int, hangUp bool) {
	signal := unix.SIGTERM
	if hangUp {
		signal = unix.SIGHUP
	}
	_ = unix.Kill(-pid, signal)
	_ = unix.Kill(-pid, unix.SIGCONT) // a stopped process does not handle signals
}

func kill(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }

// status returns the exit code, or -n and the name of signal n.
func status(cmd *exec.Cmd, err error) (code int, signal string) {
	if cmd.ProcessState == nil {
		return -1, "unknown: " + err.Error()
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -int(ws.Signal()), unix.SignalName(ws.Signal())
	}
	return cmd.ProcessState.ExitCode(), ""
}
