//go:build soak

package sandbox

import "testing"

// TestSoakForkStorms is the test of fork storms at length.
func TestSoakForkStorms(t *testing.T) { forkStorms(t, 200) }
