//go:build unix && !linux

package backup

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// openBeneath opens a file of a folder unless the file is a link.
func openBeneath(dir *os.File, name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir.Name(), name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}
