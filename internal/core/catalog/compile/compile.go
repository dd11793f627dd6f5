// Package compile builds the agent catalog of a context: the actions that it may use, each
// under one name whatever the number of its providers, with an etag computed from the
// content. Contexts of one workspace and agent share a view, and only the actions that depend
// on the conversation are computed for each context. Compiled catalogs are cached until the
// catalog changes.
package compile

import (
	"cmp"
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/ordered"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// Compiler compiles contexts of one catalog. It is safe for concurrent use.
type Compiler struct {
	catalog *catalog.Catalog

	mu    sync.Mutex // guards the fields below; never held while a view is updated
	views map[[2]string]*view
	clock uint64
	since uint64 // clock at the last Trim
	size  int    // of the catalog at the last Trim

	cacheMu sync.RWMutex
	cached  *catalog.Snapshot // the snapshot that the cached catalogs were compiled from
	cache   map[cacheKey]*Agent
	earlier map[cacheKey]*Agent // those not used since the last Trim
}

// New returns a Compiler of c.
func New(c *catalog.Catalog) *Compiler {
	return &Compiler{catalog: c, views: make(map[[2]string]*view), cache: make(map[cacheKey]*Agent)}
}

// cacheKey holds all values that a compiled catalog depends on besides the snapshot. Values
// that the catalog does not mention are omitted, so that contexts with equal catalogs share
// one.
type cacheKey struct {
	workspace, agent, session, model    string
	kind, account, conversationKind     string
	conversation                        string
	adapter                             bool
	adapterKind, adapterAccount, extras string
}

// keyOf returns the cache key of a context in a snapshot.
func keyOf(s *catalog.Snapshot, c *capability.Context) cacheKey {
	k := cacheKey{model: c.ModelProvider}
	named := func(dimension, value string) string {
		if s.Mentions(dimension, value) {
			return value
		}
		return ""
	}
	k.workspace, k.agent, k.session = named("workspace", c.Workspace), named("agent", c.Agent), named("session", c.Session)
	if r := c.Route; r != nil {
		k.kind, k.account, k.conversationKind = r.Kind, r.Account, r.ConversationKind
		k.conversation = named("conversation", r.Conversation)
	}
	if a := c.Adapter; a != nil {
		k.adapter, k.adapterKind, k.adapterAccount = true, a.Kind, a.Account
	}
	if len(c.Bindings)+len(c.Blocks) > 0 {
		var b strings.Builder
		for _, x := range c.Bindings {
			b.WriteString(x.Actions + "\x00" + string(x.Provider) + "\x01")
		}
		b.WriteByte(2)
		for _, x := range c.Blocks {
			b.WriteString(strings.Join(x.Actions, "\x00") + "\x01")
		}
		k.extras = b.String()
	}
	return k
}

// plain reports whether the key only names a workspace, an agent and a model provider.
func (k cacheKey) plain() bool {
	return k == cacheKey{workspace: k.workspace, agent: k.agent, model: k.model}
}

// Compile returns the agent catalog of the context in the current snapshot, from the cache if
// possible. The context must have passed [capability.Context.Check] and must not change
// afterwards.
func (c *Compiler) Compile(ctx *capability.Context) *Agent {
	var key cacheKey
	var a *Agent
	for a == nil { // repeated if a change of the catalog changed the key
		s := c.catalog.Snapshot()
		key = keyOf(s, ctx)
		c.cacheMu.RLock()
		hit, again := c.cache[key], c.earlier[key]
		c.cacheMu.RUnlock()
		if hit != nil && hit.Snapshot() == s {
			return hit.in(ctx)
		}
		if again != nil && again.Snapshot() == s {
			a = again.in(ctx)
		} else {
			a = c.compile(key, ctx)
		}
	}
	c.cacheMu.Lock()
	defer c.cacheMu.Unlock()
	if now := a.Snapshot(); c.cached == nil || now.Generation > c.cached.Generation {
		clear(c.cache) // otherwise contexts no longer in use would keep old snapshots in memory
		c.earlier, c.cached = nil, now
	}
	if len(c.cache) >= maxCache {
		for k := range c.cache {
			delete(c.cache, k)
			break
		}
	}
	if a.Snapshot() == c.cached {
		c.cache[key] = a
	}
	return a
}

// Run calls Trim until ctx ends, and returns the memory to the operating system. It does so once more at
// the next interval, because surfaces drop their copies of lists meanwhile.
func (c *Compiler) Run(ctx context.Context) {
	tick := time.NewTicker(trimInterval)
	defer tick.Stop()
	for before := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		released := c.Trim()
		if released || before {
			debug.FreeOSMemory()
		}
		before = released
	}
}

// Trim releases what was not used since the call before, and reports whether that can be much: views and
// catalogs of contexts that ended, and, of removed tools, the snapshot that an unused view still has. The
// view of the neutral context stays and is updated, because every client without a workspace uses it.
func (c *Compiler) Trim() (released bool) {
	now := c.catalog.Snapshot()
	c.cacheMu.Lock()
	released = len(c.earlier) > 0
	c.earlier, c.cache = c.cache, make(map[cacheKey]*Agent)
	if c.cached != now {
		c.earlier, c.cached = nil, now
	}
	c.cacheMu.Unlock()
	c.mu.Lock()
	before := c.since
	released = released || now.Len() < c.size-c.size/4
	c.since, c.size = c.clock, now.Len()
	for id, v := range c.views {
		if v.used <= before && id != [2]string{} {
			delete(c.views, id)
			released = true
		}
	}
	neutral := c.views[[2]string{}]
	c.mu.Unlock()
	if neutral != nil {
		c.refresh(neutral)
	}
	return released
}

// compile builds the catalog of a context from its view. It returns nil if the snapshot changed
// meanwhile and the context's key in the new one is another.
func (c *Compiler) compile(key cacheKey, ctx *capability.Context) *Agent {
	v := c.view(key.workspace, key.agent)
	v.mu.RLock()
	if v.frame == nil || v.frame.Snapshot != c.catalog.Snapshot() {
		v.mu.RUnlock()
		c.refresh(v)
		v.mu.RLock()
	}
	defer v.mu.RUnlock()
	if v.frame == nil || keyOf(v.frame.Snapshot, ctx) != key {
		return nil
	}
	frame := arbitration.NewFrame(v.frame.Snapshot, ctx)
	if v.unnamed != nil {
		unnamed := v.unnamed
		frame.Unnamed = func(a capability.Action) bool { return unnamed[a] }
	}
	list := v.list
	if !key.plain() || key.model != "" {
		list = v.specialise(frame)
	}
	return &Agent{Frame: frame, Contests: v.contests, list: list, folds: v.folds, etag: etagOf(list)}
}

// view returns the view of a workspace and agent, which may be outdated. It creates a missing
// view and evicts the least recently used one beyond maxViews.
func (c *Compiler) view(workspace, agent string) *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := [2]string{workspace, agent}
	v := c.views[id]
	if v == nil {
		if len(c.views) >= maxViews {
			var oldest *view
			for _, other := range c.views {
				if oldest == nil || other.used < oldest.used {
					oldest = other
				}
			}
			delete(c.views, [2]string{oldest.workspace, oldest.agent})
		}
		v = newView(workspace, agent)
		c.views[id] = v
	}
	c.clock++
	v.used = c.clock
	return v
}

// refresh updates a view to the current snapshot.
func (c *Compiler) refresh(v *view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := c.catalog.Snapshot()
	if v.frame != nil && v.frame.Snapshot == s {
		return
	}
	all := v.frame == nil || v.settings != s.Settings()
	var touched []capability.Action
	if !all {
		known, ok := c.catalog.Touched(v.generation, s.Generation)
		touched, all = known, !ok
	}
	done := false
	defer func() {
		if !done {
			v.frame = nil // after a panic the view must be rebuilt
		}
	}()
	v.update(s, touched, all)
	done = true
}

// specialise returns the view's list with the families replaced whose listing differs in the
// context. The view is unchanged.
func (v *view) specialise(f *arbitration.Frame) ordered.List[*Action] {
	again := make(map[capability.Action]*family)
	through := f.Context.Through()
	kind := ""
	if through != nil {
		_, kind, _ = capability.NewProviderKey("x", through.Kind, "x").Parts()
	}
	for a, x := range v.special {
		if x.dynamic || through != nil && slices.Contains(x.kinds, kind) {
			again[a] = x.family
		}
	}
	var globs []string
	for _, b := range f.Context.Bindings {
		globs = append(globs, b.Actions)
	}
	for _, b := range f.Context.Blocks {
		globs = append(globs, b.Actions...)
	}
	globs = append(globs, f.DynamicGlobs()...)
	if slices.Contains(globs, "*") {
		globs = []string{"*"}
	}
	for _, glob := range globs {
		v.matching(f.Snapshot, glob, again)
	}
	var remove, add []*Action
	for _, fam := range again {
		now := list(f, fam)
		if !slices.EqualFunc(now, fam.listed, func(a, b *Action) bool { return a.sum == b.sum }) {
			remove, add = append(remove, fam.listed...), append(add, now...)
		}
	}
	if len(remove)+len(add) == 0 {
		return v.list
	}
	return update(byName(), v.list, remove, add)
}

// matching adds to out the families whose action matches the glob.
func (v *view) matching(s *catalog.Snapshot, glob string, out map[capability.Action]*family) {
	prefix := glob
	if i := strings.IndexAny(glob, "*?"); i >= 0 {
		prefix = glob[:i]
	}
	var last capability.Action
	for e := range s.EntriesFrom(func(e *catalog.Entry) int { return cmp.Compare(string(e.Action), prefix) }) {
		if !strings.HasPrefix(string(e.Action), prefix) {
			break
		}
		if e.Action == last {
			continue
		}
		last = e.Action
		if fam := v.families[e.Action]; fam != nil && rules.Glob(glob, string(e.Action)) {
			out[e.Action] = fam
		}
	}
}
