package extensions

import (
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// fileNow is the time that a file would be born at now: the kernel stamps files with a
// clock that lags behind time.Now by a tick.
func fileNow() time.Time {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &t); err != nil {
		return time.Now()
	}
	return time.Unix(t.Unix())
}

// clean removes from a working folder what was born there since, a [fileNow]: what a run wrote
// that was ended for writing too much would end every later one. Files that were
// there before stay, however they have grown. The folder is a stranger's: nothing is
// followed out of it.
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
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // what cannot be read is left
		}
		var st unix.Statx_t
		err = unix.Statx(int(dir.Fd()), name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st)
		if err == nil && st.Mask&unix.STATX_BTIME != 0 && !time.Unix(st.Btime.Sec, int64(st.Btime.Nsec)).Before(since) {
			born = append(born, name)
		}
		return nil
	})
	for _, name := range born {
		_ = root.Remove(name) // beneath the root, whatever has become of the name
	}
}
