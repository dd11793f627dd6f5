package backup

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openBeneath opens a file of a folder without following links, because programs of
// extensions can put links into their own folders at any moment, and the targets of those
// must not be copied.
func openBeneath(dir *os.File, name string) (*os.File, error) {
	for {
		fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
			Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
		})
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if errors.Is(err, unix.ENOSYS) { // before Linux 5.6
			return os.OpenFile(filepath.Join(dir.Name(), name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		}
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)), nil
	}
}
