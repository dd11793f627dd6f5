//go:build !unix

package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"runtime"

	"github.com/junctor-run/junctor/capability"
)

// Supported returns nil where a server or a node can run, else the error to return
// before anything is made.
func Supported() error {
	return capability.Errorf(capability.CodeFailed, "home", "junctor runs no server and no node on %s: only the commands that ask a server elsewhere", runtime.GOOS).
		With("system_unsupported", "run it on Linux or macOS (WSL is Linux), and reach it from here with --server URL and --token TOKEN")
}

// TryLock takes no lock here.
func TryLock(*os.File) error { return Supported() }

// Writable is not known here.
func Writable(string) error { return nil }

// Mine is not known here.
func Mine(fs.FileInfo) bool { return true }

// Free is not known here.
func Free(string) (int64, error) { return 0, errors.ErrUnsupported }
