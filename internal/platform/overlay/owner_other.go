//go:build !unix

package overlay

import "io/fs"

func otherOwner(fs.FileInfo) (uid, gid int, other bool) { return 0, 0, false }
