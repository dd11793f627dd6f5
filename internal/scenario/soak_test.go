//go:build soak

package scenario_test

import (
	"os"
	"testing"
	"time"
)

// TestSoakChaos is the chaos test at length: ten minutes, or what JUNCTORTEST_SOAK says.
func TestSoakChaos(t *testing.T) {
	long := 10 * time.Minute
	if text := os.Getenv("JUNCTORTEST_SOAK"); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	rage(t, uint64(time.Now().UnixNano()), 8, long)
}
