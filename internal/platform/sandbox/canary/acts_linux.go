package canary

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// round collects the results of one pass through all acts.
type round struct {
	v       Victims
	results []Result
}

// Run attempts all acts and returns their results. inherited are the descriptors beyond the
// standard three that were open when the process began.
func Run(v Victims, inherited []int) []Result {
	r := &round{v: v}
	r.process(inherited)
	r.files()
	r.links()
	r.attributes()
	r.descriptors()
	r.objects()
	r.proc()
	r.sockets()
	r.network()
	r.signals()
	r.privileges()
	r.calls()
	r.foreign()
	r.shared()
	if v.File != "" { // last, because the other acts need the file
		r.try("root", "remove an outside file", os.Remove(v.File))
	}
	return r.results
}

// Inherited returns the descriptors that this process inherited. Those marked close-on-exec
// are omitted, because the runtime opened them itself.
func Inherited() []int {
	var open []int
	for fd := 3; fd < 1024; fd++ {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			open = append(open, fd)
		}
	}
	return open
}

// try records the result of an act: Broken if err is nil, because the act succeeded, else Held.
func (r *round) try(layer, act string, err error) {
	result := Result{Act: act, Layer: layer, Outcome: Broken}
	if err != nil {
		result.Outcome, result.Detail = Held, cause(err)
	}
	r.results = append(r.results, result)
}

func (r *round) skip(layer, act, why string) {
	r.results = append(r.results, Result{Act: act, Layer: layer, Outcome: Unavailable, Detail: why})
}

func cause(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

var errUnchanged = errors.New("nothing changed")

// reads returns nil if it could read Secret from the file.
func reads(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(data), Secret) {
		return errors.New("something else was read")
	}
	return nil
}

// opens returns nil if it could read a byte of the file.
func opens(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 1)); err != nil {
		return err
	}
	return nil
}

func writes(path string, flag int) error {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func (r *round) process(inherited []int) {
	err := errors.New("none")
	if len(inherited) > 0 {
		err = nil
	}
	r.try("hygiene", "use an inherited descriptor", err)
	if r.v.Env != "" {
		err = errors.New("it is not set")
		if _, ok := os.LookupEnv(r.v.Env); ok {
			err = nil
		}
		r.try("hygiene", "read the server's environment variables", err)
	}
}

func (r *round) files() {
	for _, path := range []string{"/etc/shadow", "/etc/sudoers", "/root/.bash_history", "/dev/mem", "/dev/kmsg"} {
		r.try("root", "read "+path, opens(path))
	}
	for _, path := range []string{
		"/usr/junctor-canary", "/etc/junctor-canary", "/junctor-canary", "/dev/junctor-canary",
		"/lib/junctor-canary",
	} {
		r.try("root", "make "+path, writes(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL))
		_ = os.Remove(path)
	}
	_, err := os.ReadDir("/sys/kernel")
	r.try("root", "list /sys", err)
	if v := r.v.Package; v != "" {
		r.try("root", "write into the package", writes(filepath.Join(v, "made-by-canary"), os.O_CREATE|os.O_WRONLY))
	}
	if r.v.File == "" {
		return
	}
	up := strings.Repeat("../", 24)
	r.try("root", "read an outside file", reads(r.v.File))
	r.try("root", "read it by a relative path", reads(up+r.v.File))
	r.try("root", "write an outside file", writes(r.v.File, os.O_WRONLY))
	r.try("root", "write it by a relative path", writes(up+r.v.File, os.O_RDWR))
	r.try("root", "make a file outside", writes(filepath.Join(r.v.Dir, "made"), os.O_CREATE|os.O_WRONLY))
	r.try("root", "list an outside directory", list(r.v.Dir))
	// A file handle leads out of a root directory.
	handle := unix.NewFileHandle(1, []byte{2, 0, 0, 0, 0, 0, 0, 0})
	_, err = unix.OpenByHandleAt(unix.AT_FDCWD, handle, unix.O_RDONLY)
	r.try("seccomp", "open a file by its number", err)
}

func list(dir string) error {
	_, err := os.ReadDir(dir)
	return err
}

func (r *round) links() {
	if r.v.File == "" || r.v.Spare == "" {
		return
	}
	spare := func(name string) string { return filepath.Join(r.v.Spare, name) }
	_ = os.Symlink(r.v.File, spare("link"))
	_ = os.Symlink("link", spare("chain"))
	_ = os.Symlink(r.v.Dir, spare("dir"))
	r.try("root", "read through a symbolic link", reads(spare("link")))
	r.try("root", "read through a chain of links", reads(spare("chain")))
	r.try("root", "read through a linked directory", reads(spare("dir/"+filepath.Base(r.v.File))))
	r.try("root", "truncate through a link", os.Truncate(spare("link"), 0))
	r.try("root", "write through a link", writes(spare("chain"), os.O_WRONLY))
	r.try("root", "hard-link an outside file", os.Link(r.v.File, spare("hard")))
	moved := os.Rename(r.v.File, spare("moved"))
	r.try("root", "move an outside file in", moved)
	if moved == nil {
		_ = os.Rename(spare("moved"), r.v.File)
	}
	_ = os.WriteFile(spare("mine"), nil, 0o600)
	r.try("root", "move a file out", os.Rename(spare("mine"), filepath.Join(r.v.Dir, "moved")))
}

// attributes compares the file before and after each call, because some filtered calls report
// success and do nothing.
func (r *round) attributes() {
	if r.v.File == "" {
		return
	}
	var before, after unix.Stat_t
	unseen := unix.Stat(r.v.File, &before)
	changed := func(act string, call error, differs func() bool) {
		err := call
		if err == nil {
			if err = unix.Stat(r.v.File, &after); err == nil && (unseen != nil || !differs()) {
				err = errUnchanged
			}
		}
		r.try("seccomp", act, err)
	}
	changed("chmod an outside file", unix.Chmod(r.v.File, 0o777), func() bool { return after.Mode != before.Mode })
	changed("chown an outside file", unix.Lchown(r.v.File, os.Getuid(), os.Getgid()), func() bool { return after.Uid != before.Uid })
	changed("set times of an outside file", unix.Utime(r.v.File, &unix.Utimbuf{}), func() bool { return after.Mtim != before.Mtim })
	changed("truncate an outside file", unix.Truncate(r.v.File, 1), func() bool { return after.Size != before.Size })
	err := unix.Setxattr(r.v.File, "user.canary", []byte("x"), 0)
	if err == nil {
		_, err = unix.Getxattr(r.v.File, "user.canary", nil)
	}
	r.try("seccomp", "set an attribute of an outside file", err)
}

// descriptors changes attributes of a file through a descriptor that was opened for reading, and
// compares the file before and after, because some filtered calls report success and do nothing.
func (r *round) descriptors() {
	if r.v.Package == "" {
		return
	}
	f, err := os.Open(filepath.Join(r.v.Package, Shown))
	if err != nil {
		r.skip("root", "change a read-only file through its descriptor", cause(err))
		return
	}
	defer f.Close()
	fd := int(f.Fd())
	look := func() (text string) {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			return ""
		}
		value := make([]byte, 64)
		n, _ := unix.Fgetxattr(fd, "user.canary", value)
		return fmt.Sprint(st.Mode, st.Uid, st.Gid, st.Mtim, string(value[:max(n, 0)]))
	}
	times := [2]unix.Timespec{{Sec: 1}, {Sec: 1}}
	for _, act := range []struct {
		name string
		call func() error
	}{
		{"change its mode", func() error { return unix.Fchmod(fd, 0o777) }},
		{"change its owner", func() error { return unix.Fchown(fd, os.Geteuid(), os.Getegid()) }},
		{"change its times", func() error { return rawCall(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times[0]))) }},
		{"set an attribute of it", func() error { return unix.Fsetxattr(fd, "user.canary", []byte("x"), 0) }},
	} {
		before := look()
		err := act.call()
		if err == nil && look() == before {
			err = errUnchanged
		}
		r.try("root", act.name+" through a descriptor for reading", err)
	}
}

// MakeIPC creates System V objects that every user may use, or returns nil. remove removes them; the kernel
// would keep them beyond the end of the process.
func MakeIPC() (objects *IPC, remove func()) {
	o := IPC{Memory: -1, Semaphores: -1, Messages: -1}
	remove = func() {
		_, _ = unix.SysvShmCtl(o.Memory, unix.IPC_RMID, nil)
		_ = rawCall(unix.SYS_SEMCTL, uintptr(o.Semaphores), 0, unix.IPC_RMID, 0)
		_ = rawCall(unix.SYS_MSGCTL, uintptr(o.Messages), unix.IPC_RMID, 0)
	}
	for _, get := range []struct {
		to   *int
		nr   uintptr
		args [3]uintptr
	}{
		{&o.Memory, unix.SYS_SHMGET, [3]uintptr{unix.IPC_PRIVATE, 4096, unix.IPC_CREAT | 0o666}},
		{&o.Semaphores, unix.SYS_SEMGET, [3]uintptr{unix.IPC_PRIVATE, 1, unix.IPC_CREAT | 0o666}},
		{&o.Messages, unix.SYS_MSGGET, [3]uintptr{unix.IPC_PRIVATE, unix.IPC_CREAT | 0o666, 0}},
	} {
		id, _, errno := unix.Syscall(get.nr, get.args[0], get.args[1], get.args[2])
		if errno != 0 {
			remove()
			return nil, func() {}
		}
		*get.to = int(id)
	}
	return &o, remove
}

// objects uses System V objects by their ids, without a get.
func (r *round) objects() {
	if r.v.IPC == nil {
		return
	}
	space, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // it must not move
	if err != nil {
		r.skip("namespaces", "use outside System V objects", cause(err))
		return
	}
	defer func() { _ = unix.Munmap(space) }()
	at := uintptr(unsafe.Pointer(&space[0]))
	memory, set, queue := uintptr(r.v.IPC.Memory), uintptr(r.v.IPC.Semaphores), uintptr(r.v.IPC.Messages)
	space[0] = 1 // the type of a message
	for _, c := range []struct {
		name string
		nr   uintptr
		args []uintptr
	}{
		{"attach outside shared memory", unix.SYS_SHMAT, []uintptr{memory, 0, unix.SHM_RDONLY}},
		{"read the state of outside shared memory", unix.SYS_SHMCTL, []uintptr{memory, unix.IPC_STAT, at + 1024}},
		{"read an outside semaphore", unix.SYS_SEMCTL, []uintptr{set, 0, 12, 0}}, // GETVAL
		{"send an outside message", unix.SYS_MSGSND, []uintptr{queue, at, 8, unix.IPC_NOWAIT}},
		{"receive an outside message", unix.SYS_MSGRCV, []uintptr{queue, at, 8, 0, unix.IPC_NOWAIT}},
		{"read the state of an outside queue", unix.SYS_MSGCTL, []uintptr{queue, unix.IPC_STAT, at + 1024}},
	} {
		r.try("namespaces", c.name, rawCall(c.nr, c.args...))
	}
}

func (r *round) proc() {
	parent := strconv.Itoa(os.Getppid())
	for _, path := range []string{
		"/proc/1/root/etc/shadow", "/proc/self/root/etc/shadow", "/proc/" + parent + "/environ",
		"/proc/" + parent + "/mem", "/proc/" + parent + "/maps", "/proc/1/environ", "/proc/kcore",
	} {
		r.try("proc", "read "+path, opens(path))
	}
	for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/self/oom_score_adj"} {
		r.try("proc", "write "+path, writes(path, os.O_WRONLY))
	}
	_, err := os.Readlink("/proc/" + parent + "/cwd")
	r.try("proc", "follow the parent's directory", err)
	if r.v.PID == 0 {
		return
	}
	victim := strconv.Itoa(r.v.PID)
	if r.v.File != "" {
		r.try("proc", "read through another process's root", reads("/proc/"+victim+"/root"+r.v.File))
	}
	err = opens("/proc/" + victim + "/environ")
	if data, ok := os.ReadFile("/proc/" + victim + "/environ"); ok == nil && !strings.Contains(string(data), Secret) {
		err = errors.New("that is a process of our own")
	}
	r.try("proc", "read another process's environment", err)
	r.try("proc", "list another process's descriptors", readsLink("/proc/"+victim+"/fd/0", victim))
}

// readsLink returns nil if it could read the link of a victim's descriptor. It fails if the
// victim's number means this process in its pid namespace.
func readsLink(path, victim string) error {
	if victim == strconv.Itoa(os.Getpid()) {
		return errors.New("that is a process of our own")
	}
	_, err := os.Readlink(path)
	return err
}

func (r *round) sockets() {
	for _, s := range []struct {
		name              string
		family, typ, prot int
	}{
		{"raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"raw version 6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{"packet", unix.AF_PACKET, unix.SOCK_RAW, 0},
		{"netlink", unix.AF_NETLINK, unix.SOCK_RAW, 0},
		{"vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		{"alg", unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
		{"bluetooth", unix.AF_BLUETOOTH, unix.SOCK_RAW, 0},
		{"xdp", unix.AF_XDP, unix.SOCK_RAW, 0},
		{"tipc", unix.AF_TIPC, unix.SOCK_RDM, 0},
	} {
		fd, err := unix.Socket(s.family, s.typ|unix.SOCK_CLOEXEC, s.prot)
		if err == nil {
			_ = unix.Close(fd)
		}
		r.try("seccomp", "open a "+s.name+" socket", err)
	}
}

const connectTimeout = 500 * time.Millisecond

func (r *round) network() {
	dial := func(network, address string) error {
		c, err := net.DialTimeout(network, address, connectTimeout)
		if err == nil {
			c.Close()
		}
		return err
	}
	if r.v.TCP != "" {
		r.try("network", "connect to the machine's loopback", dial("tcp", r.v.TCP))
	}
	r.try("network", "connect to an outside address", dial("tcp", "192.0.2.1:80"))
	r.try("network", "connect to the metadata service", dial("tcp", "169.254.169.254:80"))
	if r.v.UDP != "" {
		c, err := net.DialTimeout("udp", r.v.UDP, connectTimeout)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(connectTimeout))
			_, err = c.Write([]byte(Secret))
			if err == nil { // the victim's echo shows that the datagram arrived
				_, err = c.Read(make([]byte, 8))
			}
			c.Close()
		}
		r.try("network", "send a datagram out", err)
	}
	_, err := net.LookupHost("canary.example.com")
	if fault := (*net.DNSError)(nil); errors.As(err, &fault) && fault.IsNotFound && len(nameservers()) > 0 {
		err = nil // the peer answered
	}
	r.try("network", "ask a name server", err)
	if r.v.Socket != "" {
		r.try("root", ActConnect, dial("unix", r.v.Socket))
	}
	if r.v.Abstract != "" {
		r.try("network", "connect to an abstract unix socket", dial("unix", "@"+r.v.Abstract))
	}
}

func nameservers() string {
	data, _ := os.ReadFile("/etc/resolv.conf")
	return string(data)
}

func (r *round) signals() {
	parent := os.Getppid()
	// The kernel reports success for "all processes" even if it refused each one, so the victim
	// must report whether a signal arrived. CONT is harmless.
	_ = unix.Kill(-1, unix.SIGCONT)
	targets := map[string]int{}
	if parent > 1 {
		targets["the parent"] = parent
	}
	if r.v.PID != 0 {
		targets["a foreign process"] = r.v.PID
	}
	for name, pid := range targets {
		r.try("namespaces", "signal "+name, unix.Kill(pid, 0))
	}
	if r.v.PID == 0 {
		return
	}
	pid := r.v.PID
	r.try("namespaces", "trace a foreign process", unix.PtraceSeize(pid))
	buf := make([]byte, 8)
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &buf[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
	r.try("seccomp", "read a foreign process's memory", err)
	r.try("namespaces", "set a foreign process's priority", unix.Setpriority(unix.PRIO_PROCESS, pid, 19))
	var set unix.CPUSet
	set.Set(0)
	r.try("namespaces", "set a foreign process's affinity", unix.SchedSetaffinity(pid, &set))
	limit := unix.Rlimit{Cur: 64, Max: 64}
	r.try("namespaces", "set a foreign process's limits", unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil))
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		_, err = unix.PidfdGetfd(fd, 0, 0)
		_ = unix.Close(fd)
	}
	r.try("seccomp", "take a foreign process's descriptor", err)
}

func (r *round) privileges() {
	held := errors.New("none")
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if unix.Capget(&header, &caps[0]) == nil && caps[0].Permitted|caps[1].Permitted|caps[0].Effective != 0 {
			held = nil
		}
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if strings.HasPrefix(name, "Cap") && strings.Trim(value, "0\t ") != "" {
			held = nil
		}
	}
	r.try("privileges", "use a capability", held)
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err == nil && nnp == 1 {
		err = errors.New("no_new_privs is set")
	}
	r.try("privileges", "gain by a set-user-id program", err)
	r.try("privileges", "become root", rawCall(unix.SYS_SETUID, 0))
	r.try("privileges", "join root's group", rawCall(unix.SYS_SETGID, 0))
	r.try("privileges", "change supplementary groups", rawCall(unix.SYS_SETGROUPS, 0))
	r.try("privileges", "make a device", unix.Mknod(filepath.Join(r.v.Spare, "device"), unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))))
}

func rawCall(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

func fail(err error, act string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", act, err)
}

// shared tries to see and to use up what the programs of the server's user share.
func (r *round) shared() {
	if r.v.File != "" {
		_, err := os.Lstat(r.v.File)
		r.try("root", ActSeePath, err)
	}
	if r.v.UID != os.Getuid() {
		r.skip("namespaces", ActUseUp, "the program runs as another user")
		return
	}
	const many = 64 // half of what the kernel gives a user by default
	var err error
	for range many {
		fd, failed := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err = failed; err != nil {
			break
		}
		defer unix.Close(fd)
	}
	r.try("namespaces", ActUseUp, err)
}
