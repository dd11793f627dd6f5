package mcpserve

import (
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// appTool returns the tool that a page of an MCP server means by a name. A page calls the tools of
// its own server by the names that these have there, and a client passes the call on to us. The
// name is accepted if exactly one listed tool of the servers with pages has it, and the tool is for
// pages. Otherwise appTool returns nil.
func (s *Surface) appTool(c caller, name string) *compile.Action {
	shown := s.listOf(c).shown
	pages := make(map[string]bool) // ids of modules
	var found []*compile.Action
	for _, a := range shown {
		if len(a.Entries) != 1 {
			continue
		}
		app := mcpwire.AppOf(a.Entries[0].Contribution.Definition)
		if app.Resource != "" {
			pages[a.Entries[0].Module.ID] = true
		}
		if app.Page && declaredName(a) == name {
			found = append(found, a)
		}
	}
	var one *compile.Action
	for _, a := range found {
		if !pages[a.Entries[0].Module.ID] {
			continue
		}
		if one != nil {
			return nil
		}
		one = a
	}
	return one
}
