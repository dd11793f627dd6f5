package record

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
)

// IsContainer reports whether a command starts a container with an engine that is found by PATH.
func IsContainer(command []string) bool {
	return len(command) > 1 && slices.Contains([]string{"docker", "podman", "nerdctl"}, command[0])
}

// checkConfinement sets the default confinement of a program, and validates it.
func (r *Record) checkConfinement() error {
	if r.Confinement == "" {
		r.Confinement = Sandboxed
		if IsContainer(r.Command) {
			r.Confinement = Container
		}
	}
	switch {
	case !slices.Contains([]string{Sandboxed, Unconfined, Container}, r.Confinement):
		return fmt.Errorf("confinement: %.40q is not one of %s, %s, %s", r.Confinement, Sandboxed, Unconfined, Container)
	case r.Confinement == Container && !IsContainer(r.Command):
		return fmt.Errorf("the confinement container is for commands such as docker run")
	case r.Confinement != Sandboxed && len(r.ReadOnly)+len(r.ReadWrite)+len(r.Network) > 0:
		return fmt.Errorf("folders and network are of a confined program, and this one is not confined by us")
	case r.Confinement != Sandboxed:
		return nil
	case len(r.ReadOnly)+len(r.ReadWrite) > maxPairs:
		return fmt.Errorf("there are more than %d folders", maxPairs)
	}
	for _, dir := range slices.Concat(r.ReadOnly, r.ReadWrite) {
		control := strings.ContainsFunc(dir, func(c rune) bool { return c < ' ' })
		if len(dir) > maxText || !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || control {
			return fmt.Errorf("%.120q is not the clean absolute path of a folder", dir)
		}
	}
	within := func(dir string, list []string) (string, bool) {
		for _, parent := range list {
			if dir == parent || strings.HasPrefix(dir, strings.TrimSuffix(parent, "/")+"/") {
				return parent, true
			}
		}
		return "", false
	}
	for _, dir := range r.ReadOnly {
		if parent, ok := within(dir, r.ReadWrite); ok {
			return fmt.Errorf("%s is only for reading and lies in %s, which may be written", dir, parent)
		}
	}
	if r.Dir != "" {
		if _, ok := within(r.Dir, slices.Concat(r.ReadOnly, r.ReadWrite)); !ok {
			return fmt.Errorf("a confined program works in a folder that it may see: name %s with --ro or --rw too", r.Dir)
		}
	}
	return r.checkNetwork()
}

func (r *Record) checkNetwork() error {
	if len(r.Network) == 0 {
		r.Network = []string{NetworkAll}
	}
	if len(r.Network) == 1 && (r.Network[0] == NetworkAll || r.Network[0] == NetworkNone) {
		return nil
	}
	if len(r.Network) > maxHosts {
		return fmt.Errorf("there are more than %d hosts", maxHosts)
	}
	for _, host := range r.Network {
		if host == NetworkAll || host == NetworkNone {
			return fmt.Errorf("the network is all, none or hosts, not several of them")
		}
		if err := (egress.Policy{Allow: []string{host}}).Check(); err != nil || len(host) > maxText {
			return fmt.Errorf("%.80q is not a host that a program may reach: write name or name:port", host)
		}
	}
	return nil
}
