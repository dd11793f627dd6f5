package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

type commandGroup struct {
	title    string
	commands []*cobra.Command
}

// commands returns the commands of the help, in its groups and order.
func (a *app) commands() []commandGroup {
	return []commandGroup{
		{"Getting started", []*cobra.Command{a.serveCommand(), a.setupCommand(), a.consoleCommand(), a.doctorCommand(), a.homeCommand()}},
		{"Providers", []*cobra.Command{
			a.mcpCommand(),
			with(a.extensionsCommand(), a.runCommand(), a.runsCommand()),
			with(a.endpointsCommand(), renamed(a.connectCommand(), "add"), renamed(a.disconnectCommand(), "remove"), a.endpointServeCommand()),
			with(a.nodesCommand(), a.callCommand(), a.heldCommand(), a.skillCommand(), renamed(a.nodeCommand(), "device")),
			with(a.catalogCommand(), append(a.showingCommands(), a.modulesCommand())...),
		}},
		{"Calls and tasks", []*cobra.Command{
			a.invokeCommand(), with(a.chatCommand(), append(a.agentVerbs(), a.channelsCommand())...),
			with(a.tasksCommand(), a.workspacesCommand(), a.frameworksCommand()), a.toolsCommand(),
		}},
		{"Rules and the record", []*cobra.Command{
			with(a.policyCommand(), a.grantsCommand()), a.approvalsCommand(), with(a.tokensCommand(), a.loginCommand(), a.logoutCommand()),
			a.secretsCommand(),
			with(a.auditCommand(), a.eventsCommand(), a.usageCommand()),
		}},
		{"For programs and tests", []*cobra.Command{
			a.group("debug", "Run what other programs and tests use",
				a.conformanceCommand(), a.reportCommand(), a.sandboxCommand(), a.canaryCommand(), a.childCommand()),
		}},
	}
}

// homeCommand returns the commands about the home as a whole.
func (a *app) homeCommand() *cobra.Command {
	return a.group("home", "Back up, restore, check, configure and stop the server of a home",
		a.applyCommand(), a.backupCommand(), a.restoreCommand(), a.healthCommand(), a.configCommand(), a.stopCommand())
}

// formerCommands returns the commands by the names that they had at the top level, and apply and
// those of signing in, which are expected there. They are hidden and stay as they were, because scripts and
// client configurations use them.
func (a *app) formerCommands() []*cobra.Command {
	return append(a.showingCommands(),
		a.callCommand(), a.runCommand(), a.runsCommand(), a.heldCommand(), a.modulesCommand(), a.connectCommand(), a.disconnectCommand(),
		a.endpointCommand(), a.conformanceCommand(), a.reportCommand(), a.nodeCommand(), a.skillCommand(), a.upstreamsCommand(),
		a.agentCommand(), a.applyCommand(), a.channelsCommand(), a.loginCommand(), a.logoutCommand(),
		a.grantsCommand(), a.confirmationsCommand(), a.eventsCommand(), a.workspacesCommand(), a.frameworksCommand(), a.childCommand(),
		a.configCommand(), a.healthCommand(), a.backupCommand(), a.restoreCommand(), a.sandboxCommand(), a.stopCommand(), a.versionCommand())
}

// with adds subcommands to a command and returns it.
func with(c *cobra.Command, sub ...*cobra.Command) *cobra.Command {
	c.AddCommand(sub...)
	return c
}

// renamed changes the name of a command and returns it.
func renamed(c *cobra.Command, name string) *cobra.Command {
	_, rest, _ := strings.Cut(c.Use, " ")
	c.Use = strings.TrimSpace(name + " " + rest)
	return c
}

// group returns a command that only has subcommands (verbs).
func (a *app) group(use, short string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use + " COMMAND", Short: short, Args: cobra.ArbitraryArgs, RunE: a.noVerb}
	c.AddCommand(verbs...)
	return c
}

// noVerb runs a group without a subcommand: it prints the help, or with --json fails. An unknown
// subcommand fails with invalid_input and suggestions.
func (a *app) noVerb(cmd *cobra.Command, args []string) error {
	help := "see: " + cmd.CommandPath() + " --help"
	switch {
	case len(args) > 0:
		if near := suggestions(cmd, args[0]); len(near) > 0 {
			help = "did you mean: " + strings.Join(near, ", or ")
		}
		return capability.Errorf(capability.CodeInvalidInput, "", "%q is not a command of %s", args[0], cmd.CommandPath()).With("", help)
	case a.version && !cmd.HasParent():
		return a.versionCommand().RunE(cmd, nil)
	case a.json:
		return capability.Errorf(capability.CodeInvalidInput, "", "%s needs a command after it", cmd.CommandPath()).With("", help)
	}
	return cmd.Help()
}

// suggestions returns the commands whose name is near an unknown word: the nearest of cmd, otherwise
// those of all levels, beginning with the uppermost.
func suggestions(cmd *cobra.Command, word string) []string {
	if near := nearest(cmd, word); len(near) > 0 {
		return near[:1]
	}
	var out []string
	level := []*cobra.Command{cmd.Root()}
	for len(level) > 0 {
		var next []*cobra.Command
		for _, c := range level {
			for _, near := range nearest(c, word) {
				if !slices.Contains(out, near) && len(out) < maxSuggestions {
					out = append(out, near)
				}
			}
			next = append(next, c.Commands()...)
		}
		level = slices.DeleteFunc(next, func(c *cobra.Command) bool { return !c.IsAvailableCommand() })
	}
	return out
}

// nearest returns the paths of the subcommands of c whose name is near a word.
func nearest(c *cobra.Command, word string) (paths []string) {
	c.SuggestionsMinimumDistance = 2
	for _, name := range c.SuggestionsFor(word) {
		paths = append(paths, c.CommandPath()+" "+name)
	}
	return paths
}
