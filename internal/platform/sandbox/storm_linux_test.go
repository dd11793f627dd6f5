package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox/canary"
	"github.com/junctor-run/junctor/internal/platform/sandbox/jail"
)

// comets returns a program that starts 64 processes in sessions of their own. Each repeats: it
// forks and ends. Every list of them is out of date once it is read.
func comets() []byte {
	return canary.Program([]byte{
		0xbb, 6, 0, 0, 0, // mov ebx, 6
		0xb8, 57, 0, 0, 0, 0x0f, 0x05, // fork
		0xff, 0xcb, 0x75, 0xf5, // dec ebx; jnz fork
		0xb8, 112, 0, 0, 0, 0x0f, 0x05, // setsid
		0xb8, 57, 0, 0, 0, 0x0f, 0x05, // fork
		0x85, 0xc0, 0x74, 0xee, // the child repeats from setsid
		0x78, 0xf3, // without a child, repeat from fork
		0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05, // exit(0)
	})
}

// Two storms at once are ended by a timeout, by the caller and by their own end, after a short and
// after a long time. No process of a storm lives when Run has returned.
func TestForkStormsDoNotOutliveTheirRun(t *testing.T) { forkStorms(t, 8) }

// forkStorms is not parallel, because the kernel counts the processes of other tests with its own.
func forkStorms(t *testing.T, count int) {
	if runtime.GOARCH != "amd64" {
		t.Skip("SKIPPED: the storm is written for amd64")
	}
	for _, c := range []struct {
		name string
		off  map[string]string
	}{
		{"control group", nil},
		{"no control group", map[string]string{LayerCgroup: "by this test"}},
	} {
		box := New(Config{Off: c.off})
		f := box.Facts()
		if f.NoT2 != "" {
			t.Skipf("SKIPPED: %s", f.NoT2)
		}
		if f.Landlock < jail.MinEnclosingABI {
			t.Skipf("SKIPPED: Landlock %d does not restrict signals, so processes are killed one by one", f.Landlock)
		}
		t.Run(c.name, func(t *testing.T) {
			for i := 0; i < count; i += 2 {
				var both sync.WaitGroup
				for j := range 2 {
					both.Go(func() { oneStorm(t, box, i+j) })
				}
				both.Wait()
			}
		})
	}
}

func oneStorm(t *testing.T, box *Box, i int) {
	work := workDir(t)
	if err := os.WriteFile(filepath.Join(work, "storm"), comets(), 0o755); err != nil {
		t.Errorf("writing the storm: got %v, want no error", err)
		return
	}
	// The shell opens the writing end, and every process of the storm inherits it, so the reading end shows
	// whether one lives. What comes before the shell inherits the writing end of a pipe from us; but so does, until
	// it executes its program, a process that the other storm starts at that moment.
	fifo := filepath.Join(work, "fifo")
	err := unix.Mkfifo(fifo, 0o600)
	if err == nil {
		err = os.Chmod(fifo, 0o666) // the run may have a user of its own
	}
	if err != nil {
		t.Errorf("making the file that it opens: got %v, want no error", err)
		return
	}
	storm, err := unix.Open(fifo, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Errorf("opening that file: got %v, want no error", err)
		return
	}
	defer unix.Close(storm)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Errorf("making a pipe: got %v, want no error", err)
		return
	}
	defer unix.Close(pipe[0])
	alive := os.NewFile(uintptr(pipe[1]), "alive")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	line := "exec 9>fifo; ./storm; while :; do :; done"
	switch i % 4 {
	case 0:
		ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
	case 1:
		ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
	case 2:
		time.AfterFunc(250*time.Millisecond, cancel)
	default: // the program ends by itself, in the middle of its storm
		line = "exec 9>fifo; ./storm; i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; exit 0"
	}
	spec := hostile(line)
	spec.Grace, spec.Files = time.Millisecond, []*os.File{alive}
	c := Confinement{Work: work, MinTier: T2, MaxTier: T2, Limits: Limits{Processes: 400}}
	r, err := box.Run(ctx, spec, c)
	_ = alive.Close()
	if text := r.Stderr.Text(); strings.Contains(text, "fifo") { // it may print that it cannot fork any more
		t.Errorf("storm %d: the shell printed %q, want that it opens the file", i, text)
	}
	if e, ok := errors.AsType[*capability.Error](err); ok && e.Reason == "processes_remain" {
		t.Errorf(`storm %d: %v; want not (ok && e.Reason == "processes_remain")`, i, err)
	}
	if n, err := unix.Read(storm, make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("storm %d: a process of the run lives after its end: read = %d, %v, want the end of the file", i, n, err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // another process: there is nothing to wait on
		n, err := unix.Read(pipe[0], make([]byte, 1))
		if n == 0 && err == nil {
			break
		}
		if time.Now().After(end) {
			t.Errorf("storm %d: a process of its start lives a minute after its end: read = %d, %v, want the end of the file", i, n, err)
			break
		}
	}
}
