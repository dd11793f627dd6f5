//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// HelperMain does nothing on systems without the sandbox's layers.
func HelperMain([]string) int { return 1 }

// ComputeOnly always fails, because this system does not have the layers.
func ComputeOnly() error { return errors.New("there are no walls for " + runtime.GOOS + " yet") }

func (b *Box) probe() Facts {
	why := "there are no walls for " + runtime.GOOS + " yet"
	f := Facts{Tier: T1, Layers: []string{LayerHygiene}, Missing: map[string]string{}, NoT3: why, NoT2: why}
	for _, layer := range []string{
		LayerPrivileges, LayerRlimits, LayerSeccomp, LayerLandlock, LayerCgroup, LayerUser, LayerNamespaces,
		LayerRoot, LayerProc, LayerNetwork,
	} {
		f.Missing[layer] = why
	}
	return f
}

// Run runs the program at tier T1, the only one here; see the Linux build.
func (b *Box) Run(ctx context.Context, spec Spec, c Confinement) (Result, error) {
	p, err := b.Place(c)
	if err != nil {
		return Result{}, err
	}
	if spec.Dir == "" {
		spec.Dir = c.Work
	}
	r, err := Run(ctx, spec)
	r.Placement = p
	return r, err
}

// Start fails, because this system reaches tier T1 only and a program never starts below T2.
func (b *Box) Start(_ Spec, c Confinement, _ Streams) (*Process, error) {
	c.MinTier = max(c.MinTier, T2)
	p, err := b.Place(c)
	if err == nil {
		err = unavailable(b.Facts(), p.Tier, T2)
	}
	return nil, err
}

// Reachable returns nil, because this system does not have the layers.
func Reachable(Placement, int, int, []string, []string) error { return nil }

// Permits returns nil, because Start fails on this system.
func (b *Box) Permits(Confinement) error { return nil }

// OwnerOf returns no user, because programs run as the server's here.
func OwnerOf([]string) (uid, gid int, err error) { return 0, 0, nil }

// Shows returns true, because nothing is hidden here.
func (b *Box) Shows(Confinement, string) bool { return true }

func inside(c Confinement) (work, pkg string) { return c.Work, c.Package }

// Report returns an empty report, because the system does not have a sandbox to test.
func (b *Box) Report(ctx context.Context) (Report, error) { return b.SelfTest(ctx) }

// SelfTest does nothing on systems without the layers.
func (b *Box) SelfTest(ctx context.Context) (Report, error) {
	f := b.Facts()
	return Report{Facts: f, Tiers: []TierTest{{Tier: T3, Skipped: f.NoT3}, {Tier: T2, Skipped: f.NoT2}}, At: time.Now().UTC()}, ctx.Err()
}

// spares and system are used only by the Linux build.
type (
	spares struct{}
	system struct{}
)

// Close does nothing here.
func (b *Box) Close() {}
