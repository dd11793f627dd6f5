//go:build linux

package jail

import (
	"encoding/binary"
	"errors"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bound is one resource limit.
type bound struct {
	resource int
	limit    unix.Rlimit
}

// image holds what a new process executes and inherits. It is complete before the fork, because
// the child may not allocate memory.
type image struct {
	tool   int   // handle of the program, -1 for path
	path   *byte // as execveat reads it, relative to tool
	flags  int   // of execveat
	argv   []*byte
	envp   []*byte
	files  []int // become the descriptors from 3 on; all are higher than the last of them
	bounds []bound
	report int // writing end of the pipe that receives the error number of a failed child
}

// image returns the image of the job.
func (h *helper) image() (*image, error) {
	img := &image{tool: -1, files: h.extra}
	path := h.job.Path
	switch {
	case h.job.Self:
		path = selfPath
	case h.job.ToolHandle:
		path, img.flags = "", unix.AT_EMPTY_PATH
		if err := raise(&h.tool); err != nil {
			return nil, err
		}
		img.tool = h.tool
	}
	var err error
	if img.path, err = unix.BytePtrFromString(path); err != nil {
		return nil, err
	}
	if img.argv, err = syscall.SlicePtrFromStrings(h.job.Args); err != nil {
		return nil, err
	}
	if img.envp, err = syscall.SlicePtrFromStrings(h.job.Env); err != nil {
		return nil, err
	}
	for i := range h.extra {
		if err := raise(&h.extra[i]); err != nil {
			return nil, err
		}
	}
	img.bounds, err = h.bounds()
	return img, err
}

// raise gives a descriptor a number that the child's own do not reach.
func raise(fd *int) error {
	const above = 100
	high, err := unix.FcntlInt(uintptr(*fd), unix.F_DUPFD_CLOEXEC, above)
	if err == nil {
		_ = unix.Close(*fd)
		*fd = high
	}
	return err
}

// start forks the calling thread, which has the walls, and returns the child's process id once the child
// executes the program. The child sets its limits itself, so that they are final before the first
// instruction of the program.
func (img *image) start() (pid int, err error) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return 0, err
	}
	defer unix.Close(pipe[0])
	if err := raise(&pipe[1]); err != nil {
		_ = unix.Close(pipe[1])
		return 0, err
	}
	img.report = pipe[1]
	syscall.ForkLock.Lock()
	child, errno := img.fork()
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(img)
	_ = unix.Close(img.report)
	if errno != 0 {
		return 0, errno
	}
	var failed [4]byte
	n, err := unix.Read(pipe[0], failed[:])
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(pipe[0], failed[:])
	}
	if err == nil && n == 0 {
		return int(child), nil
	}
	_, _ = unix.Wait4(int(child), nil, 0, nil)
	if n == len(failed) {
		err = syscall.Errno(binary.NativeEndian.Uint32(failed[:]))
	}
	return 0, err
}

// The hooks of the runtime around a fork, which package syscall uses as well.
//
//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// fork starts the child, in which it does not return. There it may only make raw system calls: other
// functions may grow the stack, which ends the process between beforeFork and the exec.
//
//go:noinline
//go:norace
func (img *image) fork() (pid uintptr, errno syscall.Errno) {
	beforeFork()
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		afterFork()
		return pid, errno
	}
	afterForkInChild()
	_, _, errno = syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	for i := 0; errno == 0 && i < len(img.files); i++ {
		_, _, errno = syscall.RawSyscall(syscall.SYS_DUP3, uintptr(img.files[i]), uintptr(3+i), 0)
	}
	for i := 0; errno == 0 && i < len(img.bounds); i++ {
		_, _, errno = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(img.bounds[i].resource),
			uintptr(unsafe.Pointer(&img.bounds[i].limit)), 0, 0, 0)
	}
	if errno == 0 {
		_, _, errno = syscall.RawSyscall6(unix.SYS_EXECVEAT, uintptr(img.tool), uintptr(unsafe.Pointer(img.path)),
			uintptr(unsafe.Pointer(&img.argv[0])), uintptr(unsafe.Pointer(&img.envp[0])), uintptr(img.flags), 0)
	}
	number := uint32(errno)
	_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, uintptr(img.report), uintptr(unsafe.Pointer(&number)), 4)
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 253, 0, 0)
	}
}
