//go:build unix

package gitcmd

import (
	"os"
	"strings"
	"syscall"
)

// owner returns the user that a confined git runs as if the server is root: the owner of the working tree, so that
// its new files belong to that user, too. own is true if that is the server's own user.
func owner(dir string) (uid, gid int, own bool, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, 0, false, outside()
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || st.Uid == 0 {
		return 0, 0, true, nil
	}
	return int(st.Uid), int(st.Gid), false, nil
}

// umask returns the umask of this process in octal digits, as the kernel reports it without changing it.
func umask() string {
	text, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(text), "\nUmask:")
	if fields := strings.Fields(rest); len(fields) > 0 {
		return fields[0]
	}
	return "0022"
}
