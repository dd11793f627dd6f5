//go:build !unix

package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"runtime"

	"github.com/junctor-run/junctor/capability"
)

// NonBlocking has no effect on this system.
const NonBlocking = 0

// Supported returns nil on systems where a server or a node can run, else an error. Callers check it
// before they create anything.
func Supported() error {
	return capability.Errorf(capability.CodeFailed, "home", "junctor runs no server and no node on %s: only the commands that ask a server elsewhere", runtime.GOOS).
		With("system_unsupported", "run it on Linux or macOS (WSL is Linux), and reach it from here with --server URL and --token TOKEN")
}

// TryLock always fails on this system.
func TryLock(*os.File) error { return Supported() }

// Writable returns nil, because the rights are unknown on this system.
func Writable(string) error { return nil }

// Mine returns true, because the owner is unknown on this system.
func Mine(fs.FileInfo) bool { return true }

// Free is not supported on this system.
func Free(string) (int64, error) { return 0, errors.ErrUnsupported }
