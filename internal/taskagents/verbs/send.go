package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// started is the data in the result of SPAWN_AGENT.
type started struct {
	SessionID string        `json:"sessionId"`
	AgentType programs.Name `json:"agentType"`
	Workdir   string        `json:"workdir"`
	Status    string        `json:"status"`
	ThreadID  string        `json:"threadId,omitempty"` // "" if the agent has no supervised task
	Notes     []string      `json:"notes,omitempty"`
}

type spawnParams struct {
	AgentType string          `json:"agentType"`
	Workdir   string          `json:"workdir"`
	Task      string          `json:"task"`
	Memory    string          `json:"memoryContent"`
	Preset    programs.Preset `json:"approvalPreset"`
	Keep      bool            `json:"keepAliveAfterComplete"`
	Label     string          `json:"label"`
}

// spawn implements SPAWN_AGENT. An agent with a task gets a supervised thread. A list of
// several tasks is passed to CREATE_TASK.
func (v *verbs) spawn(ctx context.Context, c Call, params json.RawMessage) (Result, error) {
	var p spawnParams
	if err := Params(params, &p); err != nil {
		return Fail(err, nil)
	}
	p.Task = First(p.Task, c.Message)
	if len(listedTasks(p.Task)) > 1 && v.cfg.Launcher != nil {
		return v.create(ctx, c, params)
	}
	name, err := v.program(ctx, p)
	if err != nil {
		return Fail(err, nil)
	}
	p.Workdir = First(p.Workdir, v.folder(c))
	meta, err := jsonx.Marshal(map[string]any{"label": p.Label, "keepAliveAfterComplete": p.Keep})
	if err != nil {
		return Fail(err, nil)
	}
	out, task := started{}, ""
	if p.Task == "" || v.cfg.Launcher == nil {
		i, err := v.cfg.Agents.Spawn(ctx, c.By, agents.Request{
			AgentType: string(name), Workdir: p.Workdir, Task: p.Task, Memory: p.Memory, Preset: p.Preset, Metadata: meta, Name: p.Label,
		})
		if err != nil {
			return Fail(err, nil)
		}
		out = started{SessionID: i.ID, AgentType: name, Workdir: i.Workdir, Status: string(i.Status), Notes: i.Notes}
	} else {
		label := text.Line(First(p.Label, p.Task), MaxLabel)
		made, err := v.cfg.Launcher.Create(ctx, c.By, launch.Task{
			Title: p.Label, Request: p.Task, Parts: []launch.Part{{Task: p.Task, AgentType: string(name), Label: label}}, Workdir: p.Workdir,
			Memory: p.Memory, Preset: p.Preset,
			RoomID: c.RoomID, WorldID: c.WorldID, UserID: c.UserID, Metadata: meta,
		})
		if err == nil && len(made.Agents) == 1 && made.Agents[0].Error != nil {
			err = made.Agents[0].Error
		}
		if err != nil {
			return Fail(err, nil)
		}
		for _, a := range made.Agents {
			out = started{SessionID: a.SessionID, AgentType: a.AgentType, Workdir: a.Workdir, Status: a.Status}
		}
		out.ThreadID, task = made.ThreadID, made.Task
	}
	v.talks.Remember(c, func(t *Talk) {
		t.SessionID, t.Workdir = out.SessionID, out.Workdir
		t.ThreadID = First(out.ThreadID, t.ThreadID)
	})
	return Result{
		Success: true, Text: fmt.Sprintf("Started %s in %s (%s).", out.AgentType, out.Workdir, out.SessionID), Data: out,
		Task: task,
	}, nil
}

// program returns the program to start: the one that pick returns, otherwise the preferred one.
// It fails with AGENT_NOT_INSTALLED.
func (v *verbs) program(ctx context.Context, p spawnParams) (programs.Name, error) {
	wanted, err := Program(p.AgentType)
	if err != nil {
		return "", err
	}
	if wanted = v.pick(wanted); wanted != "" {
		return wanted, nil
	}
	state := v.cfg.Choice.State(ctx, choice.Task{Text: p.Task, Workdir: p.Workdir != ""})
	if !slices.ContainsFunc(state.Frameworks, func(f choice.Framework) bool { return f.ID == state.Preferred.ID && f.Installed }) {
		return "", AgentNotInstalled.Errorf("no agent's program is installed").With("agent_not_installed",
			"junctor frameworks list says what is missing")
	}
	return state.Preferred.ID, nil
}

// folder returns the default working directory of an agent: the conversation's last one,
// otherwise the newest workspace without live session, otherwise "" for a new folder.
func (v *verbs) folder(c Call) string {
	if dir := v.talks.Last(c).Workdir; dir != "" || v.cfg.Workspaces == nil {
		return dir
	}
	live := v.cfg.Agents.List()
	for _, w := range v.cfg.Workspaces.List() {
		if !slices.ContainsFunc(live, func(i agents.Info) bool { return i.Live() && i.Workdir == w.Path }) {
			return w.Path
		}
	}
	return ""
}

// send implements SEND_TO_AGENT: it presses keys, answers the open dialog, or sends a text.
func (v *verbs) send(ctx context.Context, c Call, params json.RawMessage) (Result, error) {
	var p struct {
		SessionID string `json:"sessionId"`
		Input     string `json:"input"`
		Keys      Texts  `json:"keys"`
		Task      string `json:"task"`
		Label     string `json:"label"`
	}
	if err := Params(params, &p); err != nil {
		return Fail(err, nil)
	}
	text := strings.TrimSpace(p.Input + "\n\n" + p.Task)
	if text == "" && len(p.Keys) == 0 {
		return Fail(NoInput.Errorf("there is nothing to send: give input, task or keys"), nil)
	}
	t, err := v.session(c, p.SessionID)
	if err != nil {
		return Fail(err, nil)
	}
	i := t.Info()
	if !i.Live() {
		return Fail(SessionNotFound.Errorf("the agent %s has ended", i.ID), nil)
	}
	v.talks.Remember(c, func(talk *Talk) { talk.SessionID, talk.Workdir = i.ID, i.Workdir })
	if text == "" {
		if err := t.Keys(ctx, p.Keys); err != nil {
			return Fail(err, nil)
		}
		return Result{Success: true, Text: "Pressed " + strings.Join(p.Keys, ", ") + ".", Data: map[string]any{"sessionId": i.ID}}, nil
	}
	if i.Status == detect.Blocked && i.Blocker != nil {
		label, ok := answer(i.Blocker, text)
		if !ok {
			return blocked(i)
		}
		if err := t.Choose(ctx, First(i.Blocker.ID, i.Blocker.Fingerprint), label); err != nil {
			return Fail(err, map[string]any{"sessionId": i.ID, "dialog": i.Blocker})
		}
		return Result{Success: true, Text: fmt.Sprintf("Answered %q.", label), Data: map[string]any{"sessionId": i.ID, "answered": label}}, nil
	}
	return v.tell(ctx, c, t, text, p.Task, p.Label)
}

// tell sends the text s to a session. If task is set, it first creates a supervised task for
// the session.
func (v *verbs) tell(ctx context.Context, c Call, t sessions.Live, s, task, label string) (Result, error) {
	data, outcome, err := map[string]any{"sessionId": t.Info().ID}, sessions.Delivered, error(nil)
	if strings.TrimSpace(task) != "" && v.cfg.Launcher != nil {
		var thread string
		if thread, err = v.cfg.Launcher.Track(ctx, c.By, t.Info().ID, s, text.Line(First(label, task), MaxLabel)); thread != "" {
			data["threadId"] = thread
			v.talks.Remember(c, func(talk *Talk) { talk.ThreadID = thread })
		}
	} else {
		outcome, err = sessions.SendSoon(ctx, t, s, false)
	}
	i := t.Info()
	if err != nil && capability.AsError(err).Reason == sessions.ReasonBlocked && i.Blocker != nil {
		return blocked(i) // the dialog opened meanwhile
	}
	if err != nil {
		return Fail(err, data)
	}
	data["outcome"] = outcome
	if outcome == sessions.ButBlocked {
		data["dialog"] = i.Blocker
		return Result{Success: true, Text: "Sent. The agent now waits for an answer.", Data: data}, nil
	}
	return Result{Success: true, Text: "Sent.", Data: data}, nil
}

// blocked returns the failure AGENT_BLOCKED with the open dialog of a session.
func blocked(i sessions.Info) (Result, error) {
	hint := "press keys"
	if len(i.Blocker.Options) > 0 {
		hint = "answer with one of: " + strings.Join(i.Blocker.Options, " | ")
	}
	err := AgentBlocked.Errorf("the agent waits for an answer to another question: %s", text.Line(i.Blocker.Prompt, 500))
	return Fail(err.With(sessions.ReasonBlocked, hint), map[string]any{"sessionId": i.ID, "dialog": i.Blocker})
}

// answer returns the option of a dialog that a text names by its number, its label, yes or no, or
// the beginning of exactly one label, ignoring case.
func answer(b *detect.Blocker, text string) (label string, ok bool) {
	a, err := b.Read(detect.Reply{Text: strings.TrimRight(text, ".! ")})
	if err != nil || a.Option < 0 {
		return "", false
	}
	return b.Options[a.Option], true
}
