package policy

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

// Deployment is the deployment mode: how far the machine trusts its installed extensions. It
// applies only to extensions; Cedar rules apply to programs that the operator configured.
type Deployment string

// The deployment modes.
const (
	LocalOpen     Deployment = "local_open"     // everything that was declared and agreed to
	LocalLocked   Deployment = "local_locked"   // nothing that runs programs or changes files, without a grant
	RemoteExposed Deployment = "remote_exposed" // the same, for a server that others reach
)

// ParseDeployment parses a mode. "" means local_open if loopback (only this machine can reach the
// server), else remote_exposed. For an unknown mode it returns local_locked and false.
func ParseDeployment(s string, loopback bool) (mode Deployment, ok bool) {
	switch d := Deployment(strings.TrimSpace(s)); d {
	case "":
		if loopback {
			return LocalOpen, true
		}
		return RemoteExposed, true
	case LocalOpen, LocalLocked, RemoteExposed:
		return d, true
	}
	return LocalLocked, false
}

// extensionOrigin is the origin of modules installed from packages.
const extensionOrigin = "extension"

// lockedPermissions returns the permissions that the stricter modes withhold from extensions.
func lockedPermissions() []string {
	return []string{"exec", "exec.interpreter", "filesystem.write", "browser", "db.write", "network.raw"}
}

// Withholds reports whether the mode withholds a permission from extensions, unless an
// administrator's grant gives it.
func (d Deployment) Withholds(permission string) bool {
	return d != LocalOpen && slices.Contains(lockedPermissions(), permission)
}

// withholds returns the permissions that the mode withholds from an entry and that no grant
// restores. Only a grant by an administrator that names the permission (or "*") restores it,
// and only if it is not limited in uses or to a session.
func (p *Policy) withholds(principal capability.Principal, e *catalog.Entry) []string {
	if p.deployment == LocalOpen || e.Module.Origin != extensionOrigin {
		return nil
	}
	var out []string
	for _, permission := range lockedPermissions() {
		if slices.Contains(e.Contribution.Permissions, permission) {
			out = append(out, permission)
		}
	}
	if len(out) == 0 {
		return nil
	}
	now := p.now().UTC()
	asked := Asked{Principal: principal, Entry: e}
	for i := range *p.grants.Load() {
		g := &(*p.grants.Load())[i]
		if !strings.HasPrefix(g.GrantedBy, string(capability.RoleAdmin)+":") || g.MaxUses > 0 || g.Scope == "session" || !g.covers(asked, now) {
			continue
		}
		out = slices.DeleteFunc(out, func(permission string) bool {
			return slices.Contains(g.Permissions, permission) || slices.Contains(g.Permissions, "*")
		})
	}
	return out
}

// locked returns the verdict on an entry whose permissions the deployment mode
// withholds.
func (p *Policy) locked(withheld []string) Verdict {
	return Verdict{Policies: []string{"deployment_mode:" + string(p.deployment)}, Withheld: withheld}
}
