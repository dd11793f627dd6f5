package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Spare helpers do what fresh ones do, are replaced, may be killed by any caller,
// and end with the Box.
func TestSpareHelpers(t *testing.T) {
	t.Parallel()
	for _, tier := range []Tier{T3, T2} {
		t.Run(tier.String(), func(t *testing.T) {
			t.Parallel()
			box := New(Config{Spares: 2})
			if f := box.Facts(); tier == T3 && f.NoT3 != "" || tier == T2 && f.NoT2 != "" {
				t.Skipf("SKIPPED: %s %s", f.NoT3, f.NoT2)
			}
			c := Confinement{Work: workDir(t), MinTier: tier, MaxTier: tier}
			var pids []int
			for i := range 6 {
				r, err := box.Run(t.Context(), hostile(fmt.Sprintf("echo %d; cat; exit %d", i, i)), c)
				if err != nil || r.ExitCode != i || r.Stdout.Text() != fmt.Sprintf("%d\n", i) {
					t.Fatalf(`run %d: %d, %q, %v; want no error, r.ExitCode = %v, r.Stdout.Text() = fmt.Sprintf("%%d\n", i)`,
						i, r.ExitCode, r.Stdout.Text(), err, i)
				}
				box.spares.starting.Wait()
				box.spares.mu.Lock()
				for _, list := range box.spares.waiting {
					for _, h := range list {
						pids = append(pids, h.cmd.Process.Pid)
					}
					if len(list) > 2 {
						t.Errorf("%d spares wait; want len(list) at most 2", len(list))
					}
					if i == 3 && len(list) > 0 {
						_ = list[0].cmd.Process.Kill()
						<-list[0].exited
					}
				}
				box.spares.mu.Unlock()
			}
			if len(pids) == 0 {
				t.Errorf("there never was a spare; got len(pids) = %v; want len(pids) other than 0", len(pids))
			}
			box.Close()
			for _, pid := range pids {
				if data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.Contains(data, []byte(helperName)) {
					t.Errorf("helper %d is still there; want not (err == nil && bytes.Contains(data, []byte(helperName)))", pid)
				}
			}
			r, err := box.Run(t.Context(), hostile("echo after"), c)
			if err != nil || r.Stdout.Text() != "after\n" {
				t.Errorf(`after Close: %q, %v; want no error, r.Stdout.Text() = "after\n"`, r.Stdout.Text(), err)
			}
		})
	}
}

// A server that is killed takes its runs along: the helper's socket ends, and
// with it the run.
func TestNothingOutlivesAKilledServer(t *testing.T) {
	t.Parallel()
	for _, tier := range []Tier{T3, T2} {
		t.Run(tier.String(), func(t *testing.T) {
			t.Parallel()
			if f := New(Config{}).Facts(); tier == T3 && f.NoT3 != "" || tier == T2 && f.NoT2 != "" {
				t.Skipf("SKIPPED: %s %s", f.NoT3, f.NoT2)
			}
			work := workDir(t)
			mark := "junctor-orphan-" + tier.String() + "-" + filepath.Base(filepath.Dir(work))
			cmd := exec.Command("/proc/self/exe", "attack", "server", tier.String(), work, mark)
			cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			deadline := time.Now().Add(60 * time.Second)
			for !marked(t, mark, "sleep") {
				if time.Now().After(deadline) {
					t.Fatal("the run did not begin")
				}
				time.Sleep(10 * time.Millisecond)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			for marked(t, mark, "sleep") {
				if time.Now().After(deadline) {
					t.Fatal("the run outlived its server")
				}
				time.Sleep(10 * time.Millisecond)
			}
			found, err := findCgroup()
			if err != nil {
				return
			}
			// The next server removes its control groups once they are empty.
			for {
				found.removeStale()
				left, _ := filepath.Glob(filepath.Join(found.dirs["pids"], fmt.Sprintf("%s%d-*", groupPrefix, cmd.Process.Pid)))
				if len(left) == 0 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("left behind: %v; want not time.Now().After(deadline)", left)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// marked looks for a process with both words in its command line.
func marked(t *testing.T, mark, also string) bool {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range lines {
		data, err := os.ReadFile(name)
		if err == nil && bytes.Contains(data, []byte(mark)) && bytes.Contains(data, []byte(also)) && !strings.Contains(string(data), "attack") {
			return true
		}
	}
	return false
}
