package sandbox

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/capability"
)

// startShell starts a script of sh as a service at a tier, and returns its input and output.
func startShell(t *testing.T, tier Tier, c Confinement, script string) (p *Process, in io.WriteCloser, out *bufio.Reader) {
	t.Helper()
	b := New(Config{})
	if f := b.Facts(); tier == T3 && f.NoT3 != "" || tier == T2 && f.NoT2 != "" {
		t.Skipf("tier %s is not available: %s%s", tier, f.NoT3, f.NoT2)
	}
	var pipes [3][2]*os.File
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		pipes[i] = [2]*os.File{r, w}
		t.Cleanup(func() { r.Close(); w.Close() })
	}
	c.MinTier, c.MaxTier, c.OwnPath, c.Home, c.Limits = tier, tier, true, true, ServiceLimits()
	p, err := b.Start(Spec{Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}, c,
		Streams{pipes[0][0], pipes[1][1], pipes[2][1]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(); p.Wait() })
	pipes[0][0].Close()
	pipes[1][1].Close()
	pipes[2][1].Close()
	return p, pipes[0][1], bufio.NewReader(pipes[1][0])
}

func ask(t *testing.T, in io.Writer, out *bufio.Reader, line string) string {
	t.Helper()
	if _, err := io.WriteString(in, line+"\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("reading the answer to %q: %v", line, err)
	}
	return strings.TrimSpace(answer)
}

// ownDir returns a directory that the user of confined programs may use.
func ownDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for parent := dir; parent != os.TempDir() && len(parent) > 1; parent = filepath.Dir(parent) {
		_ = os.Chmod(parent, 0o755)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, DefaultUID, DefaultUID); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// evaluate is a shell that evaluates each line of its input, with one line as the answer.
const evaluate = `while read -r line; do eval "$line" 2>&1 | head -n 1; done`

func TestServiceReachesOnlyItsFolders(t *testing.T) {
	for _, tier := range []Tier{T3, T2} {
		t.Run(tier.String(), func(t *testing.T) {
			work, shared, fixed, other := ownDir(t), ownDir(t), ownDir(t), ownDir(t)
			for _, dir := range []string{fixed, other} {
				if err := os.WriteFile(filepath.Join(dir, "text"), []byte("content\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			c := Confinement{Work: work, ReadWrite: []string{shared}, ReadOnly: []string{fixed}, Network: NetworkRaw}
			p, in, out := startShell(t, tier, c, evaluate)
			for _, act := range []struct{ do, want string }{
				{"pwd", work},
				{"echo $HOME", work},
				{"echo a > here && cat " + work + "/here", "a"},
				{"echo b > " + shared + "/there && cat " + shared + "/there", "b"},
				{"cat " + fixed + "/text", "content"},
				{"{ echo c > " + fixed + "/new; } 2> /dev/null || echo refused", "refused"},
				{"cat " + other + "/text 2> /dev/null || echo refused", "refused"},
				{"{ echo d > " + other + "/new; } 2> /dev/null || echo refused", "refused"},
			} {
				if got := ask(t, in, out, act.do); got != act.want {
					t.Errorf("%s = %q, want %q", act.do, got, act.want)
				}
			}
			in.Close()
			select {
			case <-p.Done():
			case <-time.After(time.Minute):
				t.Error("the program has not ended a minute after its input")
			}
			if got, err := os.ReadFile(filepath.Join(shared, "there")); err != nil || string(got) != "b\n" {
				t.Errorf("the written file = %q, %v, want b", got, err)
			}
		})
	}
}

func TestStoppedServiceLeavesNoProcess(t *testing.T) {
	for _, tier := range []Tier{T3, T2} {
		t.Run(tier.String(), func(t *testing.T) {
			work := ownDir(t)
			// Every process of it holds the lock file, which is free once all have ended.
			lock := filepath.Join(work, "lock")
			p, in, out := startShell(t, tier, Confinement{Work: work}, `exec 9> lock; flock -s 9
				trap '' TERM; (setsid sleep 1000 &) ; (trap '' TERM; sleep 1000 &); `+evaluate)
			if got := ask(t, in, out, "echo up"); got != "up" {
				t.Fatalf("the answer = %q, want up", got)
			}
			p.Stop(10 * time.Millisecond)
			f, err := os.Open(lock)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
				t.Errorf("the lock of the program after Stop: %v, want it free", err)
			}
		})
	}
}

func TestServiceNamesTheLimitItHit(t *testing.T) {
	p, in, out := startShell(t, T3, Confinement{Work: ownDir(t)}, evaluate)
	if got := p.Limit(); got != "" {
		t.Errorf("Limit() = %q, want none yet", got)
	}
	ask(t, in, out, "echo up")
	_, _ = io.WriteString(in, "awk 'BEGIN{s=\"x\"; while(1) s = s s}'\n")
	deadline := time.After(60 * time.Second)
	for p.Limit() == "" {
		select {
		case <-deadline:
			t.Fatal("the memory limit was not reported within 60 s")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if got := p.Limit(); got != "memory limit of 1024 MiB" {
		t.Errorf("Limit() = %q, want the memory limit", got)
	}
}

func TestServiceIsNotGivenFoldersOfOthers(t *testing.T) {
	home := ownDir(t)
	if err := os.MkdirAll(filepath.Join(home, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := New(Config{Private: []string{home}})
	if b.Facts().Tier < T2 {
		t.Skip("this machine has no sandbox")
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, dir := range []string{
		home, filepath.Join(home, "run"), filepath.Dir(home), "/etc", "/usr/share", "/tmp", "/", "relative", "/proc/self",
	} {
		c := Confinement{Work: ownDir(t), ReadWrite: []string{dir}, MinTier: T2, OwnPath: true}
		p, err := b.Start(Spec{Path: "/bin/true"}, c, Streams{null, null, null})
		if err == nil {
			p.Wait()
			t.Errorf("Start with %s to write = nil, want a refusal", dir)
			continue
		}
		if e, ok := errors.AsType[*capability.Error](err); !ok || e.Reason != "security_violation" {
			t.Errorf("Start with %s to write = %v, want a security violation", dir, err)
		}
	}
}
