//go:build soak

package attack

import (
	"os"
	"testing"
)

// TestSoakRandomKills kills two hundred times, at every place that this machine
// has, in equal parts.
func TestSoakRandomKills(t *testing.T) {
	var list []place
	for _, p := range places() {
		if p.user == "root" && os.Geteuid() != 0 {
			continue
		}
		if status, err := p.status(t); err == nil && status.Tier == p.tier {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		t.Skip("SKIPPED: this machine reaches neither T3 nor T2")
	}
	for _, p := range list {
		t.Run(p.tier+"/"+p.user, func(t *testing.T) { killAtRandom(t, p, (200+len(list)-1)/len(list)) })
	}
}
