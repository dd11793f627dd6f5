package sandbox

import (
	"os"
	"time"
)

// Streams are the caller's ends that become the program's descriptors 0, 1 and 2. The caller
// closes them once Start has returned.
type Streams struct{ In, Out, Err *os.File }

// ServiceLimits returns the limits of a program that runs as long as the server: no limit of
// CPU time, which would end every server, and none of address space, of which runtimes with
// WebAssembly reserve much more than they use.
func ServiceLimits() Limits {
	return Limits{
		Memory: 1 << 30, AddressSpace: -1, Processes: 512, CPU: -1, Cores: 2, FileSize: 1 << 30, OpenFiles: 1024, Disk: 2 << 30,
		Temp: 256 << 20,
	}
}

// Process is a confined program that runs until it ends, is stopped, or the server ends. It is
// safe for concurrent use.
type Process struct {
	placement Placement
	done      chan struct{} // closed when the program and everything it started have ended
	process   program
}

// program is a started program of one system.
type program interface {
	terminate()
	kill()
	limitText() string
}

// Placement returns where the program runs.
func (p *Process) Placement() Placement { return p.placement }

// Wait returns when the program and everything it started have ended.
func (p *Process) Wait() { <-p.done }

// Done returns a channel that is closed when Wait returns.
func (p *Process) Done() <-chan struct{} { return p.done }

// Terminate asks the program and everything it started to end.
func (p *Process) Terminate() { p.process.terminate() }

// Kill ends the program and everything it started.
func (p *Process) Kill() { p.process.kill() }

// Stop terminates the program, kills what is left of it after grace, and waits for its end.
func (p *Process) Stop(grace time.Duration) {
	p.Terminate()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return
	case <-timer.C:
	}
	p.Kill()
	p.Wait()
}

// Limit returns a description of the limit that the program or a part of it went over, such
// as "memory limit of 1024 MiB", or "". It may change while the program runs.
func (p *Process) Limit() string { return p.process.limitText() }
