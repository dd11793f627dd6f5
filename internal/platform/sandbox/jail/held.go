//go:build linux

package jail

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// held is what the processes of a run use that has no name in a directory, or no page in a process.
type held struct {
	files   int64 // bytes of removed files that are open or mapped
	sockets int64 // open sockets
	hidden  bool  // a process prevents that its open files are seen
}

// inode identifies a file.
type inode struct{ dev, ino uint64 }

// held looks at the open and mapped files of the run's processes. Descriptors that are on their way
// through a socket belong to no process and are not seen; the kernel bounds their number by the limit of
// open files.
func (h *helper) held() (total held) {
	seen := make(map[inode]bool)
	for _, p := range h.tree() {
		dir := "/proc/" + strconv.Itoa(p.pid)
		list, err := os.ReadDir(dir + "/fd")
		if errors.Is(err, fs.ErrPermission) {
			total.hidden = true
			continue
		}
		for _, e := range list {
			var st unix.Stat_t
			if unix.Stat(dir+"/fd/"+e.Name(), &st) != nil || seen[inode{st.Dev, st.Ino}] {
				continue
			}
			switch {
			case st.Mode&unix.S_IFMT == unix.S_IFSOCK:
				total.sockets++
			case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 0:
				continue
			default:
				total.files += max(st.Blocks<<9, minEntry)
			}
			seen[inode{st.Dev, st.Ino}] = true
		}
		total.files += h.mapped(dir+"/maps", seen)
	}
	return total
}

// mapped returns the bytes of the removed files that a process maps. Their sizes cannot be read, so each
// counts as the largest possible file.
func (h *helper) mapped(maps string, seen map[inode]bool) (bytes int64) {
	file, err := os.Open(maps)
	if err != nil {
		return 0
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line, removed := strings.CutSuffix(lines.Text(), " (deleted)")
		f := strings.Fields(line) // addresses, rights, offset, device, inode, path
		if !removed || len(f) < 6 || strings.HasPrefix(f[5], "/memfd:") || strings.HasPrefix(f[5], "/SYSV") || f[5] == "/dev/zero" {
			continue
		}
		major, minor, _ := strings.Cut(f[3], ":")
		a, err := strconv.ParseUint(major, 16, 32)
		b, err2 := strconv.ParseUint(minor, 16, 32)
		number, err3 := strconv.ParseUint(f[4], 10, 64)
		one := inode{unix.Mkdev(uint32(a), uint32(b)), number}
		if err != nil || err2 != nil || err3 != nil || seen[one] {
			continue
		}
		seen[one] = true
		bytes += max(h.job.Limits.FileSize, minEntry)
	}
	return bytes
}

// socketBytes returns how much memory the queue of a socket may take: the kernel's default, which the
// filter of system calls lets no program raise.
func socketBytes() int64 {
	const usual = 212_992
	data, err := os.ReadFile("/proc/sys/net/core/wmem_default")
	if err != nil {
		return usual
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil || n <= 0 {
		return usual
	}
	return n
}
