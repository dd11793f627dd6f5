package sandbox

import (
	"testing"

	"github.com/junctor-run/junctor/internal/platform/sandbox/canary"
)

// TestNothingBreaksOut runs every act of the canary at every tier of this machine.
func TestNothingBreaksOut(t *testing.T) {
	t.Parallel()
	box := New(Config{Spares: 1}) // as a server has it
	defer box.Close()
	report, err := box.SelfTest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tier := range report.Tiers {
		if tier.Skipped != "" {
			t.Logf("SKIPPED: tier %s: %s", tier.Tier, tier.Skipped)
			continue
		}
		held := 0
		for _, r := range tier.Results {
			switch r.Outcome {
			case canary.Held:
				held++
			case canary.Broken:
				t.Errorf("%s: %s got past %s: %s", tier.Tier, r.Act, r.Layer, r.Detail)
			default:
				t.Logf("SKIPPED: %s: %s: %s", tier.Tier, r.Act, r.Detail)
			}
		}
		for _, r := range tier.Residual {
			t.Logf("RESIDUAL: %s: %s", tier.Tier, r.Act)
		}
		if held < 130 {
			t.Errorf("%s: %d acts were tried, want at least 130", tier.Tier, held)
		}
		t.Logf("%s: %d acts held", tier.Tier, held)
	}
}
