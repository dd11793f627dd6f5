package extension

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/extensions/declaration"
	"github.com/junctor-run/junctor/internal/extensions/plan"
)

// Screen holds what an operator sees before an extension may run, in order of importance: what the
// package may do and the author's reasons, what it contains, and what it did during installation.
type Screen struct {
	ID          string             `json:"id"`
	Name        string             `json:"name"`
	Version     string             `json:"version"`
	Description string             `json:"description,omitempty"`
	Author      string             `json:"author,omitempty"`
	License     string             `json:"license,omitempty"`
	TreeHash    string             `json:"tree_hash"` // the package that the consent covers
	Source      string             `json:"source"`    // upload, folder or the address
	Permissions []ScreenPermission `json:"permissions"`
	Hosts       []string           `json:"network_hosts,omitempty"`
	AnyHost     bool               `json:"network_unfiltered,omitempty"`
	Binaries    []ScreenBinary     `json:"binaries,omitempty"`
	Secrets     []ScreenSecret     `json:"secrets,omitempty"`
	Environment []string           `json:"environment,omitempty"` // variables of the server that its programs receive
	Commands    []ScreenCommand    `json:"commands"`
	Steps       []ScreenStep       `json:"install_steps,omitempty"`
	Uninstall   []ScreenStep       `json:"uninstall_steps,omitempty"`
	Tier        string             `json:"sandbox_tier"`
	// Limits are the package's own; the operator's limits apply as well.
	Limits Limits `json:"limits,omitzero"`
	// More lists what the earlier consent does not cover; nil without one.
	More []string `json:"asks_for_more,omitempty"`
}

// ScreenPermission is one permission with the author's reason.
type ScreenPermission struct {
	Name    string           `json:"name"`
	Grants  string           `json:"grants"`
	Risk    declaration.Risk `json:"risk"`
	Reason  string           `json:"reason,omitempty"` // the author's words
	Actions []string         `json:"actions,omitempty"`
}

// ScreenBinary is a program that the package runs: its own, by hash, or one of the machine.
type ScreenBinary struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256,omitempty"` // "" for one of the machine
}

// ScreenSecret is a stored value that a program receives in its environment, or with
// which an action accesses its database.
type ScreenSecret struct {
	Variable string `json:"variable"`
	From     string `json:"from"`
}

// ScreenCommand is a slash command with its actions.
type ScreenCommand struct {
	Name    string         `json:"name"`
	Summary string         `json:"summary"`
	Actions []ScreenAction `json:"actions"`
}

// ScreenAction is one action. If AgentTool is set, agents may call it without an operator.
type ScreenAction struct {
	ID          string `json:"id"`
	Description string `json:"description,omitempty"`
	AgentTool   bool   `json:"agent_tool,omitempty"`
	Confirm     string `json:"confirm,omitempty"`
}

// ScreenStep is a step of a plan, with its whole shell command.
type ScreenStep struct {
	ID   string `json:"id"`
	What string `json:"what"`
	When string `json:"when,omitempty"`
}

// NewScreen returns the screen of a package. chosen are the actions that the operator
// offers to agents in addition to those that the package marks.
func NewScreen(p *Package, treeHash, source, tier string, chosen []string) Screen {
	m := &p.Manifest
	s := Screen{
		ID: m.ID, Name: m.Name, Version: m.Version, Description: textOf(m.Description), Author: textOf(m.Author), License: textOf(m.License),
		TreeHash: treeHash, Source: source,
		Tier: tier, Limits: m.Limits, Permissions: []ScreenPermission{}, Environment: m.Env.Pass, Steps: screenSteps(p.Plan.Steps),
		Uninstall: screenSteps(p.Plan.Uninstall),
	}
	for _, name := range p.Permissions {
		row, _ := declaration.LookupPermission(name)
		why := m.Permissions[name]
		s.Permissions = append(s.Permissions, ScreenPermission{
			Name: name, Grants: row.Grants, Risk: row.Risk, Reason: why.Reason,
			Actions: why.Actions,
		})
	}
	if slices.Contains(p.Permissions, "network") {
		s.Hosts = slices.Sorted(slices.Values(m.Network.Allow))
	}
	s.AnyHost = slices.Contains(p.Permissions, "network.raw")
	for _, t := range m.Tools {
		s.Binaries = append(s.Binaries, ScreenBinary{t.Name, t.SHA256})
	}
	for _, name := range p.External() {
		s.Binaries = append(s.Binaries, ScreenBinary{Name: name})
	}
	for _, name := range slices.Sorted(maps.Keys(m.Env.Secrets)) {
		s.Secrets = append(s.Secrets, ScreenSecret{name, m.Env.Secrets[name]})
	}
	for i := range p.Commands {
		for j := range p.Commands[i].Actions {
			if a := &p.Commands[i].Actions[j]; a.DSNRef != "" {
				s.Secrets = append(s.Secrets, ScreenSecret{"the database of " + p.Commands[i].Name + " " + a.ID, a.DSNRef})
			}
		}
	}
	tools := p.AgentActions(chosen)
	for i := range p.Commands {
		c := &p.Commands[i]
		one := ScreenCommand{Name: c.Name, Summary: c.Summary}
		for j := range c.Actions {
			a := &c.Actions[j]
			one.Actions = append(one.Actions, ScreenAction{
				ID: a.ID, Description: cmp.Or(a.Description, a.Summary), Confirm: cmp.Or(a.Confirm, c.Confirm),
				AgentTool: slices.Contains(tools, strings.TrimPrefix(c.Name, "/")+"."+a.ID),
			})
		}
		s.Commands = append(s.Commands, one)
	}
	return s
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func screenSteps(list []plan.Step) []ScreenStep {
	var out []ScreenStep
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
		out = append(out, ScreenStep{s.ID, what, s.When})
	}
	return out
}

// Asks reports whether the package needs a consent: one without permissions, secrets,
// variables and tools for agents needs none.
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

// Consent records what an operator agreed to, so that an upgrade that asks for more is noticed.
type Consent struct {
	By          string    `json:"by"`
	At          time.Time `json:"at"`
	TreeHash    string    `json:"tree_hash"` // of the package on the screen
	Permissions []string  `json:"permissions"`
	Hosts       []string  `json:"network_hosts,omitempty"`
	Binaries    []string  `json:"binaries,omitempty"` // programs of the machine
	Secrets     []string  `json:"secrets,omitempty"`  // VARIABLE=setting
	Environment []string  `json:"environment,omitempty"`
	AgentTools  []string  `json:"agent_tools,omitempty"`
	// Confirmed are the actions that ask each time or the first time, as "always /command action".
	Confirmed []string `json:"confirmed,omitempty"`
}

// Consent returns the record of an operator's consent to the whole screen.
func (s *Screen) Consent(by string, at time.Time) Consent {
	g := Consent{
		By: by, At: at.UTC(), TreeHash: s.TreeHash, Permissions: []string{}, Hosts: s.Hosts, Environment: s.Environment,
		AgentTools: s.agentTools(), Confirmed: s.confirmed(),
	}
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

// Beyond describes what the screen shows and the consent does not cover. The package's
// own programs do not count, because the permissions limit them in every version.
func (g *Consent) Beyond(s *Screen) (more []string) {
	now := s.Consent("", time.Time{})
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
	actions := s.actions()
	for _, had := range g.Confirmed {
		when, action, _ := strings.Cut(had, " ")
		asks := slices.Contains(now.Confirmed, "always "+action) || when == "first" && slices.Contains(now.Confirmed, had)
		if slices.Contains(actions, action) && !asks {
			more = append(more, action+" without asking "+asking(when))
		}
	}
	return more
}

// asking describes when an action with a value of confirm asks; "" if it does not.
func asking(confirm string) string {
	return map[string]string{"always": "each time", "first": "the first time"}[confirm]
}

// ScreenChanges lists what an operator needs to know about the difference between two
// versions of a package.
type ScreenChanges struct {
	From        string     `json:"from_version"`
	To          string     `json:"to_version"`
	FromHash    string     `json:"from_tree_hash"`
	ToHash      string     `json:"to_tree_hash"`
	Permissions Difference `json:"permissions,omitzero"`
	Hosts       Difference `json:"network_hosts,omitzero"`
	Binaries    Difference `json:"binaries,omitzero"` // name, or name@sha256
	Commands    Difference `json:"commands,omitzero"` // /command action
	AgentTools  Difference `json:"agent_tools,omitzero"`
	Confirmed   Difference `json:"confirmed,omitzero"` // as in Consent
	Steps       Difference `json:"install_steps,omitzero"`
}

// Difference lists what was added and what was removed.
type Difference struct {
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
}

// CompareScreens returns the changes from one screen to another.
func CompareScreens(from, to *Screen) ScreenChanges {
	return ScreenChanges{
		From: from.Version, To: to.Version, FromHash: from.TreeHash, ToHash: to.TreeHash,
		Permissions: difference(from.Consent("", time.Time{}).Permissions, to.Consent("", time.Time{}).Permissions),
		Hosts:       difference(from.Hosts, to.Hosts), Binaries: difference(from.binaries(), to.binaries()),
		Commands:   difference(from.actions(), to.actions()),
		AgentTools: difference(from.agentTools(), to.agentTools()), Confirmed: difference(from.confirmed(), to.confirmed()),
		Steps: difference(from.steps(), to.steps()),
	}
}

func difference(from, to []string) (b Difference) {
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

// confirmed returns the actions that ask, as in [Consent].
func (s *Screen) confirmed() (out []string) {
	for _, c := range s.Commands {
		for _, a := range c.Actions {
			if asking(a.Confirm) != "" {
				out = append(out, a.Confirm+" "+c.Name+" "+a.ID)
			}
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
