package attack

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	canaryMark = "canary7c1e"
	canaryText = "junctor canary: nobody inside may read this"
)

// victims are told to the hostile program; the rest is the test's own.
type victims struct {
	File, Dir, HomeFile, OtherWork, Database, Log, Token, Extensions string
	PID, Daemon                                                      int
	TCP, UDP, DNS, Public, Socket, Abstract                          string
	Names                                                            []string
	N                                                                int

	hits    *hits
	process *victim
	mtime   time.Time
}

// hits are what reached a listener.
type hits struct {
	sync.Mutex
	list []string
}

func (h *hits) add(format string, args ...any) {
	h.Lock()
	defer h.Unlock()
	h.list = append(h.list, fmt.Sprintf(format, args...))
}

func (h *hits) all() []string {
	h.Lock()
	defer h.Unlock()
	return append([]string(nil), h.list...)
}

// makeVictims makes what may not be reached. Permissions do not protect it: only
// the walls do.
func makeVictims(t *testing.T, s *server) *victims {
	t.Helper()
	dir := t.TempDir()
	walkable(dir)
	v := &victims{
		Dir: filepath.Join(dir, "outside"), File: filepath.Join(dir, "outside", "file"), HomeFile: filepath.Join(dir, "home", ".ssh", "id"),
		hits:     &hits{},
		Database: filepath.Join(s.home, "state", "junctor.db"), Log: filepath.Join(s.home, "logs", "capabilities.log"),
		Token:      filepath.Join(s.home, "run", "admin.token"),
		Extensions: filepath.Join(s.home, "extensions"), OtherWork: filepath.Join(s.home, "extensions", "tools.other", "work", "secret"),
		Daemon: s.pid,
	}
	for path, mode := range map[string]os.FileMode{v.File: 0o666, v.HomeFile: 0o644} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a victim
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(canaryText), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(v.Dir, 0o777); err != nil { //nolint:gosec // a victim
		t.Fatal(err)
	}
	v.mtime = time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(v.File, v.mtime, v.mtime); err != nil {
		t.Fatal(err)
	}
	v.TCP = v.listen(t, "tcp4", "127.0.0.1:0")
	short, err := os.MkdirTemp(filepath.Join(base, "tmp"), "s") // a socket's name may not be long
	if err != nil {
		t.Fatal(err)
	}
	walkable(short)
	v.Socket = v.listen(t, "unix", filepath.Join(short, "socket"))
	if err := os.Chmod(v.Socket, 0o777); err != nil { //nolint:gosec // a victim
		t.Fatal(err)
	}
	v.Abstract = strings.TrimPrefix(v.listen(t, "unix", "@attack-"+rand.Text()), "@")
	v.UDP = v.echo(t, "127.0.0.1:0")
	v.DNS = v.echo(t, "127.0.0.1:0")
	if private {
		v.Public = v.listen(t, "tcp4", publicAddress+":0")
	} else {
		v.Public = v.TCP
	}
	return v
}

func (v *victims) listen(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			v.hits.add("%s: a connection", network+" "+address)
			c.Close()
		}
	}()
	return l.Addr().String()
}

func (v *victims) echo(t *testing.T, address string) string {
	t.Helper()
	c, err := net.ListenPacket("udp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() { // ends with the socket
		buf := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			v.hits.add("datagram of %d bytes", n)
			_, _ = c.WriteTo(buf[:n], from)
		}
	}()
	return c.LocalAddr().String()
}

// victim is a process that belongs to whom the hostile program runs as.
type victim struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
	nice  int // as the kernel counts
}

func (v *victims) startProcess(t *testing.T, user int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleVariable + "=victim", "SECRET=" + canaryText, "GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		uid := uint32(user) //nolint:gosec // small
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	v.PID, v.process = cmd.Process.Pid, &victim{cmd: cmd, stdin: in, out: bufio.NewReader(out)}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := v.process.out.ReadString('\n'); err != nil || line != "alive\n" {
		t.Fatalf(`the victim says %q, %v; want no error, line = "alive\n"`, line, err)
	}
	if v.process.nice, err = syscall.Getpriority(syscall.PRIO_PROCESS, v.PID); err != nil {
		t.Fatal(err)
	}
}

// untouched looks at every victim.
func (v *victims) untouched(t *testing.T) {
	t.Helper()
	for _, path := range []string{v.File, v.HomeFile} {
		data, err := os.ReadFile(path)
		if err != nil || string(data) != canaryText {
			t.Errorf("%s was changed: %q %v; want no error, string(data) = %v", filepath.Base(path), data, err, canaryText)
		}
	}
	info, err := os.Stat(v.File)
	if err != nil {
		t.Fatal(err)
	}
	st, _ := info.Sys().(*syscall.Stat_t)
	if info.Mode().Perm() != 0o666 || st.Nlink != 1 || int(st.Uid) != os.Geteuid() || !info.ModTime().Equal(v.mtime) {
		t.Errorf("the attributes of the file were changed: %v %d %d %v; want info.Mode().Perm() = 0o666, st.Nlink = 1, "+
			"int(st.Uid) = os.Geteuid(), info.ModTime().Equal(v.mtime)", info.Mode(), st.Nlink, st.Uid, info.ModTime())
	}
	if n, _ := syscall.Listxattr(v.File, make([]byte, 512)); n > 0 {
		t.Errorf("the file has %d bytes of attributes; want n at most 0", n)
	}
	entries, err := os.ReadDir(v.Dir)
	if err != nil || len(entries) > 1 {
		t.Errorf("something was made outside: %v %v; want no error, len(entries) at most 1", entries, err)
	}
	if v.process == nil {
		return
	}
	if priority, err := syscall.Getpriority(syscall.PRIO_PROCESS, v.PID); err != nil || priority != v.process.nice {
		t.Errorf("the victim's priority is %d, not %d, %v; want no error, priority = %v", priority, v.process.nice, err, v.process.nice)
	}
	_ = v.process.stdin.Close()
	rest, _ := io.ReadAll(v.process.out)
	if err := v.process.cmd.Wait(); err != nil || len(rest) > 0 {
		t.Errorf("the victim: %v, %q; want no error, len(rest) at most 0", err, rest)
	}
	v.process = nil
}

// nobodyReached checks that no listener received anything.
func (v *victims) nobodyReached(t *testing.T) {
	t.Helper()
	if got := v.hits.all(); len(got) > 0 {
		t.Errorf("reached: %v; want len(got) at most 0", got)
	}
}
