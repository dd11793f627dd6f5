package node

import "math"

// accepts reports whether the node takes calls now: it is not draining, its queue is not full, and its
// processor and memory, in percent, were not above their limits for several heartbeats in a row.
func (s *session) accepts(cpu, memory float64, queued int) bool {
	if cpu > maxCPU || memory > maxMemory {
		s.strained++
	} else {
		s.strained = 0
	}
	return !s.drains && s.strained < strainedBeats && queued < s.cfg.Queue
}

func percent(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return min(max(v, 0), 100)
}
