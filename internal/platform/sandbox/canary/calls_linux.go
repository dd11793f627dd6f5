package canary

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// calls attempts system calls that programs do not need but escapes use.
func (r *round) calls() {
	var space [256]byte
	at := uintptr(unsafe.Pointer(&space[0]))
	for _, c := range []struct {
		name string
		nr   uintptr
		args []uintptr
	}{
		{"make an io_uring", unix.SYS_IO_URING_SETUP, []uintptr{4, at}},
		{"load a BPF program", unix.SYS_BPF, []uintptr{0, at, 128}},
		{"open a performance counter", unix.SYS_PERF_EVENT_OPEN, []uintptr{at, 0, ^uintptr(0), ^uintptr(0), 0}},
		{"make a userfaultfd", unix.SYS_USERFAULTFD, []uintptr{1}},
		{"use the keyring", unix.SYS_KEYCTL, []uintptr{0, ^uintptr(2), 0}},
		{"add a key", unix.SYS_ADD_KEY, nil},
		{"make a user namespace", unix.SYS_UNSHARE, []uintptr{unix.CLONE_NEWUSER}},
		{"make a mount namespace", unix.SYS_UNSHARE, []uintptr{unix.CLONE_NEWNS}},
		{"join a namespace", unix.SYS_SETNS, []uintptr{0, 0}},
		{"mount", unix.SYS_MOUNT, []uintptr{0, at, 0, 0, 0}},
		{"open a mount tree", unix.SYS_OPEN_TREE, []uintptr{uintptr(0xffffff9c), at, 0}},
		{"make a file system", unix.SYS_FSOPEN, []uintptr{at, 0}},
		{"change the root", unix.SYS_CHROOT, []uintptr{at}},
		{"pivot the root", unix.SYS_PIVOT_ROOT, []uintptr{at, at}},
		{"clone by the third call", unix.SYS_CLONE3, []uintptr{at, 0}},
		{"load a module", unix.SYS_INIT_MODULE, []uintptr{at, 0, at}},
		{"load a kernel", unix.SYS_KEXEC_LOAD, nil},
		{"turn on accounting", unix.SYS_ACCT, nil},
		{"set the clock", unix.SYS_SETTIMEOFDAY, nil},
		{"set the host name", unix.SYS_SETHOSTNAME, []uintptr{at, 0}},
		{"read the kernel log", unix.SYS_SYSLOG, []uintptr{3, at, 16}},
		{"switch off address randomisation", unix.SYS_PERSONALITY, []uintptr{0x0040000}},
		{"type into the terminal", unix.SYS_IOCTL, []uintptr{0, unix.TIOCSTI, at}},
		{"take off a mount", unix.SYS_UMOUNT2, []uintptr{at, 0}},
		{"move a mount", unix.SYS_MOVE_MOUNT, []uintptr{uintptr(0xffffff9c), at, uintptr(0xffffff9c), at, 0}},
		{"change a mount", unix.SYS_MOUNT_SETATTR, []uintptr{uintptr(0xffffff9c), at, 0, at, 32}},
		{"pick a file system", unix.SYS_FSPICK, []uintptr{uintptr(0xffffff9c), at, 0}},
		{"enter an io_uring", unix.SYS_IO_URING_ENTER, []uintptr{0, 0, 0, 0, 0}},
		{"register with an io_uring", unix.SYS_IO_URING_REGISTER, []uintptr{0, 0, 0, 0}},
		{"watch a file system", unix.SYS_FANOTIFY_INIT, []uintptr{0, 0}},
		{"request a key", unix.SYS_REQUEST_KEY, []uintptr{at, at, 0, 0}},
		{"unload a module", unix.SYS_DELETE_MODULE, []uintptr{at, 0}},
		{"load a module from a file", unix.SYS_FINIT_MODULE, []uintptr{0, at, 0}},
		{"load a kernel from a file", unix.SYS_KEXEC_FILE_LOAD, []uintptr{0, 0, 0, at, 0}},
		{"turn on swap", unix.SYS_SWAPON, []uintptr{at, 0}},
		{"turn off swap", unix.SYS_SWAPOFF, []uintptr{at}},
		{"set a clock", unix.SYS_CLOCK_SETTIME, []uintptr{0, at}},
		{"set the domain name", unix.SYS_SETDOMAINNAME, []uintptr{at, 0}},
		{"set a quota", unix.SYS_QUOTACTL, []uintptr{0, at, 0, 0}},
		{"advise another process's memory", unix.SYS_PROCESS_MADVISE, []uintptr{0, at, 1, 0, 0}},
		{"get the number of a file", unix.SYS_NAME_TO_HANDLE_AT, []uintptr{uintptr(0xffffff9c), at, at, at, 0}},
		{"compare kernel objects", unix.SYS_KCMP, []uintptr{uintptr(os.Getpid()), uintptr(os.Getpid()), 2, 0, 0}},
	} {
		r.try("seccomp", c.name, rawCall(c.nr, c.args...))
	}
	runtime.KeepAlive(&space)
	// The call may be answered with success and change nothing.
	err := rawCall(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	switch dumpable, gerr := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); {
	case gerr != nil:
		r.skip("seccomp", ActHide, cause(gerr))
	case err == nil && dumpable != 0:
		r.try("seccomp", ActHide, errUnchanged)
	default:
		r.try("seccomp", ActHide, err)
		_ = rawCall(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1) // other acts look at this process
	}
	// The filter permits clone, but not with the flag of a new namespace.
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	r.try("seccomp", "clone into a user namespace", fail(cmd.Run(), "clone"))
}

// HoldRemoved writes four files of 4 MiB, removes them, and holds them open until it is killed, or for
// half a minute.
func HoldRemoved() error {
	data := make([]byte, 4<<20)
	for range 4 {
		f, err := os.CreateTemp(".", "removed")
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.Write(data)
		if err := errors.Join(err, os.Remove(f.Name())); err != nil {
			return err
		}
	}
	time.Sleep(30 * time.Second)
	return nil
}

// foreign runs programs that call the kernel under another ABI, where the call numbers of
// the filter have another meaning.
func (r *round) foreign() {
	if runtime.GOARCH != "amd64" {
		r.skip("seccomp", "call by the 32-bit ABI", "only amd64 has one that is easily reached")
		return
	}
	if r.v.Spare == "" {
		return
	}
	for name, code := range map[string][]byte{
		// mov eax,1; mov ebx,42; int 0x80: exit(42) by the i386 table
		"call by the 32-bit ABI": {0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80, 0x0f, 0x0b},
		// mov eax,0x40000000|60; mov edi,42; syscall: exit(42) by the x32 table
		"call by the x32 ABI": {0xb8, 60, 0, 0, 0x40, 0xbf, 42, 0, 0, 0, 0x0f, 0x05, 0x0f, 0x0b},
	} {
		path := filepath.Join(r.v.Spare, "foreign")
		_ = os.Remove(path)
		if err := os.WriteFile(path, Program(code), 0o700); err != nil {
			r.skip("seccomp", name, err.Error())
			continue
		}
		err := exec.Command(path).Run()
		exit, ok := errors.AsType[*exec.ExitError](err)
		switch {
		case !ok:
			r.skip("seccomp", name, cause(err))
		case exit.ExitCode() == 42:
			r.try("seccomp", name, nil)
		default:
			r.try("seccomp", name, err)
		}
	}
}

// Program returns a minimal ELF executable for amd64 that consists of code.
func Program(code []byte) []byte {
	const base, header = 0x400000, 64 + 56
	le := binary.LittleEndian
	b := make([]byte, header, header+len(code))
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], 2)  // executable
	le.PutUint16(b[18:], 62) // x86-64
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[24:], base+header) // where it begins
	le.PutUint64(b[32:], 64)          // program headers
	le.PutUint16(b[52:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], 1)
	p := b[64:]
	le.PutUint32(p[0:], 1) // load
	le.PutUint32(p[4:], 5) // readable and executable
	le.PutUint64(p[16:], base)
	le.PutUint64(p[24:], base)
	le.PutUint64(p[32:], uint64(header+len(code)))
	le.PutUint64(p[40:], uint64(header+len(code)))
	le.PutUint64(p[48:], 0x1000)
	return append(b, code...)
}
