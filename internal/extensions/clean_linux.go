package extensions

import (
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// fileNow returns the current time of the kernel's clock for files, which lags behind
// time.Now by up to a tick.
func fileNow() time.Time {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &t); err != nil {
		return time.Now()
	}
	return time.Unix(t.Unix())
}

// clean deletes the files of a working folder that were created at or after since, a
// result of [fileNow]. It is called after a run that exceeded the disk limit, because
// its files would make every later run fail; so would folders below [hostfs.MaxDepth], which are
// deleted whole. Older files stay, even if they have grown. Links are not followed, because
// the folder is untrusted.
func clean(work string, since time.Time) {
	root, err := os.OpenRoot(work)
	if err != nil {
		return
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return
	}
	defer dir.Close()
	var born []string
	_ = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		deep := strings.Count(name, "/") >= hostfs.MaxDepth
		if err != nil || d.IsDir() && !deep {
			return nil //nolint:nilerr // unreadable entries stay
		}
		var st unix.Statx_t
		err = unix.Statx(int(dir.Fd()), name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st)
		if err == nil && st.Mask&unix.STATX_BTIME != 0 && !time.Unix(st.Btime.Sec, int64(st.Btime.Nsec)).Before(since) {
			born = append(born, name)
		}
		if deep && d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	for _, name := range born {
		_ = hostfs.RemoveTree(root, name) // never leaves the root, even if the name was replaced
	}
}
