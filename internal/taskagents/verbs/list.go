package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
)

// shown returns the word for a state in texts for users.
func shown(s detect.State) string {
	switch s {
	case detect.Ready:
		return "idle"
	case detect.Busy:
		return "working"
	}
	return string(s)
}

// sessionView is a session in a verb's data, without its metadata and resume token.
type sessionView struct {
	SessionID    string          `json:"sessionId"`
	Label        string          `json:"label,omitempty"`
	AgentType    string          `json:"agentType"`
	Workdir      string          `json:"workdir"`
	Status       string          `json:"status"`
	Phase        string          `json:"phase,omitempty"`
	Dialog       *detect.Blocker `json:"dialog,omitempty"`
	LoginURL     string          `json:"loginUrl,omitempty"`
	ThreadID     string          `json:"threadId,omitempty"`
	Preset       programs.Preset `json:"approvalPreset,omitempty"`
	Decisions    []string        `json:"decisions,omitempty"`
	StartedAt    time.Time       `json:"startedAt,omitzero"`
	LastActivity time.Time       `json:"lastActivityAt,omitzero"`
}

func view(i agents.Info) sessionView {
	return sessionView{
		SessionID: i.ID, Label: i.Name, AgentType: i.AgentType, Workdir: i.Workdir, Status: shown(i.Status), Phase: i.Phase, Dialog: i.Blocker,
		LoginURL: i.URL,
		ThreadID: i.ThreadID, Preset: i.Preset, Decisions: i.Decisions, StartedAt: i.StartedAt, LastActivity: i.LastActivity,
	}
}

// list implements LIST_AGENTS: the live sessions, the active tasks and the pending decisions.
func (v *verbs) list(ctx context.Context, _ Call, _ json.RawMessage) (Result, error) {
	views, lines := []sessionView{}, []string{}
	for _, i := range v.cfg.Agents.List() {
		if !i.Live() {
			continue
		}
		s := view(i)
		views = append(views, s)
		line := fmt.Sprintf("- %s: %s, %s, in %s", First(s.Label, s.SessionID), s.AgentType, s.Status, s.Workdir)
		if s.Dialog != nil {
			line += fmt.Sprintf("; it asks: %s", text.Line(s.Dialog.Prompt, 200))
		}
		lines = append(lines, line)
	}
	running := true
	tasks, err := v.cfg.Registry.List(ctx, threads.Filter{Active: &running, Limit: maxTasks})
	if err != nil {
		return Fail(err, nil)
	}
	waiting, err := v.cfg.Registry.Pending(ctx)
	if err != nil {
		return Fail(err, nil)
	}
	type pending struct {
		SessionID string    `json:"sessionId"`
		ThreadID  string    `json:"threadId"`
		Prompt    string    `json:"prompt"`
		Decision  jsonx.Raw `json:"decision,omitempty"`
	}
	confirmations := []pending{}
	for _, p := range waiting {
		confirmations = append(confirmations, pending{p.SessionID, p.ThreadID, text.Line(p.PromptText, 500), jsonx.Raw(p.LLMDecision)})
	}
	content := "No agent is running."
	if len(lines) > 0 {
		content = fmt.Sprintf("%d running:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	if n := len(confirmations); n > 0 {
		content += fmt.Sprintf("\n%d decisions wait to be confirmed.", n)
	}
	return Result{Success: true, Text: content, Data: map[string]any{
		"sessions": views, "tasks": Summaries(tasks), "pendingConfirmations": confirmations,
		"preferredTaskAgent": v.cfg.Choice.State(ctx, choice.Task{}).Preferred,
	}}, nil
}

// stop implements STOP_AGENT.
func (v *verbs) stop(_ context.Context, c Call, params json.RawMessage) (Result, error) {
	var p struct {
		SessionID string `json:"sessionId"`
		All       bool   `json:"all"`
	}
	if err := Params(params, &p); err != nil {
		return Fail(err, nil)
	}
	stopped := []string{}
	if p.All {
		for _, i := range v.cfg.Agents.List() {
			if !i.Live() {
				continue
			}
			if _, t, err := v.cfg.Agents.Get(i.ID); err == nil {
				t.Stop(false)
				stopped = append(stopped, i.ID)
			}
		}
		if len(stopped) == 0 {
			return Fail(NoSession.Errorf("no agent is running"), nil)
		}
		return Result{Success: true, Text: fmt.Sprintf("Stopped %d.", len(stopped)), Data: map[string]any{"stopped": stopped}}, nil
	}
	t, err := v.session(c, p.SessionID)
	if err != nil {
		return Fail(err, nil)
	}
	i := t.Info()
	if i.Live() {
		t.Stop(false)
		stopped = append(stopped, i.ID)
	}
	return Result{
		Success: true, Text: fmt.Sprintf("Stopped %s.", First(i.Name, i.ID)),
		Data: map[string]any{"sessionId": i.ID, "stopped": stopped},
	}, nil
}
