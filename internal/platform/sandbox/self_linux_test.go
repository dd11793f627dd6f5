package sandbox

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/internal/testkit/programfile"
)

// computeOnly gives everything up and then tries what must not work any more, and
// what must.
func computeOnly(args []string) int {
	victim, _ := strconv.Atoi(args[0])
	if len(args) == 1 { // without it, all of them work: the rest of this says something
		if err := ComputeOnly(); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	for name, try := range map[string]func() error{
		"open":   func() error { _, err := os.Open("/etc/passwd"); return err },
		"create": func() error { return os.WriteFile(os.DevNull, nil, 0o600) },
		"list":   func() error { _, err := os.ReadDir("/"); return err },
		"stat":   func() error { _, err := os.Stat("/"); return err },
		"socket": func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
		"listen": func() error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err },
		"exec":   func() error { return exec.Command("/bin/true").Run() },
		"signal": func() error { return unix.Kill(victim, 0) },
		"thread": func() error { return unix.Tgkill(victim, victim, 0) },
		"limit":  func() error { return unix.Prlimit(victim, unix.RLIMIT_CORE, nil, &unix.Rlimit{}) },
		"setuid": func() error { return unix.Setpriority(unix.PRIO_PROCESS, 0, 1) },
	} {
		if err := try(); err == nil {
			fmt.Println(name, "works")
		}
	}
	var wg sync.WaitGroup
	for range 64 { // threads of their own, which are filtered as well
		wg.Go(func() {
			var p [2]int
			if err := unix.Pipe2(p[:], 0); err != nil {
				fmt.Println("pipe:", err)
			}
			if _, err := unix.Write(p[1], []byte("x")); err != nil {
				fmt.Println("write:", err)
			}
			_, _ = unix.Read(p[0], make([]byte, 1))
			_, _ = syscall.Close(p[0]), syscall.Close(p[1])
			if _, err := os.Open("/etc/passwd"); err == nil && len(args) == 1 {
				fmt.Println("a thread opens files")
			}
		})
	}
	wg.Wait()
	fmt.Println("end")
	return 0
}

func TestComputeOnlyLeavesNothingElse(t *testing.T) {
	t.Parallel()
	if f := New(Config{}).Facts(); f.NoT2 != "" {
		t.Skipf("SKIPPED: %s", f.NoT2)
	}
	for extra, want := range map[string]int{"": 1, "unfiltered": 12} {
		args := append([]string{"attack", "compute", strconv.Itoa(os.Getpid())}, strings.Fields(extra)...)
		cmd := exec.Command("/proc/self/exe", args...)
		cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
		out, err := cmd.CombinedOutput()
		if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); err != nil || len(lines) != want || lines[len(lines)-1] != "end" {
			t.Errorf(`%q: %v, %d lines: %s; want no error, len(lines) = %v, lines[len(lines)-1] = "end"`,
				extra, err, len(lines), out, want)
		}
	}
}

// Our own binary runs inside by what it is, not by its name, and a bare room has
// nothing else in it.
func TestSelfInABareRoom(t *testing.T) {
	t.Parallel()
	binary := t.TempDir() + "/self"
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tier := range []Tier{T3, T2} {
		t.Run(tier.String(), func(t *testing.T) {
			t.Parallel()
			if f := New(Config{}).Facts(); tier == T3 && f.NoT3 != "" || tier == T2 && f.NoT2 != "" {
				t.Skipf("SKIPPED: %s %s", f.NoT3, f.NoT2)
			}
			own := t.TempDir() + "/moved"
			data, err := os.ReadFile(binary)
			if err != nil {
				t.Fatal(err)
			}
			programfile.Write(t, own, string(data), 0o755)
			cmd := exec.Command(own, "attack", "bare", tier.String(), own)
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != "nothing to see\n" {
				t.Errorf(`%v: %s; want no error, string(out) = "nothing to see\n"`, err, out)
			}
		})
	}
}

// bare removes our own file and runs us in a bare room, to look around there.
func bare(args []string) int {
	if len(args) == 0 {
		for _, dir := range []string{"/", "/usr", "/etc", "/proc", "/tmp", "/dev"} {
			if list, err := os.ReadDir(dir); err == nil {
				fmt.Println(dir, "has", len(list), "entries")
			}
		}
		for _, file := range []string{"/etc/passwd", "/dev/null", "/proc/self/environ", "/bin/sh"} {
			if _, err := os.Open(file); err == nil {
				fmt.Println(file, "is open")
			}
		}
		if err := os.WriteFile(os.TempDir()+"/x", nil, 0o600); err == nil {
			fmt.Println("a file is written")
		}
		fmt.Println("nothing to see")
		return 0
	}
	var tier Tier
	box := New(Config{})
	if box.Facts(); tier.UnmarshalText([]byte(args[0])) != nil || os.Remove(args[1]) != nil {
		return 2
	}
	r, err := box.Run(context.Background(), Spec{Self: true, Args: []string{"attack", "bare"}},
		Confinement{Bare: true, MinTier: tier, MaxTier: tier})
	fmt.Print(r.Stdout.Text(), r.Stderr.Text())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return r.ExitCode
}
