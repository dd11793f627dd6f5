// Package attack attacks extensions and their sandbox from the outside: the real server is started as its own
// process, as root and as a user
// without rights, at tier T3 and at T2; hostile extensions are installed, agreed
// to and run through its doors, as a person would; and the victims are looked at
// afterwards. Everything happens in namespaces of its own, where all but the
// test's own folder is read-only, so that a wall that gives way costs a test and
// not the machine.
package attack

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/internal/testkit/built"
)

// What this binary is beside the tests, by roleVariable: process 1 of the
// namespaces, or a victim. baseVariable names the folder that may be written.
const (
	roleVariable = "JUNCTORTEST_ATTACK"
	baseVariable = "JUNCTORTEST_BASE"
)

// publicAddress is the address of a web server of the tests' own network: one
// that the rules about special addresses do not know.
const publicAddress = "93.184.216.34"

// base is the folder of everything; private reports that we are in namespaces of our
// own.
var (
	base    string
	private bool
)

func TestMain(m *testing.M) {
	base = os.Getenv(baseVariable)
	switch role := os.Getenv(roleVariable); role {
	case "world":
		os.Exit(world())
	case "victim":
		os.Exit(victimMain())
	case "inside":
		private = true
		code := m.Run()
		stopServers()
		os.Exit(code)
	}
	code, err := outside(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// outside builds the programs and goes on inside.
func outside(m *testing.M) (code int, err error) {
	base, err = os.MkdirTemp("", "junctor-attack-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(base)
	if base, err = filepath.EvalSymlinks(base); err != nil {
		return 1, err
	}
	for _, dir := range []string{"", "bin", "tmp", "etc"} {
		mode := os.FileMode(0o755)
		if dir == "tmp" {
			mode = 0o1777
		}
		path := filepath.Join(base, dir)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode)); err != nil { //nolint:gosec // others run programs from here
			return 1, err
		}
	}
	if err := built.Copy(filepath.Join(base, "bin", "junctor")); err != nil {
		return 1, err
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(base, "bin", "hostile"), "./testdata/hostile")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build hostile: %w: %s", err, out)
	}
	if os.Geteuid() != 0 {
		fmt.Println("SKIPPED: private namespaces and everything as root: the tests run without rights")
		if err := os.Setenv("TMPDIR", filepath.Join(base, "tmp")); err != nil {
			return 1, err
		}
		code = m.Run()
		stopServers()
		return code, nil
	}
	return goInside()
}

// goInside runs the tests in namespaces of their own.
func goInside() (int, error) {
	runtime.LockOSThread() // whose end would be process 1's
	defer runtime.UnlockOSThread()
	defer removeGroups()
	cmd := exec.Command("/proc/self/exe")
	for _, arg := range os.Args[1:] { // what go test wants to be written is ours to write
		if !strings.HasPrefix(arg, "-test.testlogfile") && !strings.HasPrefix(arg, "-test.paniconexit0") &&
			!strings.HasPrefix(arg, "-test.parallel") {
			cmd.Args = append(cmd.Args, arg)
		}
	}
	cmd.Args = append(cmd.Args, "-test.parallel=6") // most of it waits
	cmd.Env = append(os.Environ(), roleVariable+"=world", baseVariable+"="+base, "TMPDIR="+filepath.Join(base, "tmp"),
		"GORACE=atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS, Pdeathsig: unix.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		fmt.Printf("SKIPPED: everything: this machine grants no private namespaces, and attacks are not tried without: %v\n", err)
		return 0, nil
	}
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}

// world is process 1: it makes the place, starts the tests in it and reaps.
func world() int {
	if err := furnish(); err != nil {
		fmt.Fprintln(os.Stderr, "the tests' own namespaces:", err)
		return 1
	}
	tests := exec.Command("/proc/self/exe")
	tests.Args = append(tests.Args, os.Args[1:]...)
	tests.Env = append(os.Environ(), roleVariable+"=inside")
	tests.Stdout, tests.Stderr = os.Stdout, os.Stderr
	if err := tests.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 1
		}
		if pid == tests.Process.Pid && (status.Exited() || status.Signaled()) {
			if status.Signaled() {
				return 1
			}
			return status.ExitStatus()
		}
	}
}

// furnish makes everything but our folder read-only, and a network without servers
// else in it, where a.test and b.test have a public address.
func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	enterGroup()
	if err := unix.Mount(base, base, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	// In memory: attacks that make tens of thousands of files would keep the machine's disk so
	// busy that the servers of all other attacks wait for their own writes.
	if err := unix.Mount("tmpfs", filepath.Join(base, "tmp"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return fmt.Errorf("homes in memory: %w", err)
	}
	for name, text := range map[string]string{
		"hosts": "127.0.0.1 localhost inside.test\n" + publicAddress +
			" a.test b.test c.test.\n169.254.169.254 metadata.test\n10.1.2.3 intranet.test\n",
		"resolv.conf": "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
	} {
		from := filepath.Join(base, "etc", name)
		if err := os.WriteFile(from, []byte(text), 0o644); err != nil { //nolint:gosec // everybody reads it
			return err
		}
		if err := unix.Mount(from, "/etc/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("/etc/%s: %w", name, err)
		}
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("read-only: %w", err)
	}
	for _, dir := range []string{base, "/sys/fs/cgroup"} {
		err := unix.MountSetattr(unix.AT_FDCWD, dir, unix.AT_RECURSIVE, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		if err != nil && dir == base {
			return fmt.Errorf("our folder: %w", err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	// Numbers that no process inside a sandbox will have.
	_ = os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte("20000"), 0o644) //nolint:gosec // the kernel's
	for _, step := range []struct{ name, address string }{{"lo", ""}, {"lo:1", publicAddress}} {
		if err := interfaceUp(step.name, step.address); err != nil {
			return fmt.Errorf("network %s: %w", step.name, err)
		}
	}
	return nil
}

// interfaceUp gives an interface an address, if one is named, and starts it.
func interfaceUp(name, address string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	type ifreq struct {
		name [unix.IFNAMSIZ]byte
		data [24]byte
	}
	var r ifreq
	copy(r.name[:], name)
	if address != "" {
		r.data[0] = unix.AF_INET
		for i, part := range strings.Split(address, ".") {
			n, _ := strconv.Atoi(part)
			r.data[4+i] = byte(n)
		}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFADDR, uintptr(unsafe.Pointer(&r))); errno != 0 {
			return errno
		}
	}
	r.data = [24]byte{unix.IFF_UP | unix.IFF_RUNNING}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&r))); errno != 0 {
		return errno
	}
	return nil
}

// groupDirs are where a control group of the tests would be: servers tidy up
// beside themselves, and other servers of the machine are not ours.
func groupDirs() (dirs []string) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	name := "attack-" + filepath.Base(base)
	for line := range strings.Lines(string(own)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (f[1] == "memory" || f[1] == "pids" || f[1] == "cpu") {
			dirs = append(dirs, filepath.Join("/sys/fs/cgroup", f[1], f[2], name))
		}
	}
	return dirs
}

func enterGroup() {
	for _, dir := range groupDirs() {
		if os.Mkdir(dir, 0o755) == nil { //nolint:gosec // a control group
			_ = os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o600)
		}
	}
}

// removeGroups takes the groups away, with what killed servers left in them.
func removeGroups() {
	for _, dir := range groupDirs() {
		left, _ := filepath.Glob(dir + "/junctor-*")
		for _, d := range append(left, dir) {
			for range 20 {
				if err := unix.Rmdir(d); !errors.Is(err, unix.EBUSY) {
					break
				}
				time.Sleep(5 * time.Millisecond) // the last process is still going
			}
		}
	}
}

// victimMain is a process that waits, and states what reached it.
func victimMain() int {
	heard := make(chan os.Signal, 16)
	signal.Notify(heard, syscall.SIGCONT, syscall.SIGUSR1, syscall.SIGTERM)
	fmt.Println("alive")
	var end [1]byte
	_, _ = os.Stdin.Read(end[:]) // until the test lets go
	select {
	case s := <-heard:
		fmt.Println("touched by", s)
	default:
	}
	return 0
}

// processes counts the living processes whose command line holds mark.
func processes(mark string) (found []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		data, err := os.ReadFile(name)
		if err == nil && bytes.Contains(data, []byte(mark)) {
			found = append(found, strings.ReplaceAll(name+" "+string(data), "\x00", " "))
		}
	}
	return found
}
