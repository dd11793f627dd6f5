package extensions

import (
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// management implements [extensionserve.Extensions].
type management struct {
	*lifecycle.Manager
	x *Service
}

// SetConfig also empties the cache of results, because they may depend on the settings.
func (m management) SetConfig(ctx context.Context, by capability.Principal, id string, doc json.RawMessage) (json.RawMessage, error) {
	defer m.x.cache.Clear()
	return m.Manager.SetConfig(ctx, by, id, doc)
}

// Sandbox returns the sandbox's last report; if fresh, it runs the self-test first.
func (m management) Sandbox(ctx context.Context, fresh bool) (sandbox.Report, error) {
	report, err := m.x.box.Report(ctx)
	if fresh {
		report, err = m.x.box.SelfTest(ctx)
	}
	if err != nil {
		return sandbox.Report{}, capability.AsError(err)
	}
	return report, nil
}

// Logs returns the audit records of an extension, newest first.
func (m management) Logs(ctx context.Context, id string, limit, offset int) ([]json.RawMessage, error) {
	if _, err := m.Show(ctx, id); err != nil {
		return nil, err
	}
	list, err := m.x.log.Query(ctx, audit.Query{Extension: id, Limit: limit + offset})
	return list[min(offset, len(list)):], err
}

// Findings returns the problems and warnings of the installed extensions.
func (m management) Findings(ctx context.Context) ([]lifecycle.Finding, error) {
	return m.Doctor(ctx, programs{m.x}.Exists)
}

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
	c.Remedy = "junctor sandbox status says what is missing; or lower sandbox.min_tier"
	return c
}
