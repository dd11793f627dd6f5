//go:build unix

package backup

import (
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// owner returns the owner of an extension's file. A server that runs as root runs each
// extension's programs as a separate user.
func owner(p string, info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && strings.HasPrefix(p, "extensions/") && int(st.Uid) != os.Getuid() {
		return int(st.Uid)
	}
	return 0
}
