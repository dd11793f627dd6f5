package sources

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/extensions/manifest"
	"github.com/junctor-run/junctor/internal/extensions/permission"
)

// LocalExtension is an installed extension package: its manifest.json and
// commands/commands.yaml, read by whoever installs (runner spec, sections 3.2 and
// 3.3), and where its life has got to.
type LocalExtension struct {
	ID          string
	Name        string
	Version     string
	Status      string   // INSTALLED, INSTALLING, FAILED, UNINSTALLED
	Enabled     bool     // by the operator
	Permissions []string // permissions_required
	Commands    []LocalCommand
	// AgentVisible names the actions (<command>.<action>, or "all") that the operator
	// showed to agents when the extension was enabled (decision R19).
	AgentVisible []string
	Origin       string // "" is workspace
}

// LocalCommand is one slash command of commands.yaml.
type LocalCommand struct {
	Name          string        `json:"name" yaml:"name"` // with or without its slash
	Summary       string        `json:"summary" yaml:"summary"`
	Description   string        `json:"description" yaml:"description"`
	Runner        string        `json:"runner" yaml:"runner"`
	DefaultAction string        `json:"default_action" yaml:"default_action"`
	Aliases       []string      `json:"aliases" yaml:"aliases"`
	Permissions   []string      `json:"permissions" yaml:"permissions"`
	Confirm       string        `json:"confirm" yaml:"confirm"`
	Actions       []LocalAction `json:"actions" yaml:"actions"`
}

// LocalAction is one action of a command.
type LocalAction struct {
	ID           string     `json:"id" yaml:"id"`
	Runner       string     `json:"runner" yaml:"runner"`
	Summary      string     `json:"summary" yaml:"summary"`
	Description  string     `json:"description" yaml:"description"`
	Permissions  []string   `json:"permissions" yaml:"permissions"`
	Confirm      string     `json:"confirm" yaml:"confirm"` // never, first, always
	AgentVisible bool       `json:"agentVisible" yaml:"agentVisible"`
	Args         []LocalArg `json:"args" yaml:"args"`
	Flags        []LocalArg `json:"flags" yaml:"flags"`
}

// LocalArg is an argument or a flag of an action.
type LocalArg struct {
	Name        string   `json:"name" yaml:"name"`
	Description string   `json:"description" yaml:"description"`
	Type        string   `json:"type" yaml:"type"` // string (default), integer, number, boolean
	Required    bool     `json:"required" yaml:"required"`
	Choices     []string `json:"choices" yaml:"choices"`
	Pattern     string   `json:"pattern" yaml:"pattern"`
	TakesValue  *bool    `json:"takes_value" yaml:"takes_value"` // of a flag: false makes it a switch
}

// stageOf is the catalog's stage of an extension's status (decision R9). ok is
// false where nothing of it is left.
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

// EffectOf is the highest effect among permissions (decision R22), by the one
// table of them.
func EffectOf(permissions []string) capability.Effect { return permission.Effect(permissions) }

// Local maps an installed extension: each slash command to a control command, each
// action that agents may see to a tool <command>.<action> besides. An uninstalled
// one has no contributions and is to be withdrawn.
func Local(l LocalExtension) (manifest.Extension, []string, error) {
	var r report
	x := manifest.Extension{ID: l.ID, Name: title(l.Name, l.ID), Version: l.Version, Origin: cmp.Or(l.Origin, "workspace")}
	stage, there := stageOf(l.Status, l.Enabled)
	if x.Stage = stage; !there {
		return finish(x, &r)
	}
	if stage == capability.StageApproved {
		off := false
		x.Enabled = &off
	}
	doubled := twice(l.Commands, func(c LocalCommand) string { return bare(c.Name) })
	for i := range l.Commands {
		c := &l.Commands[i]
		name := bare(c.Name)
		if id, exact := naming.Slug(name); !exact || doubled[name] || len(id) > 40 {
			r.add("command %s is dropped: its name is none, or is given twice", shown(c.Name))
			continue
		}
		x.Contributions = append(x.Contributions, command(c, "command."+name, name))
		var others []string
		for _, alias := range c.Aliases {
			other := bare(alias)
			if id, exact := naming.Slug(other); !exact || len(id) > 40 || slices.Contains(others, other) || other == name {
				r.add("alias %s of %s is dropped: it is no name, or is given twice", shown(alias), name)
				continue
			}
			others = append(others, other)
			x.Contributions = append(x.Contributions, command(c, "command."+name+"."+other, other))
		}
		twins := twice(c.Actions, func(a LocalAction) string { return a.ID })
		for j := range c.Actions {
			a := &c.Actions[j]
			if _, exact := naming.Slug(a.ID); !exact || twins[a.ID] || len(a.ID) > 64 {
				r.add("action %s of %s is dropped: its id is none, or is given twice", shown(a.ID), name)
				continue
			}
			qualified := name + "." + a.ID
			if a.AgentVisible || slices.Contains(l.AgentVisible, "all") || slices.Contains(l.AgentVisible, qualified) {
				x.Contributions = append(x.Contributions, l.tool(c, a, qualified))
			}
		}
	}
	return finish(x, &r)
}

// bare is a command's name without its slash, in lower case.
func bare(name string) string {
	return strings.ToLower(strings.TrimPrefix(strings.TrimSpace(name), "/"))
}

func command(c *LocalCommand, id, name string) manifest.Contribution {
	return manifest.Contribution{
		ID: id, Kind: "capability.control-command", Title: title("/" + name), Description: text(cmp.Or(c.Description, c.Summary)), Permissions: c.Permissions,
		Command: &manifest.Command{
			Name: name, Description: text(cmp.Or(c.Summary, c.Description)), AcceptsArgs: true, UsageDoc: "docs/USAGE.md", Runner: c.Runner, ActionID: c.DefaultAction,
		},
	}
}

func (l *LocalExtension) tool(c *LocalCommand, a *LocalAction, qualified string) manifest.Contribution {
	permissions := l.Permissions
	if len(c.Permissions) > 0 {
		permissions = c.Permissions
	}
	if len(a.Permissions) > 0 {
		permissions = a.Permissions
	}
	effect := EffectOf(permissions)
	if strings.HasPrefix(cmp.Or(a.Runner, c.Runner), "exec.") && !effect.AtLeast(capability.EffectExternal) {
		effect = capability.EffectExternal // it starts a program, whatever it says
	}
	return manifest.Contribution{
		ID: "tool." + qualified, Kind: "capability.agent-tool", Title: title(a.Summary, c.Summary, qualified), Description: text(cmp.Or(a.Description, a.Summary, c.Description, c.Summary)),
		Permissions: permissions,
		Tool: &manifest.Tool{
			Name: qualified, Effect: effect, InputSchema: inputOf(a), Approval: cmp.Or(a.Confirm, c.Confirm) == "always",
		},
	}
}

// inputOf makes the schema of an action's arguments and flags.
func inputOf(a *LocalAction) json.RawMessage {
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
	add := func(arg LocalArg, flag bool) {
		if !validName(arg.Name) {
			return
		}
		p := property{Type: "string", Description: text(arg.Description)}
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
	if err != nil { // only for what is not UTF-8
		return json.RawMessage(`{"type":"object"}`)
	}
	return doc
}
