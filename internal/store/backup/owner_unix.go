//go:build unix

package backup

import (
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// owner is whose a file of an extension is: a server that is root runs the programs of
// each as a user of its own.
func owner(p string, info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && strings.HasPrefix(p, "extensions/") && int(st.Uid) != os.Getuid() {
		return int(st.Uid)
	}
	return 0
}
