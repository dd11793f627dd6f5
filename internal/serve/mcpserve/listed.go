package mcpserve

import (
	"cmp"
	"iter"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

// Listed yields the tools of tools/list for a principal, in the order of their names, each with
// the entries that may serve it. The view is that of the principal's token.
func (s *Surface) Listed(who capability.Principal) iter.Seq2[string, []*catalog.Entry] {
	return func(yield func(string, []*catalog.Entry) bool) {
		v, ok := s.views[cmp.Or(who.View, defaultView)]
		if !ok {
			return // requests of its clients are refused
		}
		c := caller{who: who, key: viewerKey(who, v), view: v}
		agent, permitted, err := s.cfg.Engine.Agent(c.invocation())
		if err != nil {
			return
		}
		for _, t := range s.tools(c, agent, permitted) {
			if _, _, ok := toolDefinition(t.Action, t.wire); ok && !yield(t.wire, t.Entries) {
				return
			}
		}
	}
}
