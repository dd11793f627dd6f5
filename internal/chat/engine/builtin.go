package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// Builtins returns the commands that Engine answers itself. They take precedence over
// commands of extensions with the same name.
func Builtins() []command.Command {
	of := func(name, summary string, args ...command.Arg) command.Command {
		return command.Builtin(name, summary, command.Action{ID: "default", Runner: "builtin", Description: summary, Args: args})
	}
	return []command.Command{
		of("help", "List the commands, or explain one", command.Arg{Name: "command", Description: "a command's name"}),
		of("commands", "List the commands"),
		of("whoami", "Say who you are here"),
		of("new", "Forget this conversation and its results"),
		of("stop", "Stop what runs in this conversation"),
		of("subagents", "Give work to task agents, and see to it",
			command.Arg{Name: "action", Description: "list, create, spawn, send, stop, control, history, share, provision, finalize or issues"},
			command.Arg{Name: "input", Description: "what it takes, as a JSON object in quotes, or a task"}),
	}
}

// builtin carries out a built-in command and returns the text of its answer. Error, besides
// those of the command: invalid_input, reason invalid_args, if the command needs a session
// and m has none.
func (e *Engine) builtin(ctx context.Context, m Message, route *command.Route) (string, error) {
	switch route.Command.Name {
	case "help":
		if name := route.Values["command"]; name != "" {
			return e.helpFor(strings.TrimPrefix(name, "/"))
		}
		return e.cfg.Commands().Help(), nil
	case "commands":
		return e.commands(), nil
	case "whoami":
		return fmt.Sprintf("%s, role %s", m.Principal.ID, m.Principal.Role), nil
	case "subagents":
		return e.subagents(ctx, m, route)
	}
	if m.Session == "" {
		return "", capability.Errorf(capability.CodeInvalidInput, "chat", "/%s needs a session", route.Command.Name).With("invalid_args", "")
	}
	if route.Command.Name == "stop" {
		return e.stop(ctx, m)
	}
	owner := session.Owner{Principal: m.Principal.ID, Session: m.Session}
	if err := e.Forget(ctx, m.Principal, m.Session); err != nil && capability.CodeOf(err) != capability.CodeNotFound {
		return "", err
	}
	return "This conversation starts over.", e.cfg.Results.Clear(ctx, owner)
}

// helpFor returns the help on one command, with the usage document of its extension if it
// has one.
func (e *Engine) helpFor(name string) (string, error) {
	router := e.cfg.Commands()
	doc := ""
	if line, ok := command.Parse("/"+name, nil); ok {
		if c, err := router.Command(line); err == nil && c.Usage != "" && c.Extension != "" {
			var err error
			if doc, err = e.cfg.Usage(c.Extension); err != nil {
				return "", err
			}
		}
	}
	return router.HelpFor(name, doc)
}

// commands returns the enabled commands with their summaries, one on each line.
func (e *Engine) commands() string {
	var b strings.Builder
	for _, c := range e.cfg.Commands().List() {
		if c.Enabled {
			fmt.Fprintf(&b, "%s  %s\n", c.Name, c.Summary)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// stop cancels the principal's own runs of the session and returns how many they were, as a
// sentence.
func (e *Engine) stop(ctx context.Context, m Message) (string, error) {
	n := 0
	if e.cfg.Agent != nil {
		stopped, err := e.cfg.Agent.CancelSession(ctx, m.Principal.ID, m.Session)
		if err != nil {
			return "", err
		}
		if stopped {
			n++
		}
	}
	for _, run := range e.cfg.Runs.List(m.Principal, tasks.RunFilter{Session: m.Session, Limit: tasks.MaxEndedRuns}) {
		if run.Principal == m.Principal.ID && !run.Status.Over() && e.cfg.Runs.Cancel(m.Principal, run.ID) == nil {
			n++
		}
	}
	switch n {
	case 0:
		return "Nothing runs in this conversation.", nil
	case 1:
		return "Stopped 1 run.", nil
	}
	return fmt.Sprintf("Stopped %d runs.", n), nil
}
