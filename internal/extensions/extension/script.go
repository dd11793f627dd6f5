package extension

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// handlersFile is the default file of the handlers of runtime python.
const handlersFile = "commands/handlers.py"

// script sets the file that an action runs and its hash. The default is
// scripts/<command>.js or .wasm, depending on the runner. A missing, unreadable or
// wrongly named script is invalid_manifest.
func (p *Package) script(files Files, c *Command, a *Action) error {
	name, limit := a.Script, int64(maxScript)
	own := "scripts/" + strings.TrimPrefix(c.Name, "/")
	var kinds []string
	switch a.Runner {
	case "exec.entrypoint":
		name, limit = a.Entrypoint, maxTool
	case "script.js":
		name, kinds = cmp.Or(name, own+".js"), []string{".js"}
	case "script.wasm":
		name, kinds = cmp.Or(name, own+".wasm"), []string{".wasm"}
	case "exec.script":
		if name == "" && files.Has(own+".wasm") {
			name = own + ".wasm"
		}
		name, kinds = cmp.Or(name, own+".js"), []string{".js", ".wasm"}
	case "builtin", "default", "exec.python_handler":
		if p.Manifest.Runtime != "python" {
			p.warn("%s %s: the runner %s runs with runtime python alone", c.Name, a.ID, a.Runner)
			return nil
		}
		name, kinds = cmp.Or(name, handlersFile), []string{".py"}
	default:
		if name != "" {
			p.warn("%s %s: the runner %s takes no script", c.Name, a.ID, a.Runner)
		}
		a.Script = ""
		if a.Entrypoint == "" {
			return nil
		}
		name, limit = a.Entrypoint, maxTool
	}
	if kinds != nil && !slices.Contains(kinds, path.Ext(name)) {
		return bad("%s %s: the script %.120s does not end in %s", c.Name, a.ID, name, strings.Join(kinds, " or "))
	}
	if !files.Has(name) {
		return bad("%s %s: the script %.120s is missing", c.Name, a.ID, name)
	}
	sum, err := files.Sum(name, limit)
	if err != nil {
		return bad("%s %s: the script %.120s cannot be read, or has more than %d bytes", c.Name, a.ID, name, limit)
	}
	a.ScriptSHA256 = sum
	if kinds != nil {
		a.Script = name
	}
	return nil
}
