// Package consent is what a person is shown before an extension may run, and what
// is kept of the answer (runner spec, section 4.2; the seed's first layer of
// security). A [Screen] says in plain words what a package may do, why its author
// says it must, what it brings along and what it did while it was installed. A
// [Given] remembers what was agreed to, so that an upgrade that asks for more is
// noticed.
package consent

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/manifest"
	"github.com/junctor-run/junctor/internal/extensions/plan"
)

// Screen is what is shown, in the order in which it matters.
type Screen struct {
	ID          string       `json:"id"`
	Name        string       `json:"name"`
	Version     string       `json:"version"`
	Description string       `json:"description,omitempty"`
	Author      string       `json:"author,omitempty"`
	License     string       `json:"license,omitempty"`
	TreeHash    string       `json:"tree_hash"` // what the answer is about
	Source      string       `json:"source"`    // upload, folder or the address
	Permissions []Permission `json:"permissions"`
	Hosts       []string     `json:"network_hosts,omitempty"`
	AnyHost     bool         `json:"network_unfiltered,omitempty"`
	Binaries    []Binary     `json:"binaries,omitempty"`
	Secrets     []Secret     `json:"secrets,omitempty"`
	Environment []string     `json:"environment,omitempty"` // variables of the server it is given
	Commands    []Command    `json:"commands"`
	Steps       []Step       `json:"install_steps,omitempty"`
	Uninstall   []Step       `json:"uninstall_steps,omitempty"`
	Tier        string       `json:"sandbox_tier"`
	// Limits are those the package names; the operator's ceilings hold above them.
	Limits extension.Limits `json:"limits,omitzero"`
	// More is what is asked for beyond what was agreed to before; nil where nothing
	// was.
	More []string `json:"asks_for_more,omitempty"`
}

// Permission is one line of what it may do.
type Permission struct {
	Name    string        `json:"name"`
	Grants  string        `json:"grants"`
	Risk    manifest.Risk `json:"risk"`
	Reason  string        `json:"reason,omitempty"` // the author's words
	Actions []string      `json:"actions,omitempty"`
}

// Binary is a program it runs: its own, by hash, or one of the machine.
type Binary struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256,omitempty"` // "" for one of the machine
}

// Secret is a stored value that a program gets in its environment, or that an
// action reaches its database with.
type Secret struct {
	Variable string `json:"variable"`
	From     string `json:"from"`
}

// Command is a slash command with its actions.
type Command struct {
	Name    string   `json:"name"`
	Summary string   `json:"summary"`
	Actions []Action `json:"actions"`
}

// Action is one action; AgentTool says that agents may call it on their own.
type Action struct {
	ID          string `json:"id"`
	Description string `json:"description,omitempty"`
	AgentTool   bool   `json:"agent_tool,omitempty"`
	Confirm     string `json:"confirm,omitempty"`
}

// Step is a step of a plan, with the text a shell reads.
type Step struct {
	ID   string `json:"id"`
	What string `json:"what"`
	When string `json:"when,omitempty"`
}

// New makes the screen of a package. chosen are the actions that the operator
// would show to agents besides those the package marks.
func New(p *extension.Package, treeHash, source, tier string, chosen []string) Screen {
	m := &p.Manifest
	s := Screen{
		ID: m.ID, Name: m.Name, Version: m.Version, Description: value(m.Description), Author: value(m.Author), License: value(m.License), TreeHash: treeHash, Source: source,
		Tier: tier, Limits: m.Limits, Permissions: []Permission{}, Environment: m.Env.Pass, Steps: steps(p.Plan.Steps), Uninstall: steps(p.Plan.Uninstall),
	}
	for _, name := range p.Permissions {
		row, _ := manifest.LookupPermission(name)
		why := m.Permissions[name]
		s.Permissions = append(s.Permissions, Permission{Name: name, Grants: row.Grants, Risk: row.Risk, Reason: why.Reason, Actions: why.Actions})
	}
	if slices.Contains(p.Permissions, "network") {
		s.Hosts = slices.Sorted(slices.Values(m.Network.Allow))
	}
	s.AnyHost = slices.Contains(p.Permissions, "network.raw")
	for _, t := range m.Tools {
		s.Binaries = append(s.Binaries, Binary{t.Name, t.SHA256})
	}
	for _, name := range p.External() {
		s.Binaries = append(s.Binaries, Binary{Name: name})
	}
	for _, name := range slices.Sorted(maps.Keys(m.Env.Secrets)) {
		s.Secrets = append(s.Secrets, Secret{name, m.Env.Secrets[name]})
	}
	for i := range p.Commands {
		for j := range p.Commands[i].Actions {
			if a := &p.Commands[i].Actions[j]; a.DSNRef != "" {
				s.Secrets = append(s.Secrets, Secret{"the database of " + p.Commands[i].Name + " " + a.ID, a.DSNRef})
			}
		}
	}
	tools := p.AgentActions(chosen)
	for i := range p.Commands {
		c := &p.Commands[i]
		one := Command{Name: c.Name, Summary: c.Summary}
		for j := range c.Actions {
			a := &c.Actions[j]
			one.Actions = append(one.Actions, Action{
				ID: a.ID, Description: cmp.Or(a.Description, a.Summary), Confirm: cmp.Or(a.Confirm, c.Confirm),
				AgentTool: slices.Contains(tools, strings.TrimPrefix(c.Name, "/")+"."+a.ID),
			})
		}
		s.Commands = append(s.Commands, one)
	}
	return s
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func steps(list []plan.Step) []Step {
	var out []Step
	for i := range list {
		s := &list[i]
		what := s.Type
		switch s.Type {
		case plan.DetectPlatform:
			what = "look up which system this is"
		case plan.Download:
			what = "download " + s.URL + " to work/" + s.Target
			if s.SHA256 != "" {
				what += ", sha256 " + s.SHA256
			} else {
				what += ", whatever is there"
			}
		case plan.ExtractZip, plan.ExtractTar:
			what = "unpack work/" + s.Source + " to work/" + s.Target
		case plan.Shell:
			what = "run in a shell: " + s.Command
		case plan.PowerShell:
			what = "run in PowerShell: " + s.Command
		case plan.VerifyCommand:
			what = "look for the program " + strings.Fields(s.Command)[0]
		case plan.VerifyHTTP:
			what = "call " + s.URL
		case plan.WriteConfig:
			what = "set its setting " + s.Key
		}
		out = append(out, Step{s.ID, what, s.When})
	}
	return out
}

// Asks reports whether there is anything to agree to: a package that asks for no
// permission needs nobody's yes.
func (s *Screen) Asks() bool {
	return len(s.Permissions) > 0 || len(s.Secrets) > 0 || len(s.Environment) > 0 || len(s.agentTools()) > 0
}

func (s *Screen) agentTools() []string {
	var out []string
	for _, c := range s.Commands {
		for _, a := range c.Actions {
			if a.AgentTool {
				out = append(out, strings.TrimPrefix(c.Name, "/")+"."+a.ID)
			}
		}
	}
	return out
}

// Given is what somebody agreed to.
type Given struct {
	By          string    `json:"by"`
	At          time.Time `json:"at"`
	TreeHash    string    `json:"tree_hash"` // of the package that was shown
	Permissions []string  `json:"permissions"`
	Hosts       []string  `json:"network_hosts,omitempty"`
	Binaries    []string  `json:"binaries,omitempty"` // programs of the machine
	Secrets     []string  `json:"secrets,omitempty"`  // VARIABLE=setting
	Environment []string  `json:"environment,omitempty"`
	AgentTools  []string  `json:"agent_tools,omitempty"`
}

// Given is the record of a yes to all that the screen shows.
func (s *Screen) Given(by string, at time.Time) Given {
	g := Given{By: by, At: at.UTC(), TreeHash: s.TreeHash, Permissions: []string{}, Hosts: s.Hosts, Environment: s.Environment, AgentTools: s.agentTools()}
	for _, p := range s.Permissions {
		g.Permissions = append(g.Permissions, p.Name)
	}
	for _, b := range s.Binaries {
		if b.SHA256 == "" {
			g.Binaries = append(g.Binaries, b.Name)
		}
	}
	for _, x := range s.Secrets {
		g.Secrets = append(g.Secrets, x.Variable+"="+x.From)
	}
	return g
}

// Beyond names, in words, what the screen shows and the yes did not cover. A
// package's own programs may change with its version: they do no more than the
// permissions let them.
func (g *Given) Beyond(s *Screen) (more []string) {
	now := s.Given("", time.Time{})
	for _, part := range []struct {
		what     string
		had, now []string
	}{
		{"permission", g.Permissions, now.Permissions},
		{"host", g.Hosts, now.Hosts},
		{"program of this machine", g.Binaries, now.Binaries},
		{"secret", g.Secrets, now.Secrets},
		{"variable", g.Environment, now.Environment},
		{"tool for agents", g.AgentTools, now.AgentTools},
	} {
		for _, x := range part.now {
			if !slices.Contains(part.had, x) {
				more = append(more, part.what+" "+x)
			}
		}
	}
	return more
}

// Changes is how one version of a package differs from another in what matters
// to whoever runs it.
type Changes struct {
	From        string  `json:"from_version"`
	To          string  `json:"to_version"`
	FromHash    string  `json:"from_tree_hash"`
	ToHash      string  `json:"to_tree_hash"`
	Permissions Between `json:"permissions,omitzero"`
	Hosts       Between `json:"network_hosts,omitzero"`
	Binaries    Between `json:"binaries,omitzero"` // name, or name@sha256
	Commands    Between `json:"commands,omitzero"` // /command action
	AgentTools  Between `json:"agent_tools,omitzero"`
	Steps       Between `json:"install_steps,omitzero"`
}

// Between lists what came and what went.
type Between struct {
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
}

// Compare says what changes from one screen to another.
func Compare(from, to *Screen) Changes {
	return Changes{
		From: from.Version, To: to.Version, FromHash: from.TreeHash, ToHash: to.TreeHash,
		Permissions: between(from.Given("", time.Time{}).Permissions, to.Given("", time.Time{}).Permissions),
		Hosts:       between(from.Hosts, to.Hosts), Binaries: between(from.binaries(), to.binaries()), Commands: between(from.actions(), to.actions()),
		AgentTools: between(from.agentTools(), to.agentTools()), Steps: between(from.steps(), to.steps()),
	}
}

func between(from, to []string) (b Between) {
	for _, x := range to {
		if !slices.Contains(from, x) {
			b.Added = append(b.Added, x)
		}
	}
	for _, x := range from {
		if !slices.Contains(to, x) {
			b.Removed = append(b.Removed, x)
		}
	}
	return b
}

func (s *Screen) binaries() (out []string) {
	for _, b := range s.Binaries {
		out = append(out, strings.TrimSuffix(b.Name+"@"+b.SHA256, "@"))
	}
	return out
}

func (s *Screen) actions() (out []string) {
	for _, c := range s.Commands {
		for _, a := range c.Actions {
			out = append(out, c.Name+" "+a.ID)
		}
	}
	return out
}

func (s *Screen) steps() (out []string) {
	for _, x := range s.Steps {
		out = append(out, x.What)
	}
	return out
}
