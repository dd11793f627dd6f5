package node

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
)

// gauges reads the kernel's figures of the whole machine.
type gauges struct {
	mu         sync.Mutex
	busy, idle uint64 // processor time at the last call
}

func machine() *gauges { return new(gauges) }

// figures returns the used share of processor time since the last call, and of memory, in
// percent. gpu is always 0.
func (g *gauges) figures() (cpu, mem, gpu float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if data, err := os.ReadFile("/proc/stat"); err == nil {
		line, _, _ := bytes.Cut(data, []byte("\n"))
		busy, idle := processors(string(line))
		if b, i := busy-g.busy, idle-g.idle; g.busy+g.idle > 0 && busy >= g.busy && idle >= g.idle && b+i > 0 {
			cpu = 100 * float64(b) / float64(b+i)
		}
		g.busy, g.idle = busy, idle
	}
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		mem = memory(string(data))
	}
	return cpu, mem, 0
}

// processors parses the first line of /proc/stat.
func processors(line string) (busy, idle uint64) {
	fields := strings.Fields(line)
	for i, f := range fields[min(1, len(fields)):] {
		n, err := strconv.ParseUint(f, 10, 64)
		switch {
		case err != nil || i > 7: // guests are counted as users already
		case i == 3 || i == 4: // idle, and waiting for a disk
			idle += n
		default:
			busy += n
		}
	}
	return busy, idle
}

// memory returns the used share from /proc/meminfo; memory that is not available to programs
// counts as used.
func memory(text string) float64 {
	var total, available float64
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, err := strconv.ParseFloat(f[1], 64)
		switch {
		case err != nil:
		case f[0] == "MemTotal:":
			total = n
		case f[0] == "MemAvailable:":
			available = n
		}
	}
	if total <= 0 || available > total {
		return 0
	}
	return 100 * (total - available) / total
}
