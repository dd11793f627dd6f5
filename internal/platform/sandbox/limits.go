package sandbox

import "time"

// Limits bound a whole run: the program and everything it starts. Zero means the
// default, a negative number means unlimited.
type Limits struct {
	Memory int64 // bytes; default 512 MiB
	// AddressSpace is the limit in bytes for each process if memory is not counted by a control
	// group. 0 means four times Memory and at least 4 GiB. Programs that reserve much more than
	// they use set a negative number; Memory is enforced all the same.
	AddressSpace int64
	Processes    int           // processes and threads; default 256
	CPU          time.Duration // CPU time; default 60 s
	Cores        float64       // CPU share; default 1; only with a control group
	FileSize     int64         // bytes of one file; default 64 MiB
	OpenFiles    int           // per process; default 256
	Disk         int64         // bytes in the work directory; default 256 MiB
	Temp         int64         // bytes in the private temporary directory; default 64 MiB
}

// DefaultLimits returns the limits of a run that does not set any.
func DefaultLimits() Limits { return Limits{}.withDefaults() }

func (l Limits) withDefaults() Limits {
	l.Memory = bounded(l.Memory, 512<<20)
	l.Processes = bounded(l.Processes, 256)
	l.CPU = bounded(l.CPU, 60*time.Second)
	l.FileSize = bounded(l.FileSize, 64<<20)
	l.OpenFiles = bounded(l.OpenFiles, 256)
	l.Disk = bounded(l.Disk, 256<<20)
	l.Temp = bounded(l.Temp, 64<<20)
	l.Cores = bounded(l.Cores, 1)
	return l
}

func bounded[N int | int64 | float64 | time.Duration](n, otherwise N) N {
	switch {
	case n == 0:
		return otherwise
	case n < 0:
		return 0
	}
	return n
}

// Limits of sandbox.go.
const (
	// defaultGrace is how long a group may take to end after TERM.
	defaultGrace = 2 * time.Second
	// victimGrace is how long a victim of the self-test has to remove its objects.
	victimGrace = 10 * time.Second
	// drainTimeout bounds the wait for output after the program's group has ended: a process
	// that left the group may still hold the pipe.
	drainTimeout = 500 * time.Millisecond
)

// Default caps of captured output.
const (
	DefaultStdoutLimit = 1 << 20
	DefaultStderrLimit = 256 << 10
)

// Bounds of Spec.Stdin, in bytes, and of Spec.Files.
const (
	MaxStdin = 1 << 20
	MaxFiles = 8
)

// DefaultUID is the user and group of confined programs if the server is root and the
// Confinement does not set UID.
const DefaultUID = 63120
