// Package built has the program of these sources, for tests that start it as users do.
package built

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// lockTimeout is how long another test process may take to build the program.
const lockTimeout = 10 * time.Minute

// Junctor returns the path of a copy of the program, which the test may keep, change and remove.
func Junctor(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "junctor")
	if err := Copy(path); err != nil {
		t.Fatalf("building junctor: %v", err)
	}
	return path
}

// Copy writes the program to path, whose folder is created.
func Copy(path string) (err error) {
	program, err := build()
	if err != nil {
		return err
	}
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // other users run it in some tests
		return err
	}
	// A process that is started meanwhile would inherit the descriptor, and the system runs no file that is open for writing.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755) //nolint:gosec // as above
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// build makes bin/test/junctor of the repository, once in a process. Linking takes seconds, which all
// test processes save whose sources are the same: the go command leaves a file alone that is up to date.
var build = sync.OnceValues(func() (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("go list -m: %w", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(root)), "bin", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // a folder of build results
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	deadline, again := time.After(lockTimeout), time.NewTicker(50*time.Millisecond)
	defer again.Stop()
	for hostfs.TryLock(lock) != nil {
		select {
		case <-again.C:
		case <-deadline:
			return "", errors.New("another test process has been building the program for too long")
		}
	}
	program := filepath.Join(dir, "junctor")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", program, "./cmd/junctor")
	cmd.Dir, cmd.Env = filepath.Dir(filepath.Dir(dir)), append(os.Environ(), "CGO_ENABLED=0") // as it is released
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return program, nil
})
