package segment

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// datasync flushes a file's data and the metadata needed to read it.
func datasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// lockFile acquires a lock that the kernel releases when the process ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func syncDir(dir string) error { return hostfs.SyncDir(dir) }
