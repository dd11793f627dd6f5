//go:build unix

package workspace

import (
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// foreign reports whether a file belongs to another user than that of this process.
func foreign(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) != os.Geteuid()
}

// giveBack makes the server's user the owner of what others own in a worktree. It follows no links.
// What cannot be changed stays.
func giveBack(dir string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if strings.Count(name, "/") >= hostfs.MaxDepth {
			return fs.SkipDir
		}
		if info, err := d.Info(); err == nil && foreign(info) {
			_ = root.Lchown(name, os.Getuid(), os.Getgid())
		}
		return nil
	})
}
