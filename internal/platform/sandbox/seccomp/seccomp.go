// Package seccomp builds and installs the system call filter of sandboxed programs. The filter
// refuses the calls that attacks use and ordinary programs do not need, most of them with EPERM,
// and permits all others. A program that makes a call of another architecture or ABI than its own
// is killed, because the numbers of calls have another meaning there. The filter of a worker, which
// only computes, is the reverse: it permits only the calls of a list.
//
// The filter is classic BPF, written here by hand: about 150 instructions. The kernel does not
// run it for calls that it always permits.
package seccomp

import "fmt"

// Options choose between the variants of the filter.
type Options struct {
	// Internet permits IPv4 and IPv6 stream and datagram sockets in addition to local ones.
	Internet bool
	// Processes is for programs without pid and IPC namespaces. It refuses calls that affect
	// other processes of the same user (priorities, affinity, limits), and System V objects
	// and message queues, which would outlive the program. Calls that set extended attributes
	// of files by path report success and do nothing, because installers require them.
	Processes bool
	// Uncounted refuses, with ENOSYS, anonymous files and shared segments: memory that is not
	// part of the size of a process, which is watched where a control group is missing. Queues of
	// sockets keep their usual size.
	Uncounted bool
	// Files is for programs that run as the server's own user. It refuses the calls on files
	// that Landlock does not cover, because a descriptor for reading suffices for them: chmod and
	// utime by path, chmod by descriptor. Chown, and utime and extended attributes by descriptor,
	// report success and do nothing, because installers require them.
	Files bool
}

// Instruction is one step of a classic BPF program, as the kernel reads it.
type Instruction struct {
	Code   uint16
	Jt, Jf uint8
	K      uint32
}

// The return values of a filter.
const (
	retKill  = 0x80000000 // SECCOMP_RET_KILL_PROCESS
	retErrno = 0x00050000 // SECCOMP_RET_ERRNO; the low 16 bits are the errno
	retAllow = 0x7fff0000

	errPerm  = 1
	errNoSys = 38
	errNone  = 0 // the call reports success and does nothing
)

// Opcodes used.
const (
	opLoad  = 0x20 // A = word at K of seccomp_data
	opEqual = 0x15
	opMore  = 0x35 // A >= K
	opSet   = 0x45 // A & K
	opAnd   = 0x54 // A &= K
	opRet   = 0x06
)

// Offsets in seccomp_data; arguments are 64 bits, low word first on supported architectures.
const (
	offNr   = 0
	offArch = 4
	offArgs = 16
)

func argLow(n int) uint32  { return offArgs + 8*uint32(n) }
func argHigh(n int) uint32 { return argLow(n) + 4 }

// Families and types of sockets that are permitted.
const (
	familyUnix  = 1
	familyInet  = 2
	familyInet6 = 10
	typeStream  = 1
	typeDgram   = 2

	typeSeqpacket = 5
	typeMask      = 0xf
)

// namespaceFlags are the clone flags that make namespaces: user, mount, pid,
// net, ipc, uts, cgroup.
const namespaceFlags = 0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000

// terminal requests that put characters into another program's input.
const (
	tiocsti   = 0x5412
	tioclinux = 0x541c
)

// Options of sockets that set the size of their queue, and that of prctl for who may look at a process.
const (
	solSocket     = 1
	soSndBuf      = 7
	soSndBufForce = 32
	prSetDumpable = 4
)

// personalityQuery is the argument of personality that reads it without a change.
const personalityQuery = 0xffffffff

// table holds the values of one architecture: its audit number and the numbers of its calls
// by name.
type table struct {
	arch    uint32
	x32     bool // numbers from 0x40000000 on are a second ABI
	numbers map[string]uint32
}

// denied returns the calls that are refused with every argument.
func denied() []string {
	return []string{
		"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp",
		"mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick",
		"mount_setattr",
		"unshare", "setns", "bpf", "perf_event_open", "userfaultfd", "fanotify_init",
		"io_uring_setup", "io_uring_enter", "io_uring_register",
		"keyctl", "add_key", "request_key",
		"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
		"swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "iopl", "ioperm",
		"settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "sethostname", "setdomainname",
		"name_to_handle_at", "open_by_handle_at", "syslog", "vhangup", "lookup_dcookie", "nfsservctl", "modify_ldt",
	}
}

// processDenied returns the calls that Options.Processes refuses; those of processIgnored
// report success and do nothing.
func processDenied() []string {
	return []string{
		"setpriority", "ioprio_set", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler",
		"shmget", "semget", "msgget", "mq_open",
		// Objects of other programs are also reached by their numbers, without a get.
		"shmat", "shmctl", "semop", "semtimedop", "semctl", "msgsnd", "msgrcv", "msgctl", "mq_unlink",
	}
}

// uncounted returns the calls that Options.Uncounted refuses.
func uncounted() []string { return []string{"memfd_create", "memfd_secret", "shmget"} }

func processIgnored() []string {
	return []string{"setxattr", "lsetxattr", "setxattrat", "removexattr", "lremovexattr", "removexattrat"}
}

// fileDenied returns the calls that Options.Files refuses; those of fileIgnored report success
// and do nothing.
func fileDenied() []string {
	return []string{"chmod", "fchmod", "fchmodat", "fchmodat2", "utime", "utimes", "futimesat", "file_setattr"}
}

func fileIgnored() []string {
	return []string{"chown", "lchown", "fchown", "fchownat", "fsetxattr", "fremovexattr"}
}

// assembler collects instructions.
type assembler struct {
	t    table
	prog []Instruction
}

func (a *assembler) emit(code uint16, k uint32) {
	a.prog = append(a.prog, Instruction{Code: code, K: k})
}

func (a *assembler) jump(code uint16, k uint32, jt, jf uint8) {
	a.prog = append(a.prog, Instruction{Code: code, K: k, Jt: jt, Jf: jf})
}
func (a *assembler) errno(n uint32) { a.emit(opRet, retErrno|n) }

// when emits the instructions of body for one call. They must end in a return on every path.
// If the architecture lacks the call, they are omitted.
func (a *assembler) when(name string, body func(b *assembler)) {
	nr, ok := a.t.numbers[name]
	if !ok {
		return
	}
	inner := &assembler{t: a.t}
	body(inner)
	a.jump(opEqual, nr, 0, uint8(len(inner.prog)))
	a.prog = append(a.prog, inner.prog...)
}

func (a *assembler) refuse(errno uint32, names ...string) {
	for _, name := range names {
		a.when(name, func(b *assembler) { b.errno(errno) })
	}
}

// begin returns the start of a filter: it kills calls under another architecture or ABI, and loads the
// number of the call.
func begin(t table) *assembler {
	a := &assembler{t: t}
	a.emit(opLoad, offArch)
	a.jump(opEqual, t.arch, 1, 0)
	a.emit(opRet, retKill)
	a.emit(opLoad, offNr)
	if t.x32 {
		a.jump(opMore, 0x40000000, 0, 1)
		a.emit(opRet, retKill)
	}
	return a
}

// build returns the filter for one architecture.
func build(t table, o Options) []Instruction {
	a := begin(t)
	a.refuse(errPerm, denied()...)
	a.refuse(errNoSys, "clone3") // its flags are behind a pointer; libc falls back to clone
	a.when("clone", func(b *assembler) {
		b.emit(opLoad, argLow(0))
		b.jump(opSet, namespaceFlags, 0, 1)
		b.errno(errPerm)
		b.emit(opRet, retAllow)
	})
	a.when("socket", func(b *assembler) { b.socket(o.Internet, typeStream, typeDgram) })
	// A pair reaches only its holders, so it may also preserve message boundaries; browsers
	// require that.
	a.when("socketpair", func(b *assembler) { b.socket(o.Internet, typeStream, typeDgram, typeSeqpacket) })
	a.when("ioctl", func(b *assembler) {
		b.emit(opLoad, argLow(1))
		b.jump(opEqual, tiocsti, 1, 0)
		b.jump(opEqual, tioclinux, 0, 1)
		b.errno(errPerm)
		b.emit(opRet, retAllow)
	})
	a.when("personality", func(b *assembler) {
		b.emit(opLoad, argLow(0))
		b.jump(opEqual, 0, 2, 0)
		b.jump(opEqual, personalityQuery, 1, 0)
		b.errno(errPerm)
		b.emit(opRet, retAllow)
	})
	if o.Processes {
		a.processes()
	}
	if o.Files {
		a.files()
	}
	if o.Uncounted {
		a.refuse(errNoSys, uncounted()...)
		a.when("setsockopt", func(b *assembler) { // the kernel caps a size that is too large without an error, too
			b.emit(opLoad, argLow(1))
			b.jump(opEqual, solSocket, 0, 4)
			b.emit(opLoad, argLow(2))
			b.jump(opEqual, soSndBuf, 1, 0)
			b.jump(opEqual, soSndBufForce, 0, 1)
			b.errno(errNone)
			b.emit(opRet, retAllow)
		})
	}
	a.when("prctl", func(b *assembler) { // open files of the program are counted, which it may not prevent
		b.emit(opLoad, argLow(0))
		b.jump(opEqual, prSetDumpable, 0, 1)
		b.errno(errNone)
		b.emit(opRet, retAllow)
	})
	a.emit(opRet, retAllow)
	return a.prog
}

// socket permits sockets of local and, with internet, IP families and of the listed types,
// and refuses the creation of all others.
func (a *assembler) socket(internet bool, types ...uint32) {
	a.emit(opLoad, argLow(0))
	if internet {
		a.jump(opEqual, familyInet, 3, 0)
		a.jump(opEqual, familyInet6, 2, 0)
	}
	a.jump(opEqual, familyUnix, 1, 0)
	a.errno(errPerm)
	a.emit(opLoad, argLow(1))
	a.emit(opAnd, typeMask)
	for i, t := range types {
		a.jump(opEqual, t, uint8(len(types)-i), 0)
	}
	a.errno(errPerm)
	a.emit(opRet, retAllow)
}

func (a *assembler) files() {
	a.refuse(errPerm, fileDenied()...)
	a.refuse(errNone, fileIgnored()...)
	a.when("utimensat", func(b *assembler) { // without a path it means an open file
		b.emit(opLoad, argLow(1))
		b.jump(opEqual, 0, 0, 2)
		b.emit(opLoad, argHigh(1))
		b.jump(opEqual, 0, 1, 0)
		b.errno(errPerm)
		b.errno(errNone)
	})
}

func (a *assembler) processes() {
	a.refuse(errPerm, processDenied()...)
	a.refuse(errNone, processIgnored()...)
	a.when("prlimit64", func(b *assembler) { // the limits of other processes may be read, but not set
		b.emit(opLoad, argLow(0))
		b.jump(opEqual, 0, 5, 0)
		b.emit(opLoad, argLow(2))
		b.jump(opEqual, 0, 0, 2)
		b.emit(opLoad, argHigh(2))
		b.jump(opEqual, 0, 1, 0)
		b.errno(errPerm)
		b.emit(opRet, retAllow)
	})
}

// Program returns the filter for the architecture of this build, or an error if it is not
// supported.
func Program(o Options) ([]Instruction, error) {
	t, ok := native()
	if !ok {
		return nil, fmt.Errorf("there is no system call filter for this architecture")
	}
	return build(t, o), nil
}
