package eval

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// answer evaluates one question and returns its answer as a JSON-like value. An unknown
// context is an error; an error of the catalog is part of the answer.
func (w *world) answer(f Fixtures, s Scenario, ask Ask) (any, error) {
	context := func() (*capability.Context, error) {
		c, ok := s.Contexts[ask.Ctx]
		if !ok {
			c, ok = f.Contexts[ask.Ctx]
		}
		if !ok && ask.Ctx != "" {
			return nil, bad("there is no context %q", ask.Ctx)
		}
		return &c, c.Check()
	}
	c, err := context()
	if err != nil {
		return nil, err
	}
	snap := w.catalog.Snapshot()
	switch ask.Op {
	case "agentCatalog":
		return map[string]any{"tools": tools(w.compiler.Compile(c))}, nil
	case "agentNames":
		names := []string{}
		for a := range w.compiler.Compile(c).Actions() {
			names = append(names, a.Name)
		}
		return names, nil
	case "tool":
		if a, ok := w.compiler.Compile(c).Action(ask.Name); ok {
			return tool(a), nil
		}
		return nil, nil
	case "select":
		return w.selects(c, ask), nil
	case "slot":
		return slot(snap.Slot(ask.Slot, c.Workspace, c.Agent)), nil
	case "backend":
		choice, err := snap.Backend(catalog.BackendRequest{Class: ask.Class, ID: ask.ID, Selector: ask.Sel})
		if err != nil {
			return map[string]any{"error": reason(err)}, nil
		}
		return map[string]any{"backend": choice.Entry.Contribution.Backend.ID, "degraded": choice.Degraded}, nil
	case "boot":
		out := []string{}
		for _, issue := range snap.Blocking() {
			out = append(out, issue.Class+":"+issue.Code)
		}
		return out, nil
	case "conflicts":
		return w.conflicts(c, ask), nil
	case "rejected":
		out := snap.Rejected()
		maps.Copy(out, w.operator.Rejected())
		return out, nil
	case "failed":
		return w.resolved.Failed, nil
	case "internal":
		out := []string{}
		for e := range snap.Entries() {
			out = append(out, string(e.ID))
		}
		slices.Sort(out)
		return out, nil
	case "operator":
		return w.operator.RuntimeIDs(), nil
	case "compose":
		out := []string{}
		for _, e := range snap.Compose(ask.Class) {
			out = append(out, e.Runtime)
		}
		return out, nil
	case "command":
		if m, ok := w.operator.Match(ask.Text); ok {
			return m.Runtime, nil
		}
		return nil, nil
	case "commands":
		return w.operator.Names(), nil
	case "nativeCommands":
		return w.operator.Natives(ask.Provider), nil
	case "auth":
		choice, err := w.operator.SelectAuth(ask.Provider, ask.Method, nil)
		if err != nil {
			return map[string]any{"error": reason(err)}, nil
		}
		return map[string]any{"method": choice.Runtime + ":" + choice.Method.ID}, nil
	case "channels":
		out := []string{}
		list, _ := declaration.Channels(w.extensions)
		for _, ch := range list {
			out = append(out, ch.ID+"|"+ch.Label)
		}
		return out, nil
	case "wire":
		return naming.Wire(ask.Name, naming.Strict64, 0), nil
	}
	return nil, bad("%q is not an operation", ask.Op)
}

func reason(err error) string {
	e := capability.AsError(err)
	return cmp.Or(e.Reason, string(e.Code))
}

func tools(a *compile.Agent) []any {
	out := []any{}
	for x := range a.Actions() {
		out = append(out, tool(x))
	}
	return out
}

func tool(a *compile.Action) map[string]any {
	return map[string]any{"name": a.Name, "action": a.Canonical, "providers": a.Providers(), "requiresSelection": a.RequiresSelection}
}

func (w *world) selects(c *capability.Context, ask Ask) map[string]any {
	sel, err := w.compiler.Compile(c).Select(arbitration.Request{
		Action: ask.Action, Selector: ask.Selector,
		Caller: arbitration.Caller(ask.Caller),
	})
	out := map[string]any{"step": sel.Step, "rejected": rejected(sel)}
	if err != nil {
		out["error"] = sel.Err.Reason
		if list, ok := sel.Err.Details["candidates"].([]string); ok && len(list) > 0 {
			out["candidates"] = list
		}
		if sel.Would != nil {
			out["wouldSelect"] = sel.Would.Key()
		}
		return out
	}
	out["decidedBy"], out["fallback"] = sel.DecidedBy, sel.Fallback
	if sel.Entry != nil {
		out["provider"], out["capabilityId"] = sel.Entry.Key(), sel.Entry.ID
	}
	return out
}

func rejected(sel *arbitration.Selection) map[string][]string {
	list := slices.Clone(sel.Rejected)
	slices.SortStableFunc(list, func(a, b arbitration.Rejection) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Entry.Module.Extension, b.Entry.Module.Extension),
			cmp.Compare(a.Entry.Contribution.ID, b.Entry.Contribution.ID), cmp.Compare(a.Entry.Key(), b.Entry.Key()))
	})
	out := make(map[string][]string)
	for _, r := range list {
		step := strconv.Itoa(r.Step)
		out[step] = append(out[step], string(r.Entry.Key())+"="+r.Reason)
	}
	return out
}

func slot(c catalog.SlotChoice) map[string]any {
	out := map[string]any{"requested": c.Requested, "source": c.Source, "available": c.Available}
	if c.Err != nil {
		out["error"] = c.Err.Code
	} else {
		out["winner"] = c.Winner
	}
	return out
}

func (w *world) conflicts(c *capability.Context, ask Ask) []catalog.Conflict {
	list := []catalog.Conflict{}
	list = append(list, w.catalog.Snapshot().Conflicts(true)...)
	list = append(append(list, w.resolved.Conflicts...), w.operator.Conflicts()...)
	if ask.Ctx != "" {
		for _, n := range w.compiler.Compile(c).Contests {
			list = append(list, catalog.Conflict{
				Class: catalog.ClassPlannerName, Key: n.Fold, Members: n.Members, Resolution: string(n.Resolution), Winner: n.Winner,
			})
		}
	}
	catalog.SortConflicts(list)
	return slices.DeleteFunc(list, func(x catalog.Conflict) bool {
		return ask.Class != "" && !strings.EqualFold(x.Class, ask.Class)
	})
}
