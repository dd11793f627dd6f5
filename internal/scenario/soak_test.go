//go:build soak

package scenario_test

import (
	"testing"
	"time"
)

// TestSoakChaos is the chaos test at length.
func TestSoakChaos(t *testing.T) { rage(t, uint64(time.Now().UnixNano()), 8, 10*time.Minute) }
