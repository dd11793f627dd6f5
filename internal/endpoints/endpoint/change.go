package endpoint

import (
	"context"
	"errors"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/router"
)

// change is the transition from the modules started at a server to those that its
// endpoint offers now. It is planned first, then run without a lock, then kept or undone.
// The catalog is updated only after it.
type change struct {
	r      *Registry
	ep     *Endpoint // to which the modules belong afterwards
	before []live
	after  []live // in manifest order
	work   []task
	gone   []live // disposed once the change is in force

	done   []task
	failed []HookFailure
}

// task is the work for one module. old is nil for a new module. With apply, the module
// gets its new configuration; without, old is disposed and the module initialised.
type task struct {
	old   *live
	to    live
	apply bool
}

// plan compares the started modules with those the endpoint offers. A server that was
// unreachable may have lost its state, so all its modules then count as new.
func (r *Registry) plan(ep *Endpoint, before []live, o *offering) *change {
	c := &change{r: r, ep: ep, before: before}
	for i := range o.modules {
		to := live{m: o.modules[i], digest: o.digests[o.modules[i].ID], by: ep}
		c.after = append(c.after, to)
		at := slices.IndexFunc(before, func(l live) bool { return l.m.ID == to.m.ID })
		switch {
		case at < 0:
			c.work = append(c.work, task{to: to})
		case before[at].digest == to.digest && before[at].by.id == ep.id:
		default:
			old := before[at]
			same := old.digest == to.digest || onlyConfig(&old.m, &to.m)
			c.work = append(c.work, task{old: &old, to: to, apply: same && declares(&old.m, hookApply) && declares(&to.m, hookApply)})
		}
	}
	for _, l := range before {
		if !slices.ContainsFunc(c.after, func(to live) bool { return to.m.ID == l.m.ID }) {
			c.gone = append(c.gone, l)
		}
	}
	return c
}

// calls reports whether running the change sends requests to the server.
func (c *change) calls() bool {
	return slices.ContainsFunc(c.work, func(t task) bool {
		return t.apply || declares(&t.to.m, hookInit) || t.old != nil && declares(&t.old.m, hookDispose)
	})
}

// reloading returns the modules that are stopped before they are started again.
func (c *change) reloading() map[string]bool {
	out := make(map[string]bool)
	for _, t := range c.work {
		if t.old != nil && !t.apply {
			out[t.to.m.ID] = true
		}
	}
	return out
}

// run calls the hooks: first dispose of the old modules in reverse order, then init and applyConfig
// in the order of the manifest. If strict, run returns at the first failure; otherwise it leaves
// out the failing module and continues. A module whose init failed is disposed.
func (c *change) run(ctx context.Context, strict bool) error {
	var old []live
	for _, t := range c.work {
		if t.old != nil && !t.apply {
			old = append(old, *t.old)
		}
	}
	c.r.dispose(ctx, old)
	for i, t := range c.work {
		hook := hookInit
		if t.apply {
			hook = hookApply
		}
		c.done = append(c.done, t)
		err := c.r.callHook(ctx, c.ep, &t.to.m, hook)
		if err == nil {
			continue
		}
		if strict {
			// Modules that were stopped to make room are started again with the rest.
			for _, rest := range c.work[i+1:] {
				if rest.old != nil && !rest.apply {
					c.done = append(c.done, task{old: rest.old})
				}
			}
			return err
		}
		if !t.apply {
			c.r.dispose(ctx, []live{t.to})
		}
		c.done = c.done[:len(c.done)-1]
		c.failed = append(c.failed, HookFailure{t.to.m.ID, hook, capability.AsError(err)})
	}
	return nil
}

// undo reverts the work of run in reverse order. It returns the previous modules that
// could not be started again, which the caller must remove from the catalog.
func (c *change) undo(ctx context.Context) (lost []string) {
	ctx = context.WithoutCancel(ctx)
	for _, t := range slices.Backward(c.done) {
		if t.apply {
			_ = c.r.callHook(ctx, t.old.by, &t.old.m, hookApply)
			continue
		}
		if t.to.by != nil {
			c.r.dispose(ctx, []live{t.to})
		}
		if t.old == nil {
			continue
		}
		if err := c.r.callHook(ctx, t.old.by, &t.old.m, hookInit); err != nil {
			lost = append(lost, t.old.m.ID)
		}
	}
	c.done = nil
	return lost
}

// stopped replaces undo for a server whose new manifests are already in force: no old module can be
// started again there, so stopped stops all touched modules and returns them as lost.
func (c *change) stopped(ctx context.Context) (lost []string) {
	var list []live
	for _, t := range c.done {
		if t.apply {
			continue
		}
		list = append(list, t.to)
		if t.old != nil && (declares(&t.old.m, hookDispose) || declares(&t.to.m, hookInit)) {
			lost = append(lost, t.old.m.ID)
		}
	}
	for _, f := range c.failed {
		if f.Hook == hookInit {
			lost = append(lost, f.ModuleID)
		}
	}
	c.r.dispose(ctx, list)
	c.done = nil
	return lost
}

// keep stores which modules are started now and removes failed ones from o. A module that
// rejected its new configuration keeps its previous manifest.
func (c *change) keep(o *offering, before *offering, s *Synced) {
	for _, f := range c.failed {
		at := slices.IndexFunc(o.modules, func(m router.Module) bool { return m.ID == f.ModuleID })
		name := o.modules[at].Name
		was := func(m router.Module) bool { return m.ID == f.ModuleID }
		s.Registered = without(s.Registered, name)
		s.Reloaded = without(s.Reloaded, name)
		s.Failed = append(s.Failed, f)
		i := slices.IndexFunc(c.after, func(l live) bool { return l.m.ID == f.ModuleID })
		old := slices.IndexFunc(before.modules, was)
		if f.Hook == hookApply && old >= 0 {
			o.modules[at], o.digests[f.ModuleID] = before.modules[old], before.digests[f.ModuleID]
			c.after[i] = c.before[slices.IndexFunc(c.before, func(l live) bool { return l.m.ID == f.ModuleID })]
			continue
		}
		o.modules = slices.Delete(o.modules, at, at+1)
		delete(o.digests, f.ModuleID)
		c.after = slices.Delete(c.after, i, i+1)
		if old >= 0 {
			s.Unloaded = append(s.Unloaded, before.modules[old].Name)
		}
	}
}

// err returns the first failure of a module, with text for the endpoint's state.
func (c *change) err() error {
	if len(c.failed) == 0 {
		return nil
	}
	e, _ := errors.AsType[*capability.Error](c.failed[0].Error)
	return e
}

func without(list []string, name string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == name })
}

// lose returns a copy of the offering without the modules of these ids.
func (o *offering) lose(ids []string) *offering {
	if len(ids) == 0 {
		return o
	}
	out := *o
	out.modules, out.digests = nil, make(map[string]string)
	for _, m := range o.modules {
		if !slices.Contains(ids, m.ID) {
			out.modules = append(out.modules, m)
			out.digests[m.ID] = o.digests[m.ID]
		}
	}
	return &out
}

func dropLive(list []live, ids []string) []live {
	return slices.DeleteFunc(slices.Clone(list), func(l live) bool { return slices.Contains(ids, l.m.ID) })
}
