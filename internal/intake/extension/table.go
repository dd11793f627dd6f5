package extension

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/command"
	"github.com/junctor-run/junctor/internal/intake/commandfile"
)

// Table is the package's commands as they are routed, under the names it declares.
// Generation tells one content of the package from another.
func (p *Package) Table(enabled bool, generation string) []command.Command {
	out := make([]command.Command, 0, len(p.Commands))
	for i := range p.Commands {
		c := &p.Commands[i]
		x := command.Command{
			Name: strings.TrimPrefix(c.Name, "/"), Declared: c.Name, Extension: p.Manifest.ID, ExtensionName: p.Manifest.Name, Enabled: enabled, Hidden: c.Hidden,
			Capability: c.Capability, Summary: c.Summary, Description: c.Description, DefaultAction: c.DefaultAction, Permissions: c.Permissions,
			Generation: generation, Usage: p.Manifest.Docs.Usage,
		}
		for _, alias := range c.Aliases {
			x.Aliases = append(x.Aliases, strings.TrimPrefix(alias, "/"))
		}
		for _, e := range c.Examples {
			x.Examples = append(x.Examples, command.Example(e))
		}
		for j := range c.Actions {
			x.Actions = append(x.Actions, p.action(c, &c.Actions[j]))
		}
		out = append(out, x)
	}
	return out
}

func (p *Package) action(c *commandfile.Command, a *commandfile.Action) command.Action {
	seconds := cmp.Or(a.TimeoutSec, p.Manifest.Limits.TimeoutSec)
	x := command.Action{
		ID: a.ID, Aliases: a.Aliases, Runner: a.Runner, Description: cmp.Or(a.Description, a.Summary), Sensitive: a.Sensitive, Argv: a.Argv, Template: a.Command,
		Permissions: p.needed(c, a), Confirm: cmp.Or(a.Confirm, c.Confirm), Timeout: time.Duration(seconds) * time.Second, Priority: a.Priority,
		Cache: time.Duration(a.CacheSec) * time.Second, Stdin: a.Stdin, BaseURL: a.BaseURL, Headers: a.Headers, DSNRef: a.DSNRef, AgentVisible: a.AgentVisible,
		Output: command.Output{Format: a.Output.Format, MaxBytes: cmp.Or(a.Output.MaxBytes, p.Manifest.Limits.MaxOutputBytes), Store: a.Output.Store},
	}
	for k := range a.Args {
		x.Args = append(x.Args, argument(&a.Args[k], a.Sensitive))
	}
	for k := range a.Flags {
		f := &a.Flags[k]
		x.Flags = append(x.Flags, command.Flag{
			Arg: argument(f, a.Sensitive), Short: f.Short, TakesValue: f.TakesValue == nil && f.Type != "boolean" || f.TakesValue != nil && *f.TakesValue,
		})
	}
	return x
}

// argument of a list; what is sensitive has no default to be shown.
func argument(a *commandfile.Argument, sensitive []string) command.Arg {
	x := command.Arg{
		Name: a.Name, Description: a.Description, Required: a.Required, Choices: a.Choices, Pattern: a.Pattern, Type: a.Type, AllowDash: a.AllowDash,
	}
	if a.Default != nil && !slices.Contains(sensitive, a.Name) {
		x.Default = *a.Default
	}
	return x
}
