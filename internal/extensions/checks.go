package extensions

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/telemetry"
)

// Checks returns the results for "junctor doctor": whether the sandbox reaches the tier
// that the operator requires, and each broken extension. Warnings are left out;
// "junctor extensions doctor" lists them.
func (x *Service) Checks(ctx context.Context) []httpapi.Check {
	checks := []httpapi.Check{x.checkSandbox()}
	found, err := management{x.manager, x}.Findings(ctx)
	if err != nil {
		return append(checks, httpapi.Check{
			Name: "extensions", Detail: "they cannot be looked through: " + capability.AsError(err).Message,
			Remedy: "junctor extensions doctor",
		})
	}
	for _, f := range found {
		if f.Broken {
			checks = append(checks, httpapi.Check{Name: "extension " + f.Extension, Detail: f.Message, Remedy: f.Hint})
		}
	}
	if len(checks) == 1 {
		checks = append(checks, httpapi.Check{Name: "extensions", OK: true, Detail: "whole"})
	}
	return checks
}

// checkSandbox fails if this machine's tier is below sandbox.min_tier.
func (x *Service) checkSandbox() httpapi.Check {
	tier := x.Tier()
	c := httpapi.Check{Name: "sandbox", OK: true, Detail: "programs can be held at tier " + tier.String()}
	if x.minTier <= tier {
		return c
	}
	c.OK = false
	c.Detail = "sandbox.min_tier is " + x.minTier.String() + " and this machine has " + tier.String() + ", so no extension runs a program"
	c.Remedy = "junctor debug sandbox status says what is missing; or lower sandbox.min_tier"
	return c
}

func (x *Service) gauges(m *telemetry.Metrics) {
	m.Gauge("runs_waiting", "Runs of extensions that wait for their turn.", func() float64 { return float64(x.queue.Stats().Waiting) })
	m.Gauge("runs_running", "Runs of extensions under way.", func() float64 { return float64(x.queue.Stats().Running) })
	m.Gauge("sandbox_tier", "Strongest tier that programs can be put in here: 1 to 3.", func() float64 { return float64(x.Tier()) })
}
