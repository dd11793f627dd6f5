package publish

import (
	"fmt"
	"iter"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
)

// viewTold holds the names last reported for one workspace and agent.
type viewTold struct {
	contests   []naming.Contest // as last seen; the compiler owns the slice
	seen       bool
	generation uint64
	conflicts  map[string]map[string]string // contest → tool → last reported name
	used       uint64
}

// Compiled reports the naming conflicts and route blocks of a compiled context: contested
// names that are new or different and the tools renamed because of them, each once for a
// workspace and agent, and verdicts that remove actions from the context. A catalog without
// news costs a comparison.
func (m *Emitter) Compiled(a *compile.Agent) {
	s, ctx := a.Snapshot(), a.Frame.Context
	m.blocked(a)
	// Workspaces and agents that the snapshot does not mention share one key.
	key := [2]string{}
	if s.Mentions("workspace", ctx.Workspace) {
		key[0] = ctx.Workspace
	}
	if s.Mentions("agent", ctx.Agent) {
		key[1] = ctx.Agent
	}
	m.mu.Lock()
	v := m.view(key)
	if v.seen && (s.Generation < v.generation || sameSlice(v.contests, a.Contests)) {
		m.mu.Unlock()
		return // unchanged, or older than the last one reported
	}
	v.seen, v.contests, v.generation = true, a.Contests, s.Generation
	var conflicts []catalog.Conflict
	var names []NamePayload
	standing := make(map[string]map[string]string, len(a.Contests))
	for i := range a.Contests {
		c := &a.Contests[i]
		id := fmt.Sprintf("%s\x00%s\x00%s\x00%s", c.Fold, c.Resolution, c.Winner, strings.Join(c.Members, "\x00"))
		was, stood := v.conflicts[id]
		if !stood {
			if m.told[id]++; m.told[id] == 1 {
				conflicts = append(conflicts, conflictOf(c))
			}
		} else if unmoved(a, c, was) {
			standing[id] = was
			continue
		}
		called := make(map[string]string)
		for tool, p := range disambiguated(a, c) {
			text := fmt.Sprint(p)
			if called[tool] = text; was[tool] != text {
				names = append(names, p)
			}
		}
		standing[id] = called
	}
	for id := range v.conflicts {
		if standing[id] == nil {
			m.forget(id)
		}
	}
	v.conflicts = standing
	m.mu.Unlock()
	for _, c := range conflicts {
		m.conflict(s.Generation, ctx, c)
	}
	for _, p := range names {
		m.emit(NameDisambiguated, s.Generation, ctx, "", p)
	}
}

func sameSlice(a, b []naming.Contest) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// view returns the reported names of a workspace and agent, creating them if necessary and
// evicting the least recently used view beyond maxViewsTold. The caller holds the lock.
func (m *Emitter) view(key [2]string) *viewTold {
	m.clock++
	v := m.views[key]
	if v == nil {
		if len(m.views) >= maxViewsTold {
			var oldest [2]string
			first := true
			for k, other := range m.views {
				if first || other.used < m.views[oldest].used {
					oldest, first = k, false
				}
			}
			for id := range m.views[oldest].conflicts {
				m.forget(id)
			}
			delete(m.views, oldest)
		}
		v = &viewTold{}
		m.views[key] = v
	}
	v.used = m.clock
	return v
}

func (m *Emitter) forget(id string) {
	if m.told[id]--; m.told[id] <= 0 {
		delete(m.told, id)
	}
}

func conflictOf(c *naming.Contest) catalog.Conflict {
	out := catalog.Conflict{
		Class: catalog.ClassPlannerName, Key: c.Fold, Members: c.Members, Resolution: string(c.Resolution),
		Winner: c.Winner,
	}
	if c.Resolution == naming.Withheld {
		out.Remediation = fmt.Sprintf("set catalog.naming.pins.%q to one of: %s", c.Fold, strings.Join(c.Members, ", "))
	}
	return out
}

// unmoved reports whether the names of an earlier contest are still those reported. All members
// but the one with the bare name have the same level, so comparing one of them suffices.
func unmoved(a *compile.Agent, c *naming.Contest, told map[string]string) bool {
	for tool, p := range disambiguated(a, c) {
		return told[tool] == fmt.Sprint(p)
	}
	return len(told) == 0
}

// disambiguated yields the tools of a contested name whose public name differs from their
// declared one.
func disambiguated(a *compile.Agent, c *naming.Contest) iter.Seq2[string, NamePayload] {
	return func(yield func(string, NamePayload) bool) {
		for _, runtime := range c.Members {
			e := claimant(a.Snapshot(), runtime)
			if e == nil {
				continue // "core"
			}
			for _, declared := range a.Wants(e) {
				if naming.Fold(declared) != c.Fold {
					continue
				}
				public, level, _ := a.NameOf(e, declared)
				p := NamePayload{DeclaredName: declared, PublicName: public, Level: level, Members: c.Members, Resolution: string(c.Resolution)}
				if public != declared && !yield(runtime+"\x00"+declared, p) {
					return
				}
			}
		}
	}
}

// claimant returns the entry of a runtime id that claims a name.
func claimant(s *catalog.Snapshot, runtime string) *catalog.Entry {
	extension, contribution, _ := strings.Cut(runtime, "/")
	if list := s.Action(capability.Action("ext." + extension + "." + contribution)); len(list) > 0 {
		return list[0]
	}
	mod, ok := s.Module(extension)
	if !ok {
		return nil
	}
	for i := range mod.Contributions {
		con := &mod.Contributions[i]
		if con.ID != contribution {
			continue
		}
		for _, e := range s.Action(con.Action) {
			if e.Runtime == runtime {
				return e
			}
		}
	}
	return nil
}

// Vetoed reports that a route augmenter cancelled a call (phase invoke). It hashes the
// conversation in p, and drops a ReasonCode that is a text instead of a code.
func (m *Emitter) Vetoed(generation uint64, ctx *capability.Context, p VetoPayload, from Call) {
	if p.Conversation != "" {
		p.Conversation = HashRef(p.Conversation)
	}
	p.ReasonCode = code(p.ReasonCode)
	m.emit(RouteVetoed, generation, ctx, from.Correlation, p)
}

// code returns reason if it is a lower-case code of at most 64 bytes, else "other". Free text is
// not sent to telemetry.
func code(reason string) string {
	if len(reason) > 64 || strings.Trim(reason, "abcdefghijklmnopqrstuvwxyz0123456789_.-") != "" {
		return "other"
	}
	return reason
}

// blocked reports the verdicts of the context, each once.
func (m *Emitter) blocked(a *compile.Agent) {
	ctx := a.Frame.Context
	for i := range ctx.Blocks {
		b := &ctx.Blocks[i]
		conversation := ""
		if ctx.Route != nil {
			conversation = ctx.Route.Ref()
		}
		for _, glob := range b.Actions {
			id := strings.Join([]string{ctx.Workspace, ctx.Agent, ctx.Session, conversation, b.By, glob, b.Reason}, "\x00")
			m.mu.Lock()
			known := m.vetos[id]
			if len(m.vetos) >= maxVetosTold {
				clear(m.vetos)
			}
			m.vetos[id] = true
			m.mu.Unlock()
			if !known {
				m.Vetoed(a.Snapshot().Generation, ctx, VetoPayload{
					Action: glob, By: b.By, ReasonCode: b.Reason, Phase: "compile",
					Conversation: conversation,
				}, Call{})
			}
		}
	}
}
