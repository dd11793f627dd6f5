package extensions

import (
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
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
