package node

import "math"

// The limits above which a node asks to be avoided, in percent, and for how many
// beats in a row that must be so.
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
