package extensions

// This file turns the installed extensions into the table that the command router is built from:
// the declarations of commands.yaml under the names that the operator catalog registered, enabled
// or not, so that the error for a command of a disabled extension explains how to enable it. It has
// no side effects; Service.changed builds a new table after each change.

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/extensions/operator"
)

// commandTable returns the commands of all readable extensions under their registered names, and
// the names that several enabled extensions declare. A disabled extension's command whose name is
// taken becomes <extension>-<name>, or is left out if that is taken too.
func commandTable(v *lifecycle.View) ([]command.Command, []catalog.Conflict) {
	var active []declaration.Extension
	for i := range v.Extensions {
		x := &v.Extensions[i]
		if x.Package == nil || !x.Enabled {
			continue
		}
		if declared, _, err := x.Package.Extension(string(x.Status), true, nil); err == nil {
			active = append(active, declared)
		}
	}
	registered := operator.New(declaration.Resolve(active, nil))
	names := make(map[string]string) // runtime id → registered name
	for _, row := range registered.Rows() {
		if row.Row == "command" {
			names[row.RuntimeID] = strings.TrimPrefix(row.Title, "/")
		}
	}
	taken := make(map[string]bool)
	for _, name := range registered.Names() {
		taken[name] = true
	}
	for _, c := range registered.Conflicts() {
		taken[c.Key] = true // no extension gets a name in conflict, so disabled ones do not either
	}
	idle := make(map[string]int) // number of disabled extensions that declare a name
	eachCommand(v, func(x *lifecycle.Loaded, c *extension.Command) {
		if !x.Enabled {
			idle[bareName(c.Name)]++
		}
	})
	var out []command.Command
	eachCommand(v, func(x *lifecycle.Loaded, c *extension.Command) {
		one := commandOf(x, c)
		if x.Enabled {
			runtime := x.ID + "/command." + one.Declared
			if one.Name = names[runtime]; one.Name == "" {
				return // the catalog refused it and reports the reason
			}
			for _, alias := range c.Aliases {
				if name := names[runtime+"."+bareName(alias)]; name != "" {
					one.Aliases = append(one.Aliases, name)
				}
			}
		} else if one.Name = one.Declared; taken[one.Name] || idle[one.Declared] > 1 {
			one.Name = labelOf(x.ID) + "-" + one.Declared
			if taken[one.Name] {
				return // still found as /name:extension once it is enabled
			}
			taken[one.Name] = true
		}
		out = append(out, one)
	})
	return out, registered.Conflicts()
}

// eachCommand calls f for every command of every readable extension.
func eachCommand(v *lifecycle.View, f func(*lifecycle.Loaded, *extension.Command)) {
	for i := range v.Extensions {
		if x := &v.Extensions[i]; x.Package != nil {
			for j := range x.Package.Commands {
				f(x, &x.Package.Commands[j])
			}
		}
	}
}

func bareName(name string) string { return strings.TrimPrefix(name, "/") }

// labelOf converts an extension's id to the first part of a command name.
func labelOf(id string) string {
	out := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(id))
	if out[0] < 'a' || out[0] > 'z' {
		return "x" + out // a name must begin with a letter
	}
	return out
}

// commandOf converts one command. The caller sets its Name and Aliases.
func commandOf(x *lifecycle.Loaded, c *extension.Command) command.Command {
	out := command.Command{
		Declared: bareName(c.Name), Extension: x.ID, ExtensionName: x.Name, Enabled: x.Enabled, Hidden: c.Hidden,
		Capability: capabilityOf(x.Package, c), Summary: c.Summary,
		Description: c.Description, DefaultAction: c.DefaultAction, Permissions: x.Package.Permissions, Generation: x.TreeHash,
		Usage: x.Package.Manifest.Docs.Usage,
	}
	for _, e := range c.Examples {
		out.Examples = append(out.Examples, command.Example(e))
	}
	visible := x.Package.AgentActions(x.AgentVisible)
	for i := range c.Actions {
		out.Actions = append(out.Actions, actionOf(x.Package, c, &c.Actions[i], visible))
	}
	return out
}

// capabilityOf returns the capability of a command: the declared one, its own name if a
// capability of the manifest refers to it, or else the extension's id.
func capabilityOf(p *extension.Package, c *extension.Command) string {
	if c.Capability != "" {
		return c.Capability
	}
	for i := range p.Manifest.Capabilities {
		if k := &p.Manifest.Capabilities[i]; k.Command == c.Name || strings.HasPrefix(k.Name, "/") && extension.CommandName(k.Name) == c.Name {
			return c.Name
		}
	}
	return p.Manifest.ID
}

// actionOf converts one action. Confirm defaults to the command's, Timeout to the
// package's limit; visible lists the actions (command.action) that agents may call.
func actionOf(p *extension.Package, c *extension.Command, a *extension.Action, visible []string) command.Action {
	out := command.Action{
		ID: a.ID, Aliases: a.Aliases, Runner: a.Runner, Description: a.Description, Sensitive: a.Sensitive, Argv: a.Argv, Template: a.Command,
		Permissions: slices.Concat(a.Permissions, c.Permissions), Confirm: a.Confirm, Timeout: seconds(a.TimeoutSec), Priority: a.Priority,
		Cache: seconds(a.CacheSec),
		Stdin: a.Stdin, Output: command.Output(a.Output), BaseURL: a.BaseURL, Headers: a.Headers, DSNRef: a.DSNRef,
		AgentVisible: slices.Contains(visible, bareName(c.Name)+"."+a.ID),
	}
	if out.Script, out.SHA256 = a.Script, a.ScriptSHA256; a.Runner == "exec.entrypoint" {
		out.Script = a.Entrypoint
	}
	out.Confirm = cmp.Or(out.Confirm, c.Confirm)
	if out.Timeout == 0 { // a timeout of the call takes precedence; the engine applies it
		out.Timeout = seconds(p.Manifest.Limits.TimeoutSec)
	}
	for i := range a.Args {
		out.Args = append(out.Args, argumentOf(&a.Args[i]))
	}
	for i := range a.Flags {
		f := &a.Flags[i]
		takes := f.Type != "boolean"
		if f.TakesValue != nil {
			takes = *f.TakesValue
		}
		out.Flags = append(out.Flags, command.Flag{Arg: argumentOf(f), Short: f.Short, TakesValue: takes})
	}
	return out
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func argumentOf(a *extension.Argument) command.Arg {
	out := command.Arg{
		Name: a.Name, Description: a.Description, Required: a.Required, Choices: a.Choices, Pattern: a.Pattern, Type: a.Type,
		AllowDash: a.AllowDash,
	}
	if a.Default != nil {
		out.Default = *a.Default
	}
	return out
}
