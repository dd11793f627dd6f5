package extension

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/core/command"
)

// Programs returns the programs of the machine that actions run, sorted, each once: the
// NAME of a runner exec.NAME and the first word of a template of exec.shell. The package's
// own programs, and those that an entrypoint starts, are not included.
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
				name, _ = command.ToolOf(a.Runner) // other families run no tool
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

// External returns the programs of the machine that the package may run: those that
// actions run and, if the package contains programs, those in external_bins.
func (p *Package) External() []string {
	out := p.Programs()
	if p.starts() {
		out = slices.Concat(out, p.Manifest.ExternalBins)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// starts reports whether the package contains programs, which may start others.
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

// warnOfClaims adds warnings for programs that the manifest lists and nothing runs, and
// for reasons of permissions that name unknown actions.
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
