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

// SetConfig also forgets what was kept of runs: it may depend on the settings.
func (m management) SetConfig(ctx context.Context, by capability.Principal, id string, doc json.RawMessage) (json.RawMessage, error) {
	defer m.x.cache.Clear()
	return m.Manager.SetConfig(ctx, by, id, doc)
}

// Sandbox is what holds programs here; fresh tries it now.
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

// Logs are the records of an extension, newest first.
func (m management) Logs(ctx context.Context, id string, limit, offset int) ([]json.RawMessage, error) {
	if _, err := m.Show(ctx, id); err != nil {
		return nil, err
	}
	list, err := m.x.log.Query(ctx, audit.Query{Extension: id, Limit: limit + offset})
	return list[min(offset, len(list)):], err
}

// Findings lists what is wrong or odd with the installed extensions.
func (m management) Findings(ctx context.Context) ([]lifecycle.Finding, error) {
	return m.Doctor(ctx, programs{m.x}.Exists)
}

// Checks finds a sandbox that was asked for and cannot be had, and lists what is broken
// of the installed extensions; what is only odd is for: junctor extensions doctor.
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
