package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// eachTier runs an attack at both confined tiers, and states why where it cannot.
func eachTier(t *testing.T, attack func(t *testing.T, box *Box, tier Tier, c Confinement)) {
	t.Helper()
	box := New(Config{})
	for _, tier := range []Tier{T3, T2} {
		t.Run(tier.String(), func(t *testing.T) {
			t.Parallel()
			f := box.Facts()
			if why := map[Tier]string{T3: f.NoT3, T2: f.NoT2}[tier]; why != "" {
				t.Skipf("SKIPPED: %s", why)
			}
			attack(t, box, tier, Confinement{Work: workDir(t), MinTier: tier, MaxTier: tier})
		})
	}
}

// workDir is a directory that another user can walk to.
func workDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// hostile is a program written in the shell.
func hostile(line string) Spec {
	return Spec{Path: "/bin/sh", Args: []string{"-c", line}, Env: []string{"PATH=/usr/bin:/bin"}, Grace: 200 * time.Millisecond}
}

// attacker is this test binary with one of the tasks of attackMain.
func attacker(t *testing.T, args ...string) Spec {
	t.Helper()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	return Spec{
		Path: self, Args: append([]string{"attack"}, args...), Env: []string{"GORACE=atexit_sleep_ms=0"},
		Grace: 200 * time.Millisecond,
	}
}

// attackMain runs in the sandbox.
func attackMain(args []string) int {
	switch args[0] {
	case "eat": // allocate and touch N MiB, then say so
		n, _ := strconv.Atoi(args[1])
		var keep [][]byte
		for range n {
			b := bytes.Repeat([]byte{1}, 1<<20)
			keep = append(keep, b)
		}
		fmt.Println("ate", len(keep))
		time.Sleep(time.Second) // so that shares are held at the same time
		runtime.KeepAlive(keep)
	case "map": // n files of 4 MB that are mapped and have no name and no descriptor
		n, _ := strconv.Atoi(args[1])
		for i := range n {
			name := "m" + strconv.Itoa(i)
			f, err := os.Create(name)
			if err == nil {
				_, err = f.Write(make([]byte, 4_000_000))
			}
			if err == nil {
				_, err = syscall.Mmap(int(f.Fd()), 0, os.Getpagesize(), syscall.PROT_READ, syscall.MAP_SHARED)
			}
			if err != nil {
				fmt.Println(err)
				return 1
			}
			_ = os.Remove(name)
			_ = f.Close()
		}
		time.Sleep(time.Minute)
	case "queue": // fill as many pairs of sockets as leave some descriptors to this program
		block := make([]byte, 64<<10)
		for range 100 {
			pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
			if err != nil {
				break
			}
			for _, fd := range pair {
				_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 4<<20)
				for {
					if _, err := syscall.Write(fd, block); err != nil {
						break
					}
				}
			}
		}
		time.Sleep(time.Minute)
	case "server": // not inside: it runs something until it is killed
		var tier Tier
		if tier.UnmarshalText([]byte(args[1])) != nil {
			return 2
		}
		c := Confinement{Work: args[2], MinTier: tier, MaxTier: tier}
		_, _ = New(Config{Spares: 1}).Run(context.Background(), hostile(": "+args[3]+"; setsid sleep 100; :"), c)
	case "bare":
		return bare(args[1:])
	case "compute":
		return computeOnly(args[1:])
	case "fetch":
		fetch(args[1:])
	case "burn":
		for i := 0; ; i++ {
			if i < 0 {
				return 1
			}
		}
	}
	return 0
}

func wantReason(t *testing.T, err error, reason, kind string) {
	t.Helper()
	e, ok := errors.AsType[*capability.Error](err)
	if !ok || e.Reason != reason || kind != "" && e.Details["kind"] != kind {
		t.Errorf("got %v (%+v), want %s %s", err, e, reason, kind)
	}
}

// The program starts far more processes than allowed.
func TestForkBombIsCapped(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, box *Box, tier Tier, c Confinement) {
		c.Limits.Processes = 40
		r, err := box.Run(t.Context(), hostile(`i=0; while [ $i -lt 200 ]; do sleep 30 & i=$((i+1)); done 2>/dev/null; echo all started`), c)
		if err == nil && strings.Contains(r.Stdout.Text(), "all started") && r.ExitCode == 0 {
			t.Errorf("200 processes ran with a limit of 40: %d %s; want not (err == nil && strings.Contains(r.Stdout.Text(), "+
				`"all started") && r.ExitCode == 0)`, r.ExitCode, r.Stderr.Text())
		}
	})
}

// A sandbox at its limit does not use up the processes of another.
func TestTwoSandboxesDoNotStarveEachOther(t *testing.T) {
	t.Parallel()
	box := New(Config{})
	if f := box.Facts(); f.NoT3 != "" {
		t.Skipf("SKIPPED: %s", f.NoT3)
	}
	ctx, cancel := context.WithCancel(t.Context())
	greedy := Confinement{Work: workDir(t), Limits: Limits{Processes: 40}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = box.Run(ctx, hostile(`while :; do sleep 30 & done; touch full; sleep 30`), greedy)
	}()
	for range 3 {
		r, err := box.Run(t.Context(), hostile("for i in 1 2 3 4 5; do sleep 0.01 & done; wait; echo fine"),
			Confinement{Work: workDir(t), Limits: Limits{Processes: 40}})
		if err != nil || r.Stdout.Text() != "fine\n" {
			t.Errorf(`got %q, %v, %s; want no error, r.Stdout.Text() = "fine\n"`, r.Stdout.Text(), err, r.Stderr.Text())
		}
	}
	cancel()
	<-done
}

// Memory is allocated in one process and in eight.
func TestMemoryIsBoundedForTheWholeTree(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, box *Box, _ Tier, c Confinement) {
		c.Limits.Memory = 96 << 20
		r, err := box.Run(t.Context(), attacker(t, "eat", "400"), c)
		wantReason(t, err, "resource_limit", "memory")
		if strings.Contains(r.Stdout.Text(), "ate 400") {
			t.Error("400 MiB fitted into 96")
		}
		self := reachable(t)
		split := hostile(`for i in 1 2 3 4 5 6 7 8; do "$0" attack eat 48 & done; wait`)
		split.Args = append(split.Args, self)
		c.ReadOnly = []string{filepath.Dir(self)}
		r, err = box.Run(t.Context(), split, c)
		wantReason(t, err, "resource_limit", "memory")
		if strings.Count(r.Stdout.Text(), "ate 48") == 8 {
			t.Error(`8 times 48 MiB fitted into 96; want strings.Count(r.Stdout.Text(), "ate 48") other than 8`)
		}
	})
}

// reachable is a copy of this binary that another user can walk to. Another
// process writes it: a file that is open for writing here could be inherited by
// what other tests start, and would then be too busy to run.
func reachable(t *testing.T) string {
	t.Helper()
	path := filepath.Join(workDir(t), "attacker")
	if out, err := exec.Command("cp", fmt.Sprintf("/proc/%d/exe", os.Getpid()), path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCPUTimeIsBounded(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, box *Box, _ Tier, c Confinement) {
		c.Limits.CPU = time.Second
		began := time.Now()
		_, err := box.Run(t.Context(), hostile("while :; do :; done"), c)
		wantReason(t, err, "resource_limit", "cpu")
		if spent := time.Since(began); spent > 2*time.Minute {
			t.Errorf("it took %s; want spent at most two minutes", spent)
		}
		// Split over two processes, each below the limit.
		_, err = box.Run(t.Context(), hostile("(while :; do :; done) & while :; do :; done"), c)
		wantReason(t, err, "resource_limit", "cpu")
	})
}

func TestEndlessOutputStopsTheProgram(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, box *Box, _ Tier, c Confinement) {
		for name, line := range map[string]string{"stdout": "yes", "stderr": "yes >&2", "no newline": "head -c 100000000 /dev/zero; sleep 30"} {
			spec := hostile(line)
			spec.StdoutLimit, spec.StderrLimit = 64<<10, 64<<10
			r, err := box.Run(t.Context(), spec, c)
			wantReason(t, err, "output_limit", "")
			if kept := len(r.Stdout.Bytes()) + len(r.Stderr.Bytes()); kept > 140<<10 {
				t.Errorf("%s: %d bytes were kept; want kept at most 140 << 10", name, kept)
			}
		}
	})
}

func TestDiskIsBounded(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, box *Box, tier Tier, c Confinement) {
		c.Limits.Disk, c.Limits.FileSize, c.Limits.Temp = 8<<20, 4<<20, 4<<20
		_, err := box.Run(t.Context(), hostile("exec head -c 6000000 /dev/zero > big"), c)
		wantReason(t, err, "resource_limit", "file_size")
		_, err = box.Run(t.Context(), hostile("exec truncate -s 1T sparse"), c)
		if e := capability.CodeOf(err); e != capability.CodeFailed && err != nil {
			t.Errorf("sparse: %v; want not (e != capability.CodeFailed && err != nil)", err)
		}
		if info, serr := os.Stat(filepath.Join(c.Work, "sparse")); serr == nil && info.Size() > 4<<20 {
			t.Errorf("a file of %d bytes was made; want not (serr == nil && info.Size() > 4<<20)", info.Size())
		}
		began := time.Now()
		_, err = box.Run(t.Context(), hostile("for i in 1 2 3 4 5 6; do head -c 3000000 /dev/zero > f$i; done; sleep 600"), c)
		wantReason(t, err, "resource_limit", "disk")
		if spent := time.Since(began); spent > 2*time.Minute {
			t.Errorf("it took %s; want spent at most two minutes", spent)
		}
		if tier == T3 {
			r, err := box.Run(t.Context(), hostile(`for i in 1 2 3; do head -c 3000000 /dev/zero > "$TMPDIR/f$i" || exit 9; done`), c)
			if err == nil && r.ExitCode != 9 {
				t.Errorf("9 MB fitted into a temporary directory of 4: %d; want not (err == nil && r.ExitCode != 9)", r.ExitCode)
			}
		}
	})
}

// Files that have no name any more, and files in a folder that only lets names be used, take up the disk too.
func TestDiskCountsWhatIsHidden(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, box *Box, _ Tier, c Confinement) {
		c.Limits.Disk, c.Limits.FileSize, c.Limits.Temp = 8<<20, 4<<20, 4<<20
		self := reachable(t)
		lines := map[string]string{
			"removed while open":                `for i in 1 2 3 4; do (exec 3>x$i; rm x$i; head -c 4000000 /dev/zero >&3; sleep 60) & done; wait`,
			"in a folder that cannot be listed": `mkdir d; chmod 0300 d; for i in 1 2 3 4; do head -c 4000000 /dev/zero > d/x$i; done; sleep 60`,
			"removed while mapped":              `exec "$0" attack map 4`,
		}
		if os.Geteuid() != 0 { // root sees what such a program has open
			lines["open in a program that cannot be read"] = `(umask 0644; cp /bin/sleep s); exec ./s 60`
		}
		for name, line := range lines {
			spec := hostile(line)
			spec.Args = append(spec.Args, self)
			inside := c
			inside.Work, inside.ReadOnly = workDir(t), []string{filepath.Dir(self)}
			r, err := box.Run(t.Context(), spec, inside)
			if e, ok := errors.AsType[*capability.Error](err); !ok || e.Reason != "resource_limit" {
				t.Errorf("%s: the run = %v, output %q%q; want resource_limit", name, err, r.Stdout.Text(), r.Stderr.Text())
			}
			_ = exec.Command("chmod", "-R", "u+rwX", inside.Work).Run() // so that the test can remove it
		}
	})
}

// Bytes that wait in sockets are pages of no process. A control group counts them; without one, a socket
// counts with the size of its queue.
func TestMemoryInQueuesOfSocketsIsBounded(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, box *Box, _ Tier, c Confinement) {
		c.Limits.Memory = 96 << 20
		self := reachable(t)
		c.ReadOnly = []string{filepath.Dir(self)}
		spec := hostile(`for i in 1 2 3 4 5 6 7 8; do "$0" attack queue & done; wait`)
		spec.Args = append(spec.Args, self)
		r, err := box.Run(t.Context(), spec, c)
		wantReason(t, err, "resource_limit", "memory")
		if err == nil {
			t.Logf("output: %.500s%.500s", r.Stdout.Text(), r.Stderr.Text())
		}
	})
}

// A program that ignores TERM is killed, and its output is kept.
func TestATimeoutIsKept(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, box *Box, _ Tier, c Confinement) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stopped := make(chan time.Time, 1)
		go func() { // ends when the file is there, or with the test's run
			for readFile(filepath.Join(c.Work, "begun")) == "" && ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond) // a poll of another process's file
			}
			stopped <- time.Now()
			cancel()
		}()
		r, err := box.Run(ctx, hostile(`trap "" TERM; echo begun; echo x > begun; while :; do sleep 1; done`), c)
		if !errors.Is(err, context.Canceled) || r.Stdout.Text() != "begun\n" {
			t.Errorf(`got %v, %q; want err is context.Canceled, r.Stdout.Text() = "begun\n"`, err, r.Stdout.Text())
		}
		cancel()
		if spent := time.Since(<-stopped); spent > time.Minute {
			t.Errorf("it took %s after it was told to stop; want spent at most a minute", spent)
		}
	})
}

// Daemons are started by a main program that hangs, and by one that exits at once.
func TestNoDaemonSurvives(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, box *Box, _ Tier, c Confinement) {
		mark := "junctor-daemon-" + filepath.Base(filepath.Dir(c.Work)) + t.Name()
		daemons := `for i in 1 2 3 4 5 6 7 8; do (setsid sh -c 'trap "" TERM; : $0; while :; do sleep 1; done' "` + mark +
			`" </dev/null >/dev/null 2>&1 &) ; done; setsid sh -c ': $0; sleep 600; :' "` + mark + `" & `
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := box.Run(ctx, hostile(daemons+"sleep 60"), c); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v; want err is context.DeadlineExceeded", err)
		}
		noneLeft(t, mark)
		began := time.Now()
		r, err := box.Run(t.Context(), hostile(daemons+"exit 0"), c)
		if err != nil || r.ExitCode != 0 {
			t.Errorf("got %d, %v; want no error, r.ExitCode = 0", r.ExitCode, err)
		}
		if spent := time.Since(began); spent > time.Minute {
			t.Errorf("it took %s although the program ended at once; want spent at most a minute", spent)
		}
		noneLeft(t, mark)
	})
}

// noneLeft looks for the mark in every command line: Run has returned, so there
// is nothing to wait for.
func noneLeft(t *testing.T, mark string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range lines {
		if data, err := os.ReadFile(name); err == nil && bytes.Contains(data, []byte(mark)) {
			t.Errorf("%s survived: %q; want not (err == nil && bytes.Contains(data, []byte(mark)))", name, data)
		}
	}
}

func readFile(path string) string {
	data, _ := os.ReadFile(path)
	return string(data)
}

// fetch asks for each URL, through the proxy of the environment or directly.
func fetch(urls []string) {
	for _, u := range urls {
		transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
		if direct, ok := strings.CutPrefix(u, "direct "); ok {
			transport.Proxy, u = nil, direct
		}
		client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
		resp, err := client.Get(u)
		if err != nil {
			fmt.Println("error", err)
			continue
		}
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		resp.Body.Close()
		fmt.Println(resp.StatusCode, strings.TrimSpace(string(body)))
	}
}
