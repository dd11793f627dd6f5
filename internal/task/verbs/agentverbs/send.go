package agentverbs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/framework/detect"
	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/internal/task/adapter"
	"github.com/junctor-run/junctor/internal/task/agents"
	"github.com/junctor-run/junctor/internal/task/choice"
	"github.com/junctor-run/junctor/internal/task/sessions"
	"github.com/junctor-run/junctor/internal/task/verbs/utterance"
	"github.com/junctor-run/junctor/internal/task/verbs/verb"
)

// Started is what SPAWN_AGENT answers.
type Started struct {
	SessionID string       `json:"sessionId"`
	AgentType string       `json:"agentType"`
	Workdir   string       `json:"workdir"`
	Status    detect.State `json:"status"`
	ThreadID  string       `json:"threadId,omitempty"` // of the task, where one was given
	Notes     []string     `json:"notes,omitempty"`
}

// spawn is SPAWN_AGENT (task-agents, section 7.2). Several tasks are CREATE_TASK's.
func (v *Verbs) spawn(ctx context.Context, c verb.Call, params json.RawMessage) (verb.Result, error) {
	var p struct {
		AgentType string         `json:"agentType"`
		Workdir   string         `json:"workdir"`
		Task      string         `json:"task"`
		Memory    string         `json:"memoryContent"`
		Preset    adapter.Preset `json:"approvalPreset"`
		Keep      bool           `json:"keepAliveAfterComplete"`
		Label     string         `json:"label"`
	}
	if err := verb.Params(params, &p); err != nil {
		return verb.Fail(err, nil)
	}
	task := verb.First(p.Task, c.Message)
	if len(utterance.Tasks(task)) > 1 && v.cfg.Tracker != nil {
		return v.cfg.Tasks.Create(ctx, c, params)
	}
	wanted, err := verb.Program(p.AgentType)
	if err != nil {
		return verb.Fail(err, nil)
	}
	ask := choice.Task{Text: task, Workdir: p.Workdir != ""}
	if wanted = v.cfg.Tasks.Pick(ctx, wanted, ask); wanted == "" {
		state := v.cfg.State(ctx, ask)
		at := slices.IndexFunc(state.Frameworks, func(f choice.Framework) bool { return f.ID == state.Preferred.ID && f.Installed })
		if at < 0 {
			return verb.Fail(verb.AgentNotInstalled.Errorf("no agent's program is installed").With("agent_not_installed", "junctor frameworks doctor says how to install one"), nil)
		}
		wanted = state.Preferred.ID
	}
	tracked := task != "" && v.cfg.Tracker != nil
	// The coordinator ends the sessions it looks after, once their work was checked.
	meta, err := jsonx.Marshal(map[string]any{"label": p.Label, "keepAliveAfterComplete": p.Keep || tracked, "keepAlive": p.Keep})
	if err != nil {
		return verb.Fail(err, nil)
	}
	i, err := v.cfg.Agents.Spawn(ctx, c.By, agents.Request{
		AgentType: string(wanted), Workdir: verb.First(p.Workdir, v.folder(c)), Task: task, Memory: p.Memory, Preset: p.Preset, Metadata: meta, Name: p.Label,
	})
	if err != nil {
		return verb.Fail(err, nil)
	}
	out := Started{SessionID: i.ID, AgentType: i.AgentType, Workdir: i.Workdir, Status: i.Status, Notes: i.Notes}
	if tracked {
		// The program runs: that nobody looks after its task is no reason to end it.
		if out.ThreadID, err = v.cfg.Tracker.Track(ctx, c.By, i.ID, task, verb.Cut(verb.First(p.Label, task), verb.MaxLabel)); err != nil {
			out.Notes = append(out.Notes, "nobody looks after its task: "+capability.AsError(err).Message)
		}
	}
	v.cfg.Talks.Remember(c, func(t *verb.Talk) {
		t.SessionID, t.Workdir = i.ID, i.Workdir
		if out.ThreadID != "" {
			t.ThreadID = out.ThreadID
		}
	})
	return verb.Result{Success: true, Text: fmt.Sprintf("Started %s in %s (%s).", i.AgentType, i.Workdir, i.ID), Data: out}, nil
}

// folder is where an agent works that is given no folder: the conversation's, else the
// newest workspace in which nobody works, else "", a new one.
func (v *Verbs) folder(c verb.Call) string {
	if dir := v.cfg.Talks.Last(c).Workdir; dir != "" || v.cfg.Workspaces == nil {
		return dir
	}
	live := v.cfg.Agents.List()
	for _, w := range v.cfg.Workspaces() {
		if !slices.ContainsFunc(live, func(i agents.Info) bool { return i.Live() && i.Workdir == w.Path }) {
			return w.Path
		}
	}
	return ""
}

// send is SEND_TO_AGENT (task-agents, section 7.3).
func (v *Verbs) send(ctx context.Context, c verb.Call, params json.RawMessage) (verb.Result, error) {
	var p struct {
		SessionID string     `json:"sessionId"`
		Input     string     `json:"input"`
		Keys      verb.Texts `json:"keys"`
		Task      string     `json:"task"`
		Label     string     `json:"label"`
	}
	if err := verb.Params(params, &p); err != nil {
		return verb.Fail(err, nil)
	}
	text := verb.First(p.Input, p.Task)
	if text == "" && len(p.Keys) == 0 {
		return verb.Fail(verb.NoInput.Errorf("there is nothing to send: give input, task or keys"), nil)
	}
	t, err := v.session(c, p.SessionID)
	if err != nil {
		return verb.Fail(err, nil)
	}
	i := t.Info()
	if !i.Live() {
		return verb.Fail(verb.SessionNotFound.Errorf("the agent %s has ended", i.ID), nil)
	}
	v.cfg.Talks.Remember(c, func(talk *verb.Talk) { talk.SessionID, talk.Workdir = i.ID, i.Workdir })
	if text == "" {
		if err := t.Keys(ctx, p.Keys); err != nil {
			return verb.Fail(err, nil)
		}
		return verb.Result{Success: true, Text: "Pressed " + strings.Join(p.Keys, ", ") + ".", Data: map[string]any{"sessionId": i.ID}}, nil
	}
	if i.Status == detect.Blocked && i.Blocker != nil {
		label, ok := answer(i.Blocker, text)
		if !ok {
			return blocked(i)
		}
		if err := t.Choose(ctx, i.Blocker.Fingerprint, label); err != nil {
			return verb.Fail(err, map[string]any{"sessionId": i.ID, "dialog": i.Blocker})
		}
		return verb.Result{Success: true, Text: fmt.Sprintf("Answered %q.", label), Data: map[string]any{"sessionId": i.ID, "answered": label}}, nil
	}
	return v.tell(ctx, c, t, text, p.Task, p.Label)
}

// tell types a text; task is not empty where it is a task of its own.
func (v *Verbs) tell(ctx context.Context, c verb.Call, t Terminal, text, task, label string) (verb.Result, error) {
	data := map[string]any{"sessionId": t.Info().ID}
	if task != "" && v.cfg.Tracker != nil {
		thread, err := v.cfg.Tracker.Track(ctx, c.By, t.Info().ID, task, verb.Cut(verb.First(label, task), verb.MaxLabel))
		if err != nil {
			return verb.Fail(err, data)
		}
		data["threadId"] = thread
		v.cfg.Talks.Remember(c, func(talk *verb.Talk) { talk.ThreadID = thread })
	}
	outcome, err := t.Send(ctx, text, false)
	if i := t.Info(); err != nil && capability.AsError(err).Reason == "agent_blocked" && i.Blocker != nil {
		return blocked(i) // the dialog opened meanwhile
	}
	if err != nil {
		return verb.Fail(err, data)
	}
	data["outcome"] = outcome
	if outcome == sessions.ButBlocked {
		data["dialog"] = t.Info().Blocker
		return verb.Result{Success: true, Text: "Sent. The agent now waits for an answer.", Data: data}, nil
	}
	return verb.Result{Success: true, Text: "Sent.", Data: data}, nil
}

func blocked(i sessions.Info) (verb.Result, error) {
	hint := "press keys"
	if len(i.Blocker.Options) > 0 {
		hint = "answer with one of: " + strings.Join(i.Blocker.Options, " | ")
	}
	err := verb.AgentBlocked.Errorf("the agent waits for an answer to another question: %s", verb.Cut(i.Blocker.Prompt, 500))
	return verb.Fail(err.With("agent_blocked", hint), map[string]any{"sessionId": i.ID, "dialog": i.Blocker})
}

// answer is the option of a dialog that a text means: by its label, its number, the only
// label that begins with the text, or yes and no.
func answer(b *detect.Blocker, text string) (label string, ok bool) {
	text = strings.ToLower(strings.TrimSpace(strings.TrimRight(text, ".! ")))
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > len(b.Options) {
			return "", false
		}
		return b.Options[n-1], true
	}
	switch text {
	case "y":
		text = "yes"
	case "n":
		text = "no"
	case "":
		return "", false
	}
	var begins []string
	for _, option := range b.Options {
		if strings.EqualFold(strings.TrimSpace(option), text) {
			return option, true
		}
		if strings.HasPrefix(strings.ToLower(strings.TrimSpace(option)), text) {
			begins = append(begins, option)
		}
	}
	if len(begins) != 1 {
		return "", false
	}
	return begins[0], true
}
