//go:build unix

package lifecycle

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a copy the owner of the original, because a server that runs as root
// gives each extension its own user.
func keepOwner(root *os.Root, p string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Getuid() != 0 {
		return nil
	}
	return root.Lchown(p, int(st.Uid), int(st.Gid))
}
