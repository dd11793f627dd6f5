package invoke

import (
	"cmp"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
)

// resolve returns the candidates of the target in the surface's catalog. A target that does not
// exist and one that the audience may not see both result in unknown_capability.
func (r *run) resolve() ([]*catalog.Entry, error) {
	if r.inv.Context != nil {
		if err := r.inv.Context.Check(); err != nil {
			return nil, err
		}
	}
	r.context = ContextOf(&r.inv)
	r.agent = r.engine.cfg.Compiler.Compile(r.context)
	found, err := visible(r.agent.Snapshot(), r.inv.Target, r.inv.Audience)
	if err == nil || r.inv.Target.Action == "" {
		return found, err
	}
	// A capability of a single module is listed to agents under its own name, which is never
	// the name of an action of the registry.
	x, ok := (compile.Spelling{}).Read(r.agent, string(r.inv.Target.Action))
	if _, row := actions.Lookup(r.inv.Target.Action); !ok || row {
		return nil, err
	}
	r.inv.Target.Action = x.Canonical
	return visible(r.agent.Snapshot(), r.inv.Target, r.inv.Audience)
}

// defaultWorkspace is the workspace of calls that do not name one.
const defaultWorkspace = "default"

// ContextOf returns the context that an invocation is judged in: its own, completed from
// its credential.
func ContextOf(inv *capability.Invocation) *capability.Context {
	var c capability.Context
	if inv.Context != nil {
		c = *inv.Context
	}
	c.Workspace = cmp.Or(c.Workspace, defaultWorkspace)
	if c.Agent == "" {
		_, c.Agent, _ = strings.Cut(inv.Principal.ID, ":")
	}
	c.Session = cmp.Or(c.Session, inv.Session)
	return &c
}

// visible returns the entries of a target that the audience may see, or unknown_capability if
// none exists. "" means the agent audience.
func visible(snap *catalog.Snapshot, target capability.Target, audience capability.Audience) ([]*catalog.Entry, error) {
	audience = cmp.Or(audience, capability.AudienceAgent)
	all := snap.Resolve(target)
	for i, e := range all {
		if e.VisibleTo(audience) {
			continue
		}
		// Copy only if an entry must be left out, which is rare.
		kept := append([]*catalog.Entry(nil), all[:i]...)
		for _, e := range all[i+1:] {
			if e.VisibleTo(audience) {
				kept = append(kept, e)
			}
		}
		all = kept
		break
	}
	if len(all) == 0 {
		return nil, capability.UnknownCapability(target)
	}
	return all, nil
}
