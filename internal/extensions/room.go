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

// wish is the weakest sandbox that an extension's programs call for: the strongest
// for programs that came from an address. The operator may set another floor.
func (x *Service) wish(l *lifecycle.Loaded) sandbox.Tier {
	if l.SourceURL != "" && slices.Contains(l.Permissions, "exec") {
		return sandbox.T3
	}
	return sandbox.T2
}

// floor is the weakest sandbox that an extension's programs may run in.
func (x *Service) floor(l *lifecycle.Loaded) sandbox.Tier { return cmp.Or(x.minTier, x.wish(l)) }

// room is what an extension's programs are put behind: the package to read, the
// working folder to write with the permission, the network through the proxy with
// another.
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

// user is the one that an extension's programs run as where the server is root:
// no two share one, or they could reach each other's files and, at tier T2,
// processes.
func (x *Service) user(ctx context.Context, id string) int {
	if known, ok := x.users.Load(id); ok {
		return known.(int)
	}
	n, err := x.registry.User(context.WithoutCancel(ctx), id)
	if err != nil {
		return sandbox.DefaultUID - 1 // it belongs to no run; the next run asks again
	}
	x.users.Store(id, sandbox.DefaultUID+n)
	return sandbox.DefaultUID + n
}

// egress is where an extension may connect to.
func (x *Service) egress(m *extension.Manifest) egress.Policy {
	return egress.Policy{Allow: m.Network.Allow, Deny: m.Network.Deny, Addresses: x.addresses}
}

// egressRecords records where a run connected to and where it was not let. A
// program that tries more often than any caller reads is not recorded further.
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

// maxEgressRecords bounds what one run adds to the audit.
const maxEgressRecords = 100

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
	_, _ = x.log.Append(context.Background(), rec, audit.Buffered) // a broken log says so itself
}

// walls is what a result says of where its program ran.
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

// degraded records that a program runs behind weaker walls than its package calls
// for, because the operator lets it.
func (x *Service) degraded(r runner.Run, wished, got sandbox.Tier) {
	_, _ = x.log.Append(context.Background(), audit.Record{ // a broken log says so itself
		Logger: "sandbox", Event: audit.SandboxDegraded, Extension: r.Extension, Session: r.Owner.Session, User: r.Owner.Principal,
		Metadata: audit.Metadata{RunID: r.ID, Sandbox: got.String(), Attrs: []audit.Attr{{Key: "wished", Value: wished.String()}}},
	}, audit.Buffered)
}
