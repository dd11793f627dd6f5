//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// own are the attacks that the spec does not list.
func own() map[string]func() {
	return map[string]func(){
		"a22fork": fork, "room": room, "memfd": memfd, "memfdchild": func() { try("read a canary from a program without a file", reads(v.File)) }, "foreign": foreign, "raise": raise, "traceme": traceme, "threads": threads,
		"afterend": afterEnd, "fetchlate": fetchLate, "slow": slow, "slowchild": slowChild, "flood": flood, "swap": swap, "fifos": fifos, "fiforace": fifoRace, "escapes": escapes,
		"secret": tellSecret, "init": signalInit, "ipc": ipc, "inodes": inodes, "deep": deep, "close": closeWork, "hidden": hiddenMemory, "calls": calls, "ownfile": ownFile, "artifacts": artifacts, "badfiles": badFiles,
	}
}

// room uses what every program may use, by the names it is told.
func room() {
	for _, name := range []string{"HOME", "TMPDIR", "PWD", "AGENTOS_WORK_DIR"} {
		path := filepath.Join(os.Getenv(name), "room-"+name)
		err := os.WriteFile(path, []byte("x"), 0o600)
		if err == nil {
			_, err = os.ReadFile(path)
		}
		if err == nil {
			_, err = os.ReadDir(os.Getenv(name))
		}
		fmt.Println("SAYS", name, err)
	}
	_, err := exec.LookPath("hostile")
	fmt.Println("SAYS PATH", err)
	if err == nil {
		out, err := exec.Command("hostile", "fine").CombinedOutput()
		fmt.Printf("SAYS run %q %v\n", out, err)
	}
	data, err := os.ReadFile("config.json")
	fmt.Printf("SAYS config %s %v\n", data, err)
}

// memfd runs a program that no file system holds: the walls are the process's.
func memfd() {
	fd, err := unix.MemfdCreate("program", 0)
	if err != nil {
		try("run a program without a file", err)
		return
	}
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		data, err = os.ReadFile(os.Args[0])
	}
	check(err)
	f := os.NewFile(uintptr(fd), "program")
	_, err = f.Write(data)
	check(err)
	cmd := exec.Command("/proc/self/fd/3", "memfdchild", os.Args[2])
	cmd.ExtraFiles = []*os.File{f}
	cmd.Stdout = os.Stdout
	if err := cmd.Run(); err != nil {
		try("run a program without a file", err)
	}
}

// foreign calls the kernel by other tables of calls than the filter knows.
func foreign() {
	for name, code := range map[string][]byte{
		"the 32-bit table": {0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80, 0x0f, 0x0b},
		"the x32 table":    {0xb8, 60, 0, 0, 0x40, 0xbf, 42, 0, 0, 0, 0x0f, 0x05, 0x0f, 0x0b},
	} {
		const start, header = 0x400000, 64 + 56
		le, b := binary.LittleEndian, make([]byte, header, header+len(code))
		copy(b, "\x7fELF\x02\x01\x01")
		le.PutUint16(b[16:], 2)
		le.PutUint16(b[18:], 62)
		le.PutUint32(b[20:], 1)
		le.PutUint64(b[24:], start+header)
		le.PutUint64(b[32:], 64)
		le.PutUint16(b[52:], 64)
		le.PutUint16(b[54:], 56)
		le.PutUint16(b[56:], 1)
		le.PutUint32(b[64:], 1)
		le.PutUint32(b[68:], 5)
		le.PutUint64(b[80:], start)
		le.PutUint64(b[88:], start)
		le.PutUint64(b[96:], uint64(header+len(code)))
		le.PutUint64(b[104:], uint64(header+len(code)))
		le.PutUint64(b[112:], 0x1000)
		check(os.WriteFile("foreign", append(b, code...), 0o700))
		err := exec.Command("./foreign").Run()
		if exit, ok := err.(*exec.ExitError); ok && exit.ExitCode() == 42 { //nolint:errorlint // its own
			err = nil
		}
		try("call by "+name, err)
		_ = os.Remove("foreign")
	}
}

// raise lifts each limit as far as it can be lifted for good.
func raise() {
	for name, r := range map[string]struct {
		resource int
		most     uint64
	}{
		"file size": {unix.RLIMIT_FSIZE, 64 << 20}, "open files": {unix.RLIMIT_NOFILE, 256}, "CPU": {unix.RLIMIT_CPU, 61}, "core": {unix.RLIMIT_CORE, 0}, "locked memory": {unix.RLIMIT_MEMLOCK, 64 << 10},
	} {
		var limit unix.Rlimit
		// Hard limits become final right after a program has begun; what was raised in
		// the moment before is lowered again then.
		for end := time.Now().Add(2 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			check(unix.Getrlimit(r.resource, &limit))
			limit.Cur = limit.Max
			_ = unix.Setrlimit(r.resource, &limit)
			limit = unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
			_ = unix.Setrlimit(r.resource, &limit)
			check(unix.Getrlimit(r.resource, &limit))
			if limit.Cur <= r.most || time.Now().After(end) {
				break
			}
		}
		if limit.Cur > r.most {
			say("BROKE", "raise the limit of "+name, fmt.Sprint(limit.Cur, " of ", limit.Max))
			continue
		}
		say("HELD", "raise the limit of "+name, limit.Cur)
	}
}

// traceme has a child of our own traced, whose calls the tracer could rewrite.
func traceme() {
	cmd := exec.Command("/proc/self/exe", "fine")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	err := cmd.Start()
	if err == nil {
		_ = cmd.Process.Kill()
	}
	try("trace a child", err)
	try("listen to a filter of our own", call(unix.SYS_SECCOMP, 1, 8, uintptr(unsafe.Pointer(&[8]byte{}))))
}

func threads() {
	for range v.N {
		go func() {
			runtime.LockOSThread()
			_ = unix.Nanosleep(&unix.Timespec{Sec: 20}, nil)
		}()
	}
	time.Sleep(2 * time.Second)
	say("BROKE", "start threads without end", v.N)
}

// afterEnd leaves a process behind that requests a page when we are gone.
func afterEnd() {
	for range 4 {
		cmd := exec.Command("/proc/self/exe", "fetchlate", os.Args[2])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		check(cmd.Start())
	}
	fmt.Println("SAYS left")
}

func fetchLate() {
	parent := os.Getppid()
	for os.Getppid() == parent {
		time.Sleep(time.Millisecond)
	}
	proxy := strings.TrimPrefix(os.Getenv("HTTP_PROXY"), "http://")
	time.Sleep(50 * time.Millisecond)
	for range 100 {
		fetch(proxy, v.Names[0])
		time.Sleep(20 * time.Millisecond)
	}
}

// slow opens many connections to the proxy and says nothing.
func slow() {
	var all []*exec.Cmd
	for range v.N {
		cmd := exec.Command("/proc/self/exe", "slowchild")
		cmd.Stdout = os.Stdout
		if cmd.Start() == nil {
			all = append(all, cmd)
		}
	}
	for _, cmd := range all {
		_ = cmd.Wait()
	}
	fmt.Println("SAYS over")
}

func slowChild() {
	proxy := strings.TrimPrefix(os.Getenv("HTTP_PROXY"), "http://")
	var held []net.Conn
	for range 240 {
		c, err := net.DialTimeout("tcp", proxy, waitTimeout)
		if err != nil {
			break
		}
		_, _ = c.Write([]byte("GET http://a.test/ HTTP/1.1\r\nX: "))
		held = append(held, c)
	}
	fmt.Println("SAYS", len(held))
	time.Sleep(4 * time.Second)
	runtime.KeepAlive(held)
}

// flood asks for what is denied, more often than anybody wants to read.
func flood() {
	proxy := strings.TrimPrefix(os.Getenv("HTTP_PROXY"), "http://")
	for i := range v.N {
		fetch(proxy, "http://denied"+strconv.Itoa(i)+".test/")
	}
	fmt.Println("SAYS over")
}

// escapes writes what a terminal obeys, on both streams and as the last line.
func escapes() {
	text := "\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b]52;c;aGk=\x07\u009b31m\u202egnp.exe\u2066\x08\x7f\rover\x1bPdcs\x1b\\\x0e"
	fmt.Println("SAYS " + text)
	fmt.Fprintln(os.Stderr, "bad: "+text)
	os.Exit(3)
}

// tellSecret writes its secret in the ways that might slip through.
func tellSecret() {
	s := os.Getenv("MY_SECRET")
	if s == "" {
		fmt.Println("SAYS there is none")
		return
	}
	fmt.Println("SAYS", s)
	fmt.Println("SAYS " + s[:4] + "\x1b[0m" + s[4:])
	fmt.Println("SAYS " + s[:4] + "\x00" + s[4:])
	fmt.Println("SAYS " + s[:4] + "\x07" + s[4:] + "\x08")
	fmt.Println("SAYS\r" + s[:3] + "\x7f" + s[3:])
	fmt.Fprintln(os.Stderr, "failed with", s)
	os.Exit(4)
}

// signalInit does what it can to its supervisor, and then hangs.
func signalInit() {
	fmt.Println("SAYS begun")
	for _, pid := range []int{1, os.Getppid()} {
		if pid != 1 || os.Getppid() == 1 {
			for s := syscall.Signal(1); s < 32; s++ {
				if s != syscall.SIGSTOP {
					_ = unix.Kill(pid, s)
				}
			}
			_ = unix.Kill(pid, unix.SIGSTOP)
		}
	}
	time.Sleep(10 * time.Minute)
}

// ipc leaves behind what no process holds.
func ipc() {
	for range 8 {
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 8<<20, 0o600|unix.IPC_CREAT)
		if err == nil {
			var data []byte
			if data, err = unix.SysvShmAttach(id, 0, 0); err == nil {
				for i := range data {
					data[i] = 1
				}
			}
		}
		claims("shared memory", err)
	}
	claims("semaphores", call(unix.SYS_SEMGET, 0, 32, 0o1600))
	claims("messages", call(unix.SYS_MSGGET, 0, 0o1600))
	claims("a queue", call(unix.SYS_MQ_OPEN, ptr("hostile-"+strconv.Itoa(os.Getpid())), 0o102, 0o600, 0))
	runtime.KeepAlive(keep)
}

// hiddenMemory holds memory that does not belong to a process.
func hiddenMemory() {
	b := bytes.Repeat([]byte{1}, 1<<20)
	held := 0
	for range 16 {
		fd, err := unix.MemfdCreate("hidden", 0)
		if err != nil {
			say("HELD", "make anonymous files", cause(err))
			break
		}
		for range 25 {
			if _, err := unix.Write(fd, b); err != nil {
				say("HELD", "fill an anonymous file", cause(err))
				break
			}
			held++
		}
	}
	for range 16 {
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 24<<20, 0o600|unix.IPC_CREAT)
		if err != nil {
			say("HELD", "make shared memory", cause(err))
			break
		}
		data, err := unix.SysvShmAttach(id, 0, 0)
		if err != nil {
			break
		}
		for i := 0; i < len(data); i += 4096 {
			data[i] = 1
		}
		held += len(data) >> 20
		_ = unix.SysvShmDetach(data)
	}
	time.Sleep(500 * time.Millisecond)
	if held > 150 {
		say("BROKE", "hold memory that is not a process's", fmt.Sprint(held, " MiB"))
		return
	}
	os.Exit(9)
}

// calls are system calls that no program needs.
func calls() {
	var space [256]byte
	at := uintptr(unsafe.Pointer(&space[0]))
	here := ^uintptr(99)
	for name, c := range map[string][]uintptr{
		"io_uring": {unix.SYS_IO_URING_SETUP, 8, at}, "userfaultfd": {unix.SYS_USERFAULTFD, 1}, "fanotify": {unix.SYS_FANOTIFY_INIT, 0, 0}, "handle": {unix.SYS_NAME_TO_HANDLE_AT, here, ptr("."), at, at, 0}, "open by handle": {unix.SYS_OPEN_BY_HANDLE_AT, here, at, 0},
		"clone3": {unix.SYS_CLONE3, at, 88}, "kcmp": {unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(os.Getpid()), 0, 0, 1}, "quotactl": {unix.SYS_QUOTACTL, 0, ptr("/"), 0, at}, "syslog": {unix.SYS_SYSLOG, 3, at, 64}, "vhangup": {unix.SYS_VHANGUP},
		"swapoff": {unix.SYS_SWAPOFF, ptr("/x")}, "iopl": {172, 3}, "modify_ldt": {154, 1, at, 16}, "adjtimex": {unix.SYS_ADJTIMEX, at | 0}, "personality": {unix.SYS_PERSONALITY, 0x0400000}, "acct": {unix.SYS_ACCT, 0},
		"fsmount": {unix.SYS_FSMOUNT, 0, 0, 0}, "move_mount": {unix.SYS_MOVE_MOUNT, here, ptr("/"), here, ptr("/tmp"), 0}, "open_tree_attr": {467, here, ptr("/"), 1, at, 32}, "fspick": {unix.SYS_FSPICK, here, ptr("/"), 0}, "type into a terminal": {unix.SYS_IOCTL, 0, unix.TIOCSTI, at},
		"type into a console": {unix.SYS_IOCTL, 0, 0x541c, at}, "a higher word of the request": {unix.SYS_IOCTL, 0, unix.TIOCSTI | 1<<32, at}, "namespace flags in the high word": {unix.SYS_CLONE, unix.CLONE_NEWUSER | 17 | 1<<40, 0, 0, 0, 0},
		"pidfd of process 1": {unix.SYS_PIDFD_SEND_SIGNAL, 0, 9, 0, 0}, "kexec": {unix.SYS_KEXEC_LOAD, 0, 0, 0, 0}, "perf": {unix.SYS_PERF_EVENT_OPEN, at, 0, ^uintptr(0), ^uintptr(0), 0}, "secret memory of the kernel": {unix.SYS_LOOKUP_DCOOKIE, 0, at, 16},
	} {
		if name == "adjtimex" {
			space[0] = 1 // it means to set something
		}
		try(name, call(c[0], c[1:]...))
	}
	runtime.KeepAlive(keep)
}
