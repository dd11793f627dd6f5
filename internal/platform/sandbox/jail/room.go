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

// room builds the private root from the job's mounts and enters it. First it opens and
// verifies every file of the job, and only then mounts over the old root, so that no path is
// resolved twice. If the shared part was built in advance, a file of the job that its mount
// point covers fails the verification.
func (h *helper) room() error {
	if !h.job.Drop {
		boundShares()
	}
	if h.base == "" {
		if err := privateMounts(); err != nil {
			return err
		}
	}
	trees, err := takeAll(h.job.Mounts)
	if err != nil {
		return err
	}
	if h.base == "" {
		if h.job.Room == nil {
			return at("build the room", unix.EINVAL)
		}
		if err := h.build(h.job.Room, "/tmp", "/run", "/mnt", "/usr"); err != nil {
			return err
		}
	}
	if err := h.furnish(h.base, trees); err != nil {
		return err
	}
	if err := unix.Chdir(h.base); err != nil {
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
	return nil
}

// ahead builds the shared part of the private root before the job is known, on a directory
// that is unlikely to contain files of a job.
func (h *helper) ahead(r *Room) error {
	if err := privateMounts(); err != nil {
		return err
	}
	return h.build(r, "/media", "/mnt", "/srv", "/boot", "/opt")
}

// boundShares bounds the objects of which the kernel gives each user a number, so that a run leaves some to
// the other programs of the server's user. It works in a user namespace only, and is not required: the
// self-test reports what a program can use up.
func boundShares() {
	for name, most := range map[string]string{"inotify_instances": "16", "inotify_watches": "8192"} {
		_ = os.WriteFile("/proc/sys/user/max_"+name, []byte(most), 0)
	}
}

func privateMounts() error {
	return at("make mounts private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

func takeAll(mounts []Mount) ([]int, error) {
	trees := make([]int, len(mounts))
	for i, m := range mounts {
		fd, err := take(m)
		if err != nil {
			return nil, at("show "+m.Target, err)
		}
		trees[i] = fd
	}
	return trees, nil
}

// build builds the shared part on the first of points that is a directory, and sets base. It
// covers that directory only in this mount namespace.
func (h *helper) build(r *Room, points ...string) error {
	trees, err := takeAll(r.Mounts)
	if err != nil {
		return err
	}
	base := ""
	for _, dir := range points {
		var st unix.Stat_t
		if unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			base = dir
			break
		}
	}
	if base == "" {
		return at("find a mount point", unix.ENOENT)
	}
	if err := unix.Mount("junctor", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=4m"); err != nil {
		return at("mount the private root", err)
	}
	for _, dir := range []string{"/dev", TempDir, "/proc", "/etc", "/run"} {
		if err := makeDir(base + dir); err != nil {
			return at("make "+dir, err)
		}
	}
	if !r.SkipProc {
		err := unix.Mount("proc", base+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "")
		if err != nil {
			return at("mount /proc", err)
		}
	}
	if err := placeAll(base, r.Mounts, trees); err != nil {
		return err
	}
	for from, to := range r.Links {
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
	_ = unix.Sethostname([]byte("sandbox")) // hides the machine's name
	h.base = base
	return nil
}

// placeAll moves each tree to its mount's target below base, and closes its descriptor.
func placeAll(base string, mounts []Mount, trees []int) error {
	for i, m := range mounts {
		if err := place(base+m.Target, m.File || m.Device); err != nil {
			return at("show "+m.Target, err)
		}
		if err := unix.MoveMount(trees[i], "", unix.AT_FDCWD, base+m.Target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return at("show "+m.Target, err)
		}
		_ = unix.Close(trees[i])
	}
	return nil
}

// take returns a detached clone of one mount's source, without set-user-id, and read-only and
// without devices unless the mount has Write or Device. It fails if Source contains a
// symbolic link or is not the file of Dev and Ino.
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

// furnish adds the job's temporary directory, mounts and files to the private root at base.
func (h *helper) furnish(base string, trees []int) error {
	size := h.job.Limits.Temp
	if size <= 0 {
		size = 64 << 20
	}
	// Inodes are memory as well: as many as there are pages of 4 KiB.
	options := fmt.Sprintf("mode=1777,size=%d,nr_inodes=%d", size, max(size>>12, 64))
	if err := unix.Mount("junctor-tmp", base+TempDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return at("mount "+TempDir, err)
	}
	if err := placeAll(base, h.job.Mounts, trees); err != nil {
		return err
	}
	for name, text := range h.job.Files {
		if err := write(base+name, text); err != nil {
			return at("write "+name, err)
		}
	}
	return nil
}

// place creates the mount point of a mount: an empty file, or a directory.
func place(target string, file bool) error {
	if !file {
		return makeDir(target)
	}
	return write(target, "")
}

// makeDir creates a directory and its parents. Plain system calls suffice here and below,
// because no other process uses the private root yet, and they take less time.
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

// write creates a small file, and its directory if that is missing.
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

// loopbackUp enables the loopback interface of the network namespace.
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
