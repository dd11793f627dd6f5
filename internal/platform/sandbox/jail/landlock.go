//go:build linux

package jail

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// LandlockABI returns the version of the kernel's Landlock interface, or an error if it is
// missing.
func LandlockABI() (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errors.Is(errno, unix.EOPNOTSUPP):
		return 0, fmt.Errorf("built in but switched off at boot: %w", errno)
	case errors.Is(errno, unix.ENOSYS):
		return 0, fmt.Errorf("the kernel has none: %w", errno)
	case errno != 0:
		return 0, errno
	}
	return int(v), nil
}

// ruleNetPort is LANDLOCK_RULE_NET_PORT, which x/sys does not define yet.
const ruleNetPort = 2

// Groups of rights.
const (
	readRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR

	writeRights = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE

	// fileRights are the rights that apply to objects other than directories.
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

	deviceRights = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// handled returns all file system rights that an interface version supports. The kernel
// refuses each of them where no rule grants it.
func handled(abi int) uint64 {
	rights := uint64(readRights | writeRights)
	if abi < 2 {
		rights &^= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi < 3 {
		rights &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 5 {
		rights |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return rights
}

// rulesetAttr is struct landlock_ruleset_attr with all its members. For older kernels only
// the members that they support are passed.
type rulesetAttr struct{ fs, net, scoped uint64 }

// ruleset creates the Landlock rules of the job and returns their descriptor, which the
// caller closes, or -1 if the job does not use Landlock. It omits paths that do not exist.
func (h *helper) ruleset() (ruleset int, err error) {
	abi := h.job.Landlock
	if abi <= 0 {
		return -1, nil
	}
	attr := rulesetAttr{fs: handled(abi)}
	if abi >= 4 && !h.job.OpenTCP {
		attr.net = unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		if !h.job.Proxy {
			attr.net |= unix.LANDLOCK_ACCESS_NET_BIND_TCP
		}
	}
	if abi >= 6 {
		attr.scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	size := unsafe.Sizeof(attr)
	if abi < 6 {
		size = 16
	}
	if abi < 4 {
		size = 8
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return -1, fmt.Errorf("make the Landlock rules: %w", errno)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(int(fd))
		}
	}()
	rules := h.job.Rules
	if h.job.Self {
		rules = append(slices.Clip(rules), Rule{Path: selfPath})
	}
	for _, r := range rules {
		if err := addPath(int(fd), attr.fs, r); err != nil && !errors.Is(err, unix.ENOENT) {
			return -1, fmt.Errorf("rule for %s: %w", r.Path, err)
		}
	}
	if attr.net != 0 && h.job.Proxy {
		port := struct{ access, port uint64 }{unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, ProxyPort}
		_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, ruleNetPort, uintptr(unsafe.Pointer(&port)), 0, 0, 0)
		if errno != 0 {
			return -1, fmt.Errorf("rule for the proxy: %w", errno)
		}
	}
	return int(fd), nil
}

func addPath(ruleset int, all uint64, r Rule) error {
	parent, err := unix.Open(r.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	rights := uint64(readRights)
	switch {
	case r.Device:
		rights = deviceRights
	case r.Write:
		rights = all
	}
	var st unix.Stat_t
	if err := unix.Fstat(parent, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	attr := struct { // packed in C: the kernel reads the first 12 bytes
		access uint64
		parent int32
	}{rights & all, int32(parent)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// restrict permanently applies the rules to the calling thread. A negative ruleset does nothing.
func restrict(ruleset int) error {
	if ruleset < 0 {
		return nil
	}
	_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
