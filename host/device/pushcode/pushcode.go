// Package pushcode runs the code of skills and of action files for a device. Each call
// runs in a process of its own that can only compute. Before a skill is installed, its
// modules are loaded in such a process to check that they can be read and have the
// required exports. The package is separate from package device because it links the
// engines, and because a program that uses it is started again as such a process. Its main
// must begin with
//
//	if status, child := pushcode.Main(); child {
//		os.Exit(status)
//	}
package pushcode

import (
	"os"

	"github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/worker"
)

// Config selects the languages and limits the processes.
type Config struct {
	// Languages are javascript, wasm and python; nil: the first two. python needs an
	// interpreter of the system.
	Languages []string
	// Memory is each process's, in bytes; 0: 64 MiB.
	Memory int64
	// Scratch is the directory of temporary files. If empty, it is the system's.
	Scratch string
	// Private lists paths that are hidden from all code. CacheFile stores the result of the
	// sandbox's self-test until the next boot. Both may be empty.
	Private   []string
	CacheFile string
}

// Runner is a device.Code. Close it when the device is closed.
type Runner struct {
	*codeRuntime
	box *sandbox.Box
}

var _ device.Code = (*Runner)(nil)

// New returns a Runner. It panics in a process that was started to run code, because then
// the program's main does not begin with Main and would start itself endlessly.
func New(cfg Config) *Runner {
	if sandbox.IsHelper(os.Args) || worker.IsWorker(os.Args) {
		panic("pushcode: the program's main must begin with pushcode.Main")
	}
	box := sandbox.New(sandbox.Config{Scratch: cfg.Scratch, Private: cfg.Private, CacheFile: cfg.CacheFile})
	return &Runner{box: box, codeRuntime: &codeRuntime{
		memory: cfg.Memory,
		worker: worker.New(worker.Config{Walls: box, Languages: cfg.Languages, Python: worker.SystemPython()}),
	}}
}

// Isolation describes the sandbox of the code, for people. It is empty if code cannot be confined;
// then no code is run.
func (r *Runner) Isolation() string {
	p, err := r.box.Place(sandbox.Confinement{MinTier: sandbox.T2, Bare: true})
	if err != nil {
		return ""
	}
	return p.Tier.String()
}

// Close stops the idle processes.
func (r *Runner) Close() { r.box.Close() }

// Main runs code and returns the exit status if this process was started for that. child
// reports whether it was.
func Main() (status int, child bool) {
	switch {
	case sandbox.IsHelper(os.Args):
		return sandbox.HelperMain(os.Args), true
	case worker.IsWorker(os.Args):
		return worker.Main(), true
	}
	return 0, false
}
