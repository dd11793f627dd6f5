//go:build unix

package overlay

import (
	"io/fs"
	"os"
	"syscall"
)

// otherOwner returns the owner of a file. other is false if it is the current user, or info is nil.
func otherOwner(info fs.FileInfo) (uid, gid int, other bool) {
	if info == nil {
		return 0, 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	uid, gid = int(st.Uid), int(st.Gid)
	return uid, gid, uid != os.Geteuid() || gid != os.Getegid()
}
