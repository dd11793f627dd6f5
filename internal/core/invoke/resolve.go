package invoke

import (
	"cmp"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/core/policy"
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
	named := otherName(r.agent, string(r.inv.Target.Action))
	if named == "" {
		return nil, err
	}
	r.inv.Target.Action = named
	return visible(r.agent.Snapshot(), r.inv.Target, r.inv.Audience)
}

// Find returns the entries that a name means, visible or not, in whichever form it is given: the
// SERVER/TOOL of rules and of everything that people read, a canonical or minted action,
// module:kind:name, a capability's id, or the name that agents are shown or that their users see of it.
func Find(agent *compile.Agent, name string) []*catalog.Entry {
	target, err := capability.ParseTarget(name)
	if err != nil {
		return nil
	}
	snap := agent.Snapshot()
	if found := snap.Resolve(target); len(found) > 0 || target.Action == "" {
		return found
	}
	if found := snap.Action(otherName(agent, name)); len(found) > 0 || !strings.HasPrefix(name, "mcp__") {
		return found
	}
	// Claude Code shows tools as mcp__SERVER__TOOL, where the server is junctor.
	_, tool, _ := strings.Cut(strings.TrimPrefix(name, "mcp__"), "__")
	return snap.Action(otherName(agent, tool))
}

// otherName returns the action of a name that is not one itself: the SERVER/TOOL of rules, or the name
// that agents are shown. Otherwise it returns "".
func otherName(agent *compile.Agent, name string) capability.Action {
	if server, _, ok := strings.Cut(name, "/"); ok {
		for _, origin := range []string{"mcp.", "a2a."} {
			for _, e := range agent.Snapshot().ModuleEntries(naming.ExtensionID(origin, server)) {
				if policy.ToolOf(e) == name {
					return e.Action
				}
			}
		}
	}
	// A capability of a single module is listed to agents under its own name, which is never
	// the name of an action of the registry.
	if _, row := actions.Lookup(capability.Action(name)); row {
		return ""
	}
	for _, spelling := range []compile.Spelling{{}, {Dialect: naming.Strict64, Limit: compile.MaxListedName}} {
		if x, ok := spelling.Read(agent, name); ok {
			return x.Canonical
		}
	}
	return ""
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
