//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func ptr(s string) uintptr {
	b := append([]byte(s), 0)
	keep = append(keep, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

var keep [][]byte

func procPaths() {
	parent := strconv.Itoa(os.Getppid())
	victim, daemon := strconv.Itoa(v.PID), strconv.Itoa(v.Daemon)
	for _, p := range []string{"self", "thread-self", parent, "1", victim, daemon} {
		try("read by /proc/"+p+"/root", reads("/proc/"+p+"/root"+v.File))
	}
	for _, p := range []string{parent, "1", victim, daemon} {
		try("list /proc/"+p+"/cwd", lists("/proc/"+p+"/cwd/"))
		try("list /proc/"+p+"/fd", listsFull("/proc/"+p+"/fd"))
		try("open /proc/"+p+"/exe", opens("/proc/"+p+"/exe"))
		try("open /proc/"+p+"/fd/1", opensOwn("/proc/"+p+"/fd/1"))
		try("list /proc/"+p+"/map_files", listsFull("/proc/"+p+"/map_files"))
	}
	for _, path := range []string{"/proc/kcore", "/proc/kmsg", "/proc/sysrq-trigger", "/proc/1/environ", "/proc/sys/kernel/core_pattern"} {
		try("write "+path, writes(path, os.O_WRONLY))
	}
	names, _ := filepath.Glob("/proc/[0-9]*")
	foreign := errors.New("none is seen")
	for _, name := range names {
		if data, err := os.ReadFile(name + "/cmdline"); err == nil && bytes.Contains(data, []byte("junctor")) && bytes.Contains(data, []byte("serve")) {
			foreign = nil
		}
	}
	try("see the server among processes", foreign)
}

func listsFull(path string) error {
	names, err := os.ReadDir(path)
	if err == nil && len(names) == 0 {
		err = errors.New("it is empty")
	}
	return err
}

// opensOwn opens a descriptor that is not ours.
func opensOwn(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func daemonMemory() {
	for name, pid := range map[string]int{"server": v.Daemon, "parent": os.Getppid(), "victim": v.PID} {
		p := "/proc/" + strconv.Itoa(pid)
		for _, file := range []string{"environ", "mem", "maps", "auxv", "stack", "syscall", "io", "pagemap", "clear_refs", "oom_score_adj"} {
			flag := os.O_RDONLY
			if file == "clear_refs" || file == "oom_score_adj" {
				flag = os.O_WRONLY
			}
			if file == "oom_score_adj" && pid == os.Getppid() {
				continue
			}
			try(name+"'s "+file, readsSome(p+"/"+file, flag))
		}
		try("attach to the "+name, call(unix.SYS_PTRACE, unix.PTRACE_ATTACH, uintptr(pid)))
		try("seize the "+name, call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid)))
		b := make([]byte, 8)
		_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		try("read the "+name+"'s memory", err)
		_, err = unix.ProcessVMWritev(pid, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		try("write the "+name+"'s memory", err)
		fd, err := unix.PidfdOpen(pid, 0)
		if err == nil {
			_, err = unix.PidfdGetfd(fd, 0, 0)
		}
		try("take a descriptor of the "+name, err)
		try("advise the "+name+"'s memory", func() error {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return err
			}
			iov := [2]uintptr{0x400000, 4096} // another process's address
			return call(unix.SYS_PROCESS_MADVISE, uintptr(fd), uintptr(unsafe.Pointer(&iov)), 1, unix.MADV_COLD, 0)
		}())
	}
}

func readsSome(path string, flag int) error {
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if flag == os.O_WRONLY {
		return nil
	}
	_, err = f.Read(make([]byte, 16))
	return err
}

func foreignProcesses() {
	for name, pid := range map[string]int{"server": v.Daemon, "victim": v.PID, "parent": os.Getppid()} {
		if pid == 1 && name == "parent" {
			// Process 1 of our own namespace: it may be signalled, and must not care.
			claims("signal the parent", unix.Kill(pid, unix.SIGSTOP))
			continue
		}
		try("signal the "+name, unix.Kill(pid, unix.SIGUSR1))
		try("stop the "+name, unix.Kill(pid, unix.SIGSTOP))
		try("kill the "+name, unix.Kill(pid, unix.SIGKILL))
		try("signal the "+name+"'s group", unix.Kill(-pid, unix.SIGTERM))
		fd, err := unix.PidfdOpen(pid, 0)
		if err == nil {
			err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		try("signal the "+name+" by a descriptor", err)
		try("set the "+name+"'s priority", unix.Setpriority(unix.PRIO_PROCESS, pid, 19))
		var set unix.CPUSet
		set.Set(0)
		try("set the "+name+"'s affinity", unix.SchedSetaffinity(pid, &set))
		limit := unix.Rlimit{Cur: 8, Max: 8}
		try("set the "+name+"'s limits", unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil))
		try("set the "+name+"'s I/O priority", call(unix.SYS_IOPRIO_SET, 1, uintptr(pid), 3<<13))
		param := struct{ priority int32 }{}
		try("set the "+name+"'s scheduling", call(unix.SYS_SCHED_SETSCHEDULER, uintptr(pid), 3, uintptr(unsafe.Pointer(&param))))
		try("move the "+name+"'s pages", call(unix.SYS_MIGRATE_PAGES, uintptr(pid), 8, uintptr(unsafe.Pointer(&set)), uintptr(unsafe.Pointer(&set))))
	}
	// The kernel reports success even if no process could be signalled: the
	// victims report it. CONT is harmless, and noticed.
	claims("signal everybody", unix.Kill(-1, unix.SIGCONT))
	claims("signal our user", unix.Setpriority(unix.PRIO_USER, 0, 19))
}

func privileges() {
	var space [256]byte
	at := uintptr(unsafe.Pointer(&space[0]))
	for name, flag := range map[string]uintptr{
		"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "network": unix.CLONE_NEWNET, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP, "time": unix.CLONE_NEWTIME,
	} {
		try("unshare the "+name+" namespace", call(unix.SYS_UNSHARE, flag))
		cmd := exec.Command("/proc/self/exe", "fine")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flag}
		try("clone into a "+name+" namespace", cmd.Run())
	}
	try("join a namespace", func() error {
		fd, err := unix.Open("/proc/"+strconv.Itoa(os.Getppid())+"/ns/mnt", unix.O_RDONLY, 0)
		if err != nil {
			fd = 0
		}
		return call(unix.SYS_SETNS, uintptr(fd), 0)
	}())
	for name, c := range map[string][]uintptr{
		"mount": {unix.SYS_MOUNT, ptr("none"), ptr("/tmp"), ptr("tmpfs"), 0, 0}, "bind": {unix.SYS_MOUNT, ptr("/"), ptr("/tmp"), 0, unix.MS_BIND | unix.MS_REC, 0},
		"unmount": {unix.SYS_UMOUNT2, ptr("/proc"), unix.MNT_DETACH}, "remount": {unix.SYS_MOUNT, 0, ptr("/"), 0, unix.MS_REMOUNT, 0},
		"chroot": {unix.SYS_CHROOT, ptr("/tmp")}, "pivot_root": {unix.SYS_PIVOT_ROOT, ptr("/"), ptr("/tmp")}, "open_tree": {unix.SYS_OPEN_TREE, ^uintptr(99), ptr("/"), 1},
		"mount_setattr": {unix.SYS_MOUNT_SETATTR, ^uintptr(99), ptr("/"), 0, at, 32}, "fsopen": {unix.SYS_FSOPEN, ptr("tmpfs"), 0},
		"load a module": {unix.SYS_INIT_MODULE, at, 16, at}, "unload a module": {unix.SYS_DELETE_MODULE, ptr("loop"), 0}, "bpf": {unix.SYS_BPF, 5, at, 120}, "perf": {unix.SYS_PERF_EVENT_OPEN, at, 0, ^uintptr(0), ^uintptr(0), 0},
		"keyring": {unix.SYS_KEYCTL, 0, ^uintptr(3), 1}, "add a key": {unix.SYS_ADD_KEY, ptr("user"), ptr("x"), ptr("y"), 1, ^uintptr(3)}, "reboot": {unix.SYS_REBOOT, 0xfee1dead, 672274793, 0, 0},
		"make a device": {unix.SYS_MKNODAT, ^uintptr(99), ptr("/tmp/device"), unix.S_IFBLK | 0o600, 0xfe00}, "host name": {unix.SYS_SETHOSTNAME, at, 1}, "clock": {unix.SYS_CLOCK_SETTIME, 0, at},
		"become root": {unix.SYS_SETUID, 0}, "root's group": {unix.SYS_SETGID, 0}, "groups": {unix.SYS_SETGROUPS, 0, 0}, "a lower nice value": {unix.SYS_SETPRIORITY, 0, 0, ^uintptr(9)},
	} {
		try(name, call(c[0], c[1:]...))
	}
	defer func() { // last: hard limits become final right after a program has begun, not before
		for name, resource := range map[string]uintptr{"file": unix.RLIMIT_NOFILE, "process": unix.RLIMIT_NPROC, "CPU": unix.RLIMIT_CPU} {
			try("raise the hard "+name+" limit", call(unix.SYS_PRLIMIT64, 0, resource, raised(), 0))
		}
	}()
	for _, name := range []string{"su", "passwd", "sudo", "mount", "newgrp", "chsh", "ping"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		cmd := exec.Command("/usr/bin/env", path, "--version")
		_ = cmd.Run()
	}
	status, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for _, field := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			i := bytes.Index(status, []byte(field))
			zero := i >= 0 && len(bytes.Trim(bytes.TrimSpace(status[i+len(field)+1:i+len(field)+18]), "0")) == 0
			err := error(nil)
			if zero {
				err = errors.New("none")
			}
			try("hold a capability of "+field, err)
		}
	}
	if nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && nnp == 1 {
		try("gain by a set-user-id program", errors.New("no_new_privs is set"))
	} else {
		try("gain by a set-user-id program", err)
	}
	try("clear no_new_privs", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0))
	if os.Geteuid() == 0 || os.Getegid() == 0 {
		try("run as root", nil)
	}
	fmt.Println("SAYS uid", os.Getuid())
	runtime.KeepAlive(keep)
}

func raised() uintptr {
	limit := &unix.Rlimit{Cur: 1 << 40, Max: 1 << 40}
	limits = append(limits, limit)
	return uintptr(unsafe.Pointer(limit))
}

var limits []*unix.Rlimit
