package mcpserve

import (
	"path"

	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
)

// defaultView is the view of requests that do not name one.
const defaultView = "default"

// View is a named subset of the agent catalog. Entries outside it do not exist for its
// users; a view never includes entries that rules deny.
type View struct {
	// Exposure is how much of the view is listed at once; "" is auto.
	Exposure compile.View
	// Modules are globs of module ids (path.Match) that the view includes; empty: all.
	Modules []string
	// OwnNames publishes the tools and prompts of upstreams under their names there,
	// unless another one in the view has the same name.
	OwnNames bool
	// NameLimit is the longest name in bytes, 32 to 64; 0 means 48: clients prepend
	// mcp__<server>__ and model APIs stop at 64.
	NameLimit int
	// Dotted writes names in the dialect mcp, which has dots.
	Dotted bool
}

// ownModule is the module of junctor's own tools.
const ownModule = "core"

type view struct {
	name string
	View
	spell compile.Spelling
}

func newView(name string, v View) *view {
	out := &view{name: name, View: v, spell: compile.Spelling{Dialect: naming.Strict64, Limit: compile.MaxListedName}}
	if v.NameLimit > 0 {
		out.spell.Limit = v.NameLimit
	}
	if v.Dotted {
		out.spell.Dialect = naming.MCP
	}
	return out
}

// spelling returns the form of names in the view.
func (v *view) spelling() compile.Spelling { return v.spell }

// Within returns the view's filter of modules, or nil if it includes all.
func (v View) Within() func(extension string) bool {
	if len(v.Modules) == 0 {
		return nil
	}
	return v.has
}

// namesOwn reports whether the view names the module of junctor's own tools, and so lists them.
func (v View) namesOwn() bool { return len(v.Modules) > 0 && v.has(ownModule) }

func (v View) has(extension string) bool {
	for _, glob := range v.Modules {
		if ok, err := path.Match(glob, extension); ok && err == nil {
			return true
		}
	}
	return len(v.Modules) == 0
}
