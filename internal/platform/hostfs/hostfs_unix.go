//go:build unix

package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// NonBlocking is a flag of os.OpenFile, with which a named pipe is opened without waiting for its
// other end.
const NonBlocking = syscall.O_NONBLOCK

// Supported returns nil on systems where a server or a node can run, else an error. Callers check it
// before they create anything.
func Supported() error { return nil }

// TryLock acquires the lock of an open file without waiting. Closing the file, or the end
// of the process, releases it. The error is ErrHeld if another process holds the lock.
func TryLock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}

// Writable returns an error if the current user cannot create files in dir.
func Writable(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }

// Mine reports whether a file, described by [os.File.Stat], belongs to the current user.
func Mine(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// Free returns the bytes that the current user may still write on the disk of dir.
func Free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // of another type on other systems
}
