package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox/jail"
	"github.com/junctor-run/junctor/internal/platform/sandbox/seccomp"
)

// probeTimeout bounds one trial launch.
const probeTimeout = 10 * time.Second

// probe finds the working tiers by trying them: a tier counts once a program ran in it.
func (b *Box) probe() Facts {
	f := Facts{Tier: T1, Missing: map[string]string{}, Root: os.Geteuid() == 0}
	for layer, why := range b.cfg.Off {
		f.Missing[layer] = "switched off: " + why
	}
	note := func(layer string, err error) {
		if _, off := f.Missing[layer]; err != nil && !off {
			f.Missing[layer] = err.Error()
		}
	}
	var err error
	f.Landlock, err = jail.LandlockABI()
	note(LayerLandlock, err)
	note(LayerSeccomp, seccomp.Available())
	cg, err := findCgroup()
	note(LayerCgroup, err)
	cg.removeStale()
	b.removeStaleTemp()
	f.Cgroup, f.Control = cg.version, cg.names()

	if why, gone := f.Missing[LayerSeccomp]; gone {
		f.NoT3, f.NoT2 = "no filter of system calls: "+why, "no filter of system calls: "+why
	} else {
		f.NoT3 = b.try(&f, T3)
		if why, gone := f.Missing[LayerLandlock]; gone {
			f.NoT2 = "no Landlock: " + why
		} else {
			f.NoT2 = b.try(&f, T2)
		}
	}
	switch {
	case f.NoT3 == "":
		f.Tier = T3
		f.UserNS = !f.Root
	case f.NoT2 == "":
		f.Tier = T2
	}
	if f.NoT3 != "" {
		layers := []string{LayerNamespaces, LayerRoot, LayerNetwork, LayerProc}
		if !f.Root { // the server's own user, then
			layers = append(layers, LayerUser)
		}
		for _, layer := range layers {
			note(layer, errors.New(f.NoT3))
		}
	}
	if f.Tier == T1 {
		for _, layer := range []string{LayerPrivileges, LayerRlimits, LayerSeccomp, LayerLandlock, LayerCgroup, LayerUser} {
			note(layer, errors.New("not at tier T1"))
		}
	}
	for _, layer := range allLayers() {
		if _, gone := f.Missing[layer]; !gone {
			f.Layers = append(f.Layers, layer)
		}
	}
	return f
}

// allLayers returns the layers in the order in which status lists them.
func allLayers() []string {
	return []string{
		LayerHygiene, LayerPrivileges, LayerRlimits, LayerSeccomp, LayerLandlock, LayerCgroup,
		LayerUser, LayerNamespaces, LayerRoot, LayerProc, LayerNetwork,
	}
}

// try launches the canary without a task at a tier and returns why it did not run, or "". If
// only /proc cannot be mounted, it marks LayerProc as missing in f and tries again.
func (b *Box) try(f *Facts, tier Tier) string {
	for _, layer := range []string{LayerNamespaces, LayerRoot, LayerNetwork, LayerUser} {
		if why, off := f.Missing[layer]; off && tier == T3 {
			return why
		}
	}
	err := b.launchCanary(*f, tier)
	if e, ok := errors.AsType[*capability.Error](err); ok && tier == T3 && e.Details["step"] == "mount /proc" && f.Missing[LayerProc] == "" {
		f.Missing[LayerProc] = "the kernel refuses a fresh /proc here, because parts of the machine's are covered"
		err = b.launchCanary(*f, tier)
	}
	if err == nil {
		return ""
	}
	e := capability.AsError(err)
	if detail, ok := e.Details["detail"].(string); ok {
		return detail
	}
	if e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

func (b *Box) launchCanary(f Facts, tier Tier) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	work, err := os.MkdirTemp(b.cfg.Scratch, "junctor-probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if work, err = filepath.EvalSymlinks(work); err != nil {
		return err
	}
	p, err := b.placement(f, tier, Confinement{Work: work})
	if err != nil {
		return err
	}
	spec, err := canarySpec("nothing")
	if err != nil {
		return err
	}
	r, err := b.launch(ctx, spec, Confinement{Work: work}, p, f)
	if err != nil {
		return err
	}
	if r.ExitCode != 0 || strings.TrimSpace(r.Stdout.Text()) == "" {
		return fmt.Errorf("the trial run ended with %d %s: %.200s", r.ExitCode, r.Signal, r.Stderr.Text())
	}
	return nil
}

// canarySpec returns a Spec that runs this binary as the canary.
func canarySpec(args ...string) (Spec, error) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return Spec{}, err
	}
	return Spec{Path: self, Args: append([]string{canaryName}, args...), Env: []string{"PATH=/usr/bin:/bin", "GORACE=atexit_sleep_ms=0"}}, nil
}
