//go:build unix

package hostfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

func TestALockIsHeldUntilItsFileIsClosed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	first, second := open(), open()
	if err := hostfs.TryLock(first); err != nil {
		t.Fatal(err)
	}
	if err := hostfs.TryLock(second); !errors.Is(err, hostfs.ErrHeld) {
		t.Fatalf("a second lock: %v; want err is hostfs.ErrHeld", err)
	}
	_ = first.Close()
	if err := hostfs.TryLock(second); err != nil {
		t.Fatalf("after the first was closed: %v", err)
	}
	if err := hostfs.TryLock(first); err == nil || errors.Is(err, hostfs.ErrHeld) {
		t.Fatalf("a closed file: %v; want an error, err is not hostfs.ErrHeld", err)
	}
}

func TestFreeIsThatOfAFolderThatExists(t *testing.T) {
	t.Parallel()
	if n, err := hostfs.Free(t.TempDir()); err != nil || n <= 0 {
		t.Errorf("%d, %v; want no error, n more than 0", n, err)
	}
	if _, err := hostfs.Free(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a folder that is not there has free space; want an error")
	}
}
