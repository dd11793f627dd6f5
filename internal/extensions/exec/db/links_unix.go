//go:build unix

package db

import (
	"io/fs"
	"syscall"
)

// linked reports whether a file has more than one hard link.
func linked(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}
