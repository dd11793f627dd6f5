package engine

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// subagents carries out /subagents, with which people call the actions that agents use to
// delegate work. Text after the action is its JSON input or, if it does not begin with "{",
// the task. It returns the text of the action's result. Error, besides those of the call:
// invalid_input, reason invalid_args, for an unknown action.
func (e *Engine) subagents(ctx context.Context, m Message, route *command.Route) (string, error) {
	const op = "execute"
	name, input := route.Values["action"], strings.TrimSpace(route.Values["input"])
	if name == "" {
		name = "list"
	}
	action, ok := capability.Action(""), false
	if e.cfg.Subagents != nil {
		action, ok = e.cfg.Subagents(name)
	}
	if !ok {
		return "", capability.Errorf(capability.CodeInvalidInput, op, "/subagents has no action %q", text.ShortenRunes(name, maxExcerpt)).
			With("invalid_args", "actions are list, create, spawn, send, stop, control, history, share, provision, finalize and issues")
	}
	switch {
	case input == "":
		input = "{}"
	case !strings.HasPrefix(input, "{"):
		task, err := jsonx.Marshal(map[string]string{"task": input})
		if err != nil {
			return "", capability.Wrap(capability.CodeInvalidInput, op, "the text cannot be written", err)
		}
		input = string(task)
	}
	reply, err := e.cfg.Runs.Do(ctx, capability.Invocation{
		ID: e.cfg.Runs.NewID(), Surface: "slash", Client: m.Client, Principal: m.Principal, Session: m.Session, Input: json.RawMessage(input),
		Target: capability.Target{Action: action},
	}, tasks.RunLabel{Command: "/subagents", Action: strings.ToLower(name)})
	if err != nil {
		return "", err
	}
	var said struct{ Text, Task string }
	if err := json.Unmarshal(reply.Result, &said); err != nil {
		return "", capability.Wrap(capability.CodeFailed, op, "the answer cannot be read", err)
	}
	if said.Text == "" && said.Task != "" {
		said.Text = "It is begun: " + said.Task
	}
	if said.Text == "" {
		said.Text = "Done."
	}
	return said.Text, nil
}
