//go:build linux

package jail

import (
	"errors"
	"fmt"
	"os"
	"path"
	"unsafe"

	"golang.org/x/sys/unix"
)

// room builds the private root by an allow-list and moves into it. Everything
// the job shows is taken by handle first, checked to be the file that was
// judged, and only then is the old root covered; nothing is looked up twice.
func (h *helper) room() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return at("make mounts private", err)
	}
	trees := make([]int, len(h.job.Mounts))
	for i, m := range h.job.Mounts {
		fd, err := take(m)
		if err != nil {
			return at("show "+m.Target, err)
		}
		trees[i] = fd
	}
	base, err := mountPoint()
	if err != nil {
		return at("find a mount point", err)
	}
	if err := unix.Mount("junctor", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=4m"); err != nil {
		return at("mount the private root", err)
	}
	if err := h.furnish(base, trees); err != nil {
		return err
	}
	if err := unix.Chdir(base); err != nil {
		return at("enter the private root", err)
	}
	// The old root ends up mounted over the new one, and is taken off it.
	if err := unix.PivotRoot(".", "."); err != nil {
		return at("pivot", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return at("detach the old root", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return at("enter the private root", err)
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, attr); err != nil {
		return at("make the private root read-only", err)
	}
	_ = unix.Sethostname([]byte("sandbox")) // the machine's name is its own affair
	return nil
}

// take clones one mount of the old root, with nothing in it that could lead out
// or be written, unless the job says so.
func take(m Mount) (int, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, m.Source, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return -1, fmt.Errorf("open: %w", err)
	}
	defer unix.Close(fd)
	if m.Ino != 0 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return -1, err
		}
		if st.Dev != m.Dev || st.Ino != m.Ino {
			return -1, fmt.Errorf("it was replaced: %w", unix.ESTALE)
		}
	}
	tree, err := unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("clone: %w", err)
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID}
	switch {
	case m.Device:
		attr.Attr_set |= unix.MOUNT_ATTR_NOEXEC
	case m.Write:
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV
	default:
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		_ = unix.Close(tree)
		return -1, fmt.Errorf("restrict: %w", err)
	}
	return tree, nil
}

// mountPoint is any directory that exists; what it holds is covered only in here.
func mountPoint() (string, error) {
	for _, dir := range []string{"/tmp", "/run", "/mnt", "/usr"} {
		if st, err := os.Lstat(dir); err == nil && st.IsDir() {
			return dir, nil
		}
	}
	return "", unix.ENOENT
}

func (h *helper) furnish(base string, trees []int) error {
	for _, dir := range []string{"/dev", TempDir, "/proc", "/etc", "/run"} {
		if err := makeDir(base + dir); err != nil {
			return at("make "+dir, err)
		}
	}
	size := h.job.Limits.Temp
	if size <= 0 {
		size = 64 << 20
	}
	// Inodes are memory as well: as many as there are pages of 4 KiB.
	options := fmt.Sprintf("mode=1777,size=%d,nr_inodes=%d", size, max(size>>12, 64))
	if err := unix.Mount("junctor-tmp", base+TempDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return at("mount "+TempDir, err)
	}
	if !h.job.SkipProc {
		err := unix.Mount("proc", base+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "")
		if err != nil {
			return at("mount /proc", err)
		}
	}
	for i, m := range h.job.Mounts {
		if err := place(base+m.Target, m.File || m.Device); err != nil {
			return at("show "+m.Target, err)
		}
		if err := unix.MoveMount(trees[i], "", unix.AT_FDCWD, base+m.Target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return at("show "+m.Target, err)
		}
		_ = unix.Close(trees[i])
	}
	for name, text := range h.job.Files {
		if err := write(base+name, text); err != nil {
			return at("write "+name, err)
		}
	}
	for from, to := range h.job.Links {
		err := unix.Symlink(to, base+from)
		if errors.Is(err, unix.ENOENT) {
			if err = makeDir(path.Dir(base + from)); err == nil {
				err = unix.Symlink(to, base+from)
			}
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return at("link "+from, err)
		}
	}
	return nil
}

// place makes what a mount is put on.
func place(target string, file bool) error {
	if !file {
		return makeDir(target)
	}
	return write(target, "")
}

// makeDir makes a directory and those above it. Plain calls here and below: the
// room is ours alone, and every call counts (section 23).
func makeDir(dir string) error {
	err := unix.Mkdir(dir, 0o755)
	if errors.Is(err, unix.ENOENT) {
		if err = makeDir(path.Dir(dir)); err == nil {
			err = unix.Mkdir(dir, 0o755)
		}
	}
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// write makes a small file.
func write(name, text string) error {
	const flags = unix.O_CREAT | unix.O_WRONLY | unix.O_CLOEXEC
	fd, err := unix.Open(name, flags, 0o644)
	if errors.Is(err, unix.ENOENT) {
		if err = makeDir(path.Dir(name)); err == nil {
			fd, err = unix.Open(name, flags, 0o644)
		}
	}
	if err != nil {
		return err
	}
	if text != "" {
		_, err = unix.Write(fd, []byte(text))
	}
	return errors.Join(err, unix.Close(fd))
}

// loopbackUp starts the only interface of the network namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var request struct { // struct ifreq
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], "lo")
	request.flags = unix.IFF_UP | unix.IFF_RUNNING
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return errno
	}
	return nil
}
