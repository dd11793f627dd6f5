//go:build unix

package workspace

import (
	"os"
	"syscall"
)

// foreign reports whether a file belongs to another user than that of this process.
func foreign(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) != os.Geteuid()
}
