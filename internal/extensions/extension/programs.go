package extension

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/core/command"
)

// Programs are those of the machine that actions run, each once, in order: what a runner
// exec.NAME names, and the first word of a template of exec.shell. The package's own are
// not among them, nor what an entrypoint of the package starts.
func (p *Package) Programs() []string {
	var out []string
	for i := range p.Commands {
		for j := range p.Commands[i].Actions {
			a := &p.Commands[i].Actions[j]
			name := ""
			switch a.Runner {
			case "exec.entrypoint", "exec.script", "exec.python_handler":
			case "exec.shell":
				if words := strings.Fields(a.Command); len(words) > 0 {
					name = strings.Trim(words[0], `"'`)
				}
			default:
				name, _ = command.ToolOf(a.Runner) // other families name none
			}
			own := slices.ContainsFunc(p.Manifest.Tools, func(t Tool) bool { return t.Name == name })
			if command.IsToolName(name) && !own {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// External are the programs of the machine that the package may run: those that actions
// run, and those that the manifest names where something of the package could start them.
func (p *Package) External() []string {
	out := p.Programs()
	if p.starts() {
		out = slices.Concat(out, p.Manifest.ExternalBins)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// starts reports that the package brings programs, which may start others.
func (p *Package) starts() bool {
	if len(p.Manifest.Tools) > 0 {
		return true
	}
	for i := range p.Commands {
		for j := range p.Commands[i].Actions {
			if p.Commands[i].Actions[j].Entrypoint != "" {
				return true
			}
		}
	}
	return false
}

// warnOfClaims tells of what the manifest says about actions and programs and is not so.
func (p *Package) warnOfClaims() {
	runs := p.Programs()
	for _, name := range p.Manifest.ExternalBins {
		if !slices.Contains(runs, name) && !p.starts() {
			p.warn("external_bins names %s, which nothing here runs", name)
		}
	}
	names := []string{}
	for i := range p.Commands {
		for j := range p.Commands[i].Actions {
			id := p.Commands[i].Actions[j].ID
			names = append(names, id, strings.TrimPrefix(p.Commands[i].Name, "/")+"."+id)
		}
	}
	for _, asked := range p.Manifest.PermissionsRequired {
		for _, id := range p.Manifest.Permissions[asked].Actions {
			if !slices.Contains(names, id) {
				p.warn("permissions says what %s needs %s for, and there is no such action", id, asked)
			}
		}
	}
}
