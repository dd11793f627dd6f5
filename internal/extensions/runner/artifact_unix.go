//go:build unix

package runner

import (
	"io/fs"
	"syscall"
)

// nonblock prevents that opening a FIFO that replaced a file blocks the server.
const nonblock = syscall.O_NONBLOCK

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), at: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = st.Ino
	}
	return s
}

func links(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink) //nolint:unconvert // its type differs between systems
	}
	return 1
}
