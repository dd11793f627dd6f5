package extensions

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/extensions/runner"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
)

// wish returns the weakest tier that an extension's programs should have: T3 if the
// package came from a URL and runs programs, else T2. The operator may set another.
func (x *Service) wish(l *lifecycle.Loaded) sandbox.Tier {
	if l.SourceURL != "" && slices.Contains(l.Permissions, "exec") {
		return sandbox.T3
	}
	return sandbox.T2
}

// floor returns the weakest tier in which an extension's programs may run: the
// operator's sandbox.min_tier if set, else wish.
func (x *Service) floor(l *lifecycle.Loaded) sandbox.Tier { return cmp.Or(x.minTier, x.wish(l)) }

// room returns the confinement of an extension's programs: the package read-only, the working
// folder (writable with filesystem.write), and with network the proxy under the manifest's policy.
func (x *Service) room(ctx context.Context, m *extension.Manifest, dir string, floor sandbox.Tier,
	permissions []string,
) sandbox.Confinement {
	may := func(name string) bool { return slices.Contains(permissions, name) }
	user := x.user(ctx, m.ID)
	c := sandbox.Confinement{
		MinTier: floor, Package: dir, Work: filepath.Join(dir, "work"), WorkReadOnly: !may("filesystem.write"), Network: sandbox.NetworkNone,
		UID: user, GID: user,
		Limits: sandbox.Limits{
			Memory: int64(m.Limits.MemoryMB) << 20, CPU: time.Duration(m.Limits.CPUSeconds) * time.Second, Processes: m.Limits.MaxProcesses,
			Disk: int64(m.Limits.DiskMB) << 20,
		},
	}
	switch {
	case may("network.raw"):
		c.Network = sandbox.NetworkRaw
	case may("network"):
		c.Network = sandbox.NetworkProxy
		c.Egress = x.egress(m)
	}
	return c
}

// user returns the uid of an extension's programs if the server is root. No two
// extensions share one, because they could then access each other's files and, at tier
// T2, processes. If the registry fails, it is a uid that no extension owns.
func (x *Service) user(ctx context.Context, id string) int {
	if known, ok := x.users.Load(id); ok {
		return known.(int)
	}
	n, err := x.registry.User(context.WithoutCancel(ctx), id)
	if err != nil {
		return sandbox.DefaultUID - 1 // not stored: the next run tries again
	}
	x.users.Store(id, sandbox.DefaultUID+n)
	return sandbox.DefaultUID + n
}

// egress returns the network policy of an extension: the manifest's hosts and the
// operator's addresses.
func (x *Service) egress(m *extension.Manifest) egress.Policy {
	return egress.Policy{Allow: m.Network.Allow, Deny: m.Network.Deny, Addresses: x.addresses}
}

// egressRecords returns a callback that writes the allowed and refused connections of a
// run to the audit log, at most maxEgressRecords of them.
func (x *Service) egressRecords(r runner.Run) func(egress.Decision) {
	var n atomic.Int32
	return func(d egress.Decision) {
		if n.Add(1) <= maxEgressRecords {
			x.decided(audit.Record{
				Extension: r.Extension, Session: r.Owner.Session, User: r.Owner.Principal,
				Metadata: audit.Metadata{RunID: r.ID},
			}, d)
		}
	}
}

// decided adds an egress decision to rec and appends it to the audit log.
func (x *Service) decided(rec audit.Record, d egress.Decision) {
	rec.Logger, rec.Event, rec.Success = "sandbox", audit.Event(d.Event()), audit.OutcomeOf(d.Allowed)
	rec.Metadata.Attrs = []audit.Attr{
		{Key: "host", Value: d.Host},
		{Key: "port", Value: strconv.Itoa(d.Port)},
		{Key: "address", Value: d.Address},
	}
	if d.Reason != "" {
		rec.Metadata.Attrs = append(rec.Metadata.Attrs, audit.Attr{Key: "why", Value: d.Reason})
	}
	_, _ = x.log.Append(context.Background(), rec, audit.Buffered) // the log reports its own failures
}

// walls returns the metadata of a result about the sandbox: tier, layers, network and limits.
func walls(p sandbox.Placement, l sandbox.Limits) map[string]any {
	d := sandbox.DefaultLimits()
	return map[string]any{
		"tier": p.Tier.String(), "layers": p.Layers, "missing": p.Missing, "network": p.Network,
		"limits": map[string]any{
			"memory_bytes": cmp.Or(l.Memory, d.Memory), "processes": cmp.Or(l.Processes, d.Processes),
			"cpu_seconds": cmp.Or(l.CPU, d.CPU).Seconds(), "disk_bytes": cmp.Or(l.Disk, d.Disk),
		},
	}
}

// degraded writes to the audit log that a program runs at a weaker tier than wish,
// because the operator allows it.
func (x *Service) degraded(r runner.Run, wished, got sandbox.Tier) {
	_, _ = x.log.Append(context.Background(), audit.Record{ // the log reports its own failures
		Logger: "sandbox", Event: audit.SandboxDegraded, Extension: r.Extension, Session: r.Owner.Session, User: r.Owner.Principal,
		Metadata: audit.Metadata{RunID: r.ID, Sandbox: got.String(), Attrs: []audit.Attr{{Key: "wished", Value: wished.String()}}},
	}, audit.Buffered)
}
