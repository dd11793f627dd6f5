package node

import "math"

// The limits in percent above which a node stops accepting calls, and the number of
// consecutive heartbeats for which they must be exceeded.
const (
	maxCPU        = 90
	maxMemory     = 85
	strainedBeats = 3
)

func percent(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return min(max(v, 0), 100)
}
