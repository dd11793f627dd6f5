//go:build unix

package extensions

import (
	"io/fs"
	"syscall"
)

const nonBlocking = syscall.O_NONBLOCK

// linked reports whether a file has more than one hard link.
func linked(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}
