package extensions

import (
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/extensions/extensionserve"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/extensions/registry"
)

// Door is what the surface of extensions asks.
func (x *Runtime) Door() Door { return Door{x, x.manager} }

// Door adapts the Runtime to what the surface asks for.
type Door struct {
	*Runtime
	*lifecycle.Manager
}

func (d Door) List(ctx context.Context, enabledOnly bool, status string) (any, error) {
	return d.Manager.List(ctx, lifecycle.Filter{EnabledOnly: enabledOnly, Status: registry.Status(status)})
}

func (d Door) Show(ctx context.Context, id string) (any, error) {
	return d.Manager.Show(ctx, id)
}

func (d Door) Screen(ctx context.Context, id string, agentVisible []string) (any, error) {
	screen, err := d.Manager.Screen(ctx, id, agentVisible)
	return map[string]any{"screen": screen, "text": screen.Text(), "asks": screen.Asks()}, err
}

func (d Door) Install(ctx context.Context, by capability.Principal, src extensionserve.Source) (any, error) {
	return d.Manager.Install(ctx, by, lifecycle.Source{Zip: src.Zip, Size: src.Size, URL: src.URL, SHA256: src.SHA256}, lifecycle.Options{Force: src.Force})
}

func (d Door) Record(ctx context.Context, id string) (any, error) {
	return d.Manager.Record(ctx, id)
}

func (d Door) Enable(ctx context.Context, by capability.Principal, id string, c extensionserve.Consent) (any, error) {
	return d.Manager.Enable(ctx, by, id, lifecycle.Answer(c))
}

func (d Door) Disable(ctx context.Context, by capability.Principal, id string, kill bool) (any, error) {
	return d.Manager.Disable(ctx, by, id, kill)
}

func (d Door) Uninstall(ctx context.Context, by capability.Principal, id string, keepWork bool) (any, error) {
	return d.Manager.Uninstall(ctx, by, id, lifecycle.Removal{KeepWork: keepWork})
}

// SetConfig also forgets what was kept of runs: it may depend on the settings.
func (d Door) SetConfig(ctx context.Context, by capability.Principal, id string, doc json.RawMessage) (json.RawMessage, error) {
	defer d.cache.Clear()
	return d.Manager.SetConfig(ctx, by, id, doc)
}

// Sandbox is what holds programs here; fresh tries it now.
func (d Door) Sandbox(ctx context.Context, fresh bool) (any, error) {
	report, err := d.box.Report(ctx)
	if fresh {
		report, err = d.box.SelfTest(ctx)
	}
	if err != nil {
		return nil, capability.AsError(err)
	}
	return report.Status(), nil
}

// Logs are the records of an extension, newest first.
func (d Door) Logs(ctx context.Context, id string, limit, offset int) ([]json.RawMessage, error) {
	if _, err := d.Manager.Show(ctx, id); err != nil {
		return nil, err
	}
	list, err := d.log.Query(ctx, audit.Query{Extension: id, Limit: limit + offset})
	return list[min(offset, len(list)):], err
}

func (d Door) Doctor(ctx context.Context) (any, error) {
	return d.Manager.Doctor(ctx, d.Exists)
}
