// Package pushcode runs the code of skills and of action files for a device, each
// call in a process of its own that can only compute. Before a skill is installed, its
// modules are loaded there to check that they can be read and have the required
// exports. The package is apart from package device because it brings the engines with
// it, and because a program that uses it is started again as such a process: its main
// must begin with
//
//	if status, child := pushcode.Main(); child {
//		os.Exit(status)
//	}
package pushcode

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/worker"
)

// Config states what is run.
type Config struct {
	// Languages are javascript, wasm and python; nil: the first two. python needs an
	// interpreter of the system.
	Languages []string
	// Memory is each process's, in bytes; 0: 64 MiB.
	Memory int64
	// Scratch is where temporary files are made; "": the system's place.
	Scratch string
	// Private paths are shown to no code, and CacheFile keeps what this kernel was
	// found to enforce until the next boot; both may be empty.
	Private   []string
	CacheFile string
}

// Runner is a device.Code. Close it when the device is closed.
type Runner struct {
	*codeRuntime
	box *sandbox.Box
}

var _ device.Code = (*Runner)(nil)

// New returns a Runner. In a process that was started to run code it panics: the
// program's main does not begin with Main, and would start itself without end.
func New(cfg Config) *Runner {
	if sandbox.IsHelper(os.Args) || worker.IsWorker(os.Args) {
		panic("pushcode: the program's main must begin with pushcode.Main")
	}
	box := sandbox.New(sandbox.Config{Scratch: cfg.Scratch, Private: cfg.Private, CacheFile: cfg.CacheFile})
	return &Runner{box: box, codeRuntime: &codeRuntime{
		memory: cfg.Memory,
		worker: worker.New(worker.Config{Walls: box, Languages: cfg.Languages, Python: systemPython()}),
	}}
}

// Isolation is what holds the code here, for people; "" where nothing does, and then
// nothing is run.
func (r *Runner) Isolation() string {
	p, err := r.box.Place(sandbox.Confinement{MinTier: sandbox.T2, Bare: true})
	if err != nil {
		return ""
	}
	return p.Tier.String()
}

// Close ends what waits to be used.
func (r *Runner) Close() { r.box.Close() }

// Main is the life of this process if it was started to run code; child reports whether
// it was.
func Main() (status int, child bool) {
	switch {
	case sandbox.IsHelper(os.Args):
		return sandbox.HelperMain(os.Args), true
	case worker.IsWorker(os.Args):
		return worker.Main(), true
	}
	return 0, false
}

// systemPython is an interpreter that the sandbox shows, or "".
func systemPython() string {
	for _, dir := range []string{"/usr/bin", "/usr/local/bin"} {
		path, err := filepath.EvalSymlinks(filepath.Join(dir, "python3"))
		if err != nil || !strings.HasPrefix(path, "/usr/") {
			continue
		}
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}
