package sandbox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/junctor-run/junctor/internal/platform/sandbox/canary"
)

// Report is the result of the self-test: the machine's facts, and the results of the
// attempts to break out of every available tier.
type Report struct {
	Facts Facts      `json:"facts"`
	Tiers []TierTest `json:"tiers"`
	At    time.Time  `json:"at"`
	// Boot and Binary identify the boot and the binary for which the report is valid.
	Boot   string `json:"boot"`
	Binary string `json:"binary"`
}

// TierTest is the result of one tier.
type TierTest struct {
	Tier    Tier            `json:"tier"`
	Skipped string          `json:"skipped,omitempty"` // why the tier was not tested; "" if it was
	Results []canary.Result `json:"results,omitempty"`
	// Residual are acts that are expected to succeed at this tier. They are reported, and do
	// not count as failures.
	Residual []canary.Result `json:"residual,omitempty"`
}

// Broken returns the acts of a tier that succeeded but should have failed.
func (t TierTest) Broken() []canary.Result {
	var list []canary.Result
	for _, r := range t.Results {
		if r.Outcome == canary.Broken {
			list = append(list, r)
		}
	}
	return list
}

// Layers returns the state of every layer of the tier: "active", "broken: acts" or
// "unavailable: reason". A layer is active only if no act got past it.
func (r Report) Layers() map[string]string {
	state := map[string]string{}
	for _, layer := range r.Facts.Layers {
		state[layer] = "active"
	}
	for layer, why := range r.Facts.Missing {
		state[layer] = "unavailable: " + why
	}
	for _, t := range r.Tiers {
		if t.Tier != r.Facts.Tier {
			continue
		}
		for _, b := range t.Broken() {
			state[b.Layer] = "broken: " + b.Act
		}
	}
	return state
}

// Held reports whether all layers of all tiers held.
func (r Report) Held() bool {
	for _, t := range r.Tiers {
		if len(t.Broken()) > 0 {
			return false
		}
	}
	return true
}

// residual reports whether an act is expected to succeed at the tier: Landlock and seccomp
// cannot prevent it without namespaces.
func residual(tier Tier, act string) bool {
	return tier == T2 && slices.Contains([]string{canary.ActConnect, canary.ActSeePath, canary.ActUseUp}, act)
}

// readReport returns the cached report, or false if it is missing, invalid, or of another boot
// or binary.
func (b *Box) readReport(boot, binary string) (Report, bool) {
	if b.cfg.CacheFile == "" {
		return Report{}, false
	}
	data, err := os.ReadFile(b.cfg.CacheFile)
	if err != nil {
		return Report{}, false
	}
	var r Report
	if json.Unmarshal(data, &r) != nil || r.Boot != boot || r.Binary != binary || boot == "" {
		return Report{}, false
	}
	return r, true
}

// writeReport replaces the cache. If it cannot be written, the next call repeats the test.
func (b *Box) writeReport(r Report) {
	if b.cfg.CacheFile == "" {
		return
	}
	data, err := json.Marshal(r)
	if err != nil {
		return
	}
	if err := os.MkdirAll(filepath.Dir(b.cfg.CacheFile), 0o700); err != nil {
		return
	}
	next := b.cfg.CacheFile + ".next"
	if os.WriteFile(next, data, 0o600) == nil {
		_ = os.Rename(next, b.cfg.CacheFile)
	}
}
