//go:build !linux

package node

// gauges reports zeros on systems without /proc.
type gauges struct{}

func machine() *gauges { return new(gauges) }

func (*gauges) figures() (cpu, mem, gpu float64) { return 0, 0, 0 }
