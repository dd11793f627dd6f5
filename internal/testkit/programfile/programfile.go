// Package programfile writes programs that a test starts afterwards.
package programfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Write writes an executable file and creates its parent folders. No process is started while
// the file is open for writing: a child would inherit the descriptor until its own program begins,
// and the system refuses to run a file that is open for writing ("text file busy").
func Write(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	// The process's umask applies to new files, and the mode of an existing file stays.
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
