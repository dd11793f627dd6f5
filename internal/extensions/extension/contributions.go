package extension

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// report collects diagnostics; take returns them sorted.
type report struct{ list []string }

func (r *report) add(format string, args ...any) {
	if len(r.list) < maxDiagnostics {
		r.list = append(r.list, fmt.Sprintf(format, args...))
	}
}

func (r *report) take() []string {
	slices.Sort(r.list)
	return r.list
}

// finish sorts the contributions, validates the extension and returns the diagnostics.
func finish(x declaration.Extension, r *report) (declaration.Extension, []string, error) {
	slices.SortFunc(x.Contributions, func(a, b declaration.Contribution) int { return cmp.Compare(a.ID, b.ID) })
	if err := x.Check(); err != nil {
		return declaration.Extension{}, r.take(), err
	}
	return x, r.take(), nil
}

// validName reports whether name is 1 to 128 bytes of UTF-8 that can be displayed unchanged.
func validName(name string) bool {
	if name == "" || len(name) > maxArgName || !utf8.ValidString(name) || strings.TrimSpace(name) != name {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError
	})
}

// twice returns the names that are given more than once.
func twice[T any](list []T, name func(T) string) map[string]bool {
	count, out := make(map[string]int), make(map[string]bool)
	for _, item := range list {
		if n := name(item); n != "" {
			if count[n]++; count[n] > 1 {
				out[n] = true
			}
		}
	}
	return out
}

// title and summary cut the package's texts to the limits of a contribution.
func title(parts ...string) string { return declaration.Clean(cmp.Or(parts...), 120) }

func summary(s string) string { return declaration.Clean(s, 1024) }

// shown quotes a foreign name for a diagnostic.
func shown(name string) string { return fmt.Sprintf("%.80q", name) }

// stageOf returns the catalog's stage for an extension's status. ok is false if the
// extension was uninstalled.
func stageOf(status string, enabled bool) (stage string, ok bool) {
	switch strings.ToUpper(status) {
	case "INSTALLED", "":
		if enabled {
			return capability.StageActivated, true
		}
		return capability.StageApproved, true
	case "FAILED":
		return capability.StageFailed, true
	case "INSTALLING":
		return capability.StageDeclared, true
	}
	return "", false
}

// Extension converts the package to a declaration for the catalog: each slash command to a control
// command, and each action that agents may see to a tool <command>.<action>. status is INSTALLED,
// INSTALLING, FAILED or UNINSTALLED; an uninstalled package has no contributions. agentVisible
// names the actions, as <command>.<action> or "all", that the operator showed to agents. A command
// or action without a usable name is dropped, with a diagnostic.
func (p *Package) Extension(status string, enabled bool, agentVisible []string) (declaration.Extension, []string, error) {
	var r report
	m := &p.Manifest
	x := declaration.Extension{ID: m.ID, Name: title(m.Name, m.ID), Version: m.Version, Origin: "workspace"}
	stage, there := stageOf(status, enabled)
	if x.Stage = stage; !there {
		return finish(x, &r)
	}
	if stage == capability.StageApproved {
		off := false
		x.Enabled = &off
	}
	doubled := twice(p.Commands, func(c Command) string { return bare(c.Name) })
	for i := range p.Commands {
		c := &p.Commands[i]
		name := bare(c.Name)
		if id, exact := naming.Slug(name); !exact || doubled[name] || len(id) > 40 {
			r.add("command %s is dropped: its name is invalid, or is given twice", shown(c.Name))
			continue
		}
		x.Contributions = append(x.Contributions, commandContribution(c, "command."+name, name))
		var others []string
		for _, alias := range c.Aliases {
			other := bare(alias)
			if id, exact := naming.Slug(other); !exact || len(id) > 40 || slices.Contains(others, other) || other == name {
				r.add("alias %s of %s is dropped: it is not a name, or is given twice", shown(alias), name)
				continue
			}
			others = append(others, other)
			x.Contributions = append(x.Contributions, commandContribution(c, "command."+name+"."+other, other))
		}
		twins := twice(c.Actions, func(a Action) string { return a.ID })
		for j := range c.Actions {
			a := &c.Actions[j]
			if _, exact := naming.Slug(a.ID); !exact || twins[a.ID] || len(a.ID) > 64 {
				r.add("action %s of %s is dropped: its id is invalid, or is given twice", shown(a.ID), name)
				continue
			}
			qualified := name + "." + a.ID
			if a.AgentVisible || slices.Contains(agentVisible, "all") || slices.Contains(agentVisible, qualified) {
				x.Contributions = append(x.Contributions, p.tool(c, a, qualified))
			}
		}
	}
	return finish(x, &r)
}

// bare returns a command's name without its slash, in lower case.
func bare(name string) string {
	return strings.ToLower(strings.TrimPrefix(strings.TrimSpace(name), "/"))
}

func commandContribution(c *Command, id, name string) declaration.Contribution {
	return declaration.Contribution{
		ID: id, Kind: "capability.control-command", Title: title("/" + name), Description: summary(cmp.Or(c.Description, c.Summary)),
		Permissions: c.Permissions,
		Command: &declaration.Command{
			Name: name, Description: summary(cmp.Or(c.Summary, c.Description)), AcceptsArgs: true, UsageDoc: "docs/USAGE.md", Runner: c.Runner,
			ActionID: c.DefaultAction,
		},
	}
}

// tool returns the agent tool of an action. Its effect is that of its permissions, but at
// least external for a runner that starts a program.
func (p *Package) tool(c *Command, a *Action, qualified string) declaration.Contribution {
	permissions := p.Permissions
	if len(c.Permissions) > 0 {
		permissions = c.Permissions
	}
	if needed := p.needed(c, a); len(needed) > 0 {
		permissions = needed
	}
	effect := declaration.PermissionsEffect(permissions)
	if strings.HasPrefix(cmp.Or(a.Runner, c.Runner), "exec.") && !effect.AtLeast(capability.EffectExternal) {
		effect = capability.EffectExternal // it starts a program
	}
	return declaration.Contribution{
		ID: "tool." + qualified, Kind: "capability.agent-tool", Title: title(a.Summary, c.Summary, qualified),
		Description: summary(cmp.Or(a.Description, a.Summary, c.Description, c.Summary)),
		Permissions: permissions,
		Tool: &declaration.Tool{
			Name: qualified, Effect: effect, InputSchema: inputOf(a), Approval: cmp.Or(a.Confirm, c.Confirm) == "always",
		},
	}
}

// inputOf returns the JSON Schema of an action's arguments and flags.
func inputOf(a *Action) json.RawMessage {
	type property struct {
		Type        string   `json:"type"`
		Description string   `json:"description,omitempty"`
		Enum        []string `json:"enum,omitempty"`
		Pattern     string   `json:"pattern,omitempty"`
	}
	schema := struct {
		Type       string              `json:"type"`
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required,omitempty"`
		Additional bool                `json:"additionalProperties"`
	}{Type: "object", Properties: make(map[string]property)}
	add := func(arg Argument, flag bool) {
		if !validName(arg.Name) {
			return
		}
		p := property{Type: "string", Description: summary(arg.Description)}
		switch arg.Type {
		case "integer", "number", "boolean":
			p.Type = arg.Type
		case "int":
			p.Type = "integer"
		case "bool":
			p.Type = "boolean"
		}
		if flag && arg.TakesValue != nil && !*arg.TakesValue {
			p.Type = "boolean"
		}
		if p.Type == "string" {
			p.Enum, p.Pattern = arg.Choices, arg.Pattern
		}
		schema.Properties[arg.Name] = p
		if arg.Required && !slices.Contains(schema.Required, arg.Name) {
			schema.Required = append(schema.Required, arg.Name)
		}
	}
	for _, arg := range a.Args {
		add(arg, false)
	}
	for _, arg := range a.Flags {
		add(arg, true)
	}
	slices.Sort(schema.Required)
	doc, err := jsonx.Marshal(schema)
	if err != nil { // only for text that is not UTF-8
		return json.RawMessage(`{"type":"object"}`)
	}
	return doc
}
