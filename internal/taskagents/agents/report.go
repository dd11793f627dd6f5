package agents

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// ReportKind is the subject of a report.
type ReportKind string

// The kinds.
const (
	Submitted  ReportKind = "submitted"  // a text was accepted and a turn starts
	ToolStart  ReportKind = "tool_start" // a tool is about to start, and may be refused
	Permission ReportKind = "permission" // a tool may be allowed or refused
	Complete   ReportKind = "complete"   // a turn ended
	Failure    ReportKind = "failure"    // a turn failed
	Waiting    ReportKind = "waiting"    // the program waits for an answer or for input
	Activity   ReportKind = "activity"   // the program works
	Decision   ReportKind = "decision"   // a decision for the other sessions
	Note       ReportKind = "note"       // no consequences
	Unknown    ReportKind = "unknown"
)

// Report is the content of one body.
type Report struct {
	Kind  ReportKind
	Event string // the event's name as sent

	Session    string // the session's id, if the body has it
	Token      string // the program's id of the conversation
	Transcript string // path of the program's transcript
	Cwd        string

	Fact     *detect.Fact // state of the program, or nil
	Response string       // the last message of a turn that ended

	Tool  string
	Input json.RawMessage // of the tool, or nil
	Call  string          // the program's id of the tool call, or ""

	Failure string   // the kind of a failure: billing, auth, rate_limit, …
	Prompts []string // prompts of a completed turn, from Codex's notify
	Text    string   // of a decision
}

// body holds the members that are read from hooks of all programs.
type body struct {
	HookEventName string `json:"hook_event_name"`
	Event         string `json:"event"`
	Type          string `json:"type"` // of Codex's notify
	SessionID     string `json:"session_id"`
	Session       string `json:"sessionId"`
	ThreadID      string `json:"thread-id"`
	Transcript    string `json:"transcript_path"`
	Cwd           string `json:"cwd"`

	Tool      string          `json:"tool_name"`
	Call      string          `json:"tool_use_id"`
	ToolInput json.RawMessage `json:"tool_input"`
	Details   json.RawMessage `json:"details"` // of Gemini's notifications

	LastMessage    string            `json:"last_assistant_message"`
	LastNotified   string            `json:"last-assistant-message"`
	PromptResponse string            `json:"prompt_response"`
	Inputs         []string          `json:"input-messages"`
	Background     []json.RawMessage `json:"background_tasks"`
	TaskID         string            `json:"task_id"`

	Error            string          `json:"error"`
	NotificationType string          `json:"notification_type"`
	Message          string          `json:"message"`
	Data             json.RawMessage `json:"data"`
}

// ReadReport parses a hook's body. Texts are cut to their bounds. Errors: too_large for more
// than MaxBody; invalid_input, reason not_json or no_event.
func ReadReport(data []byte) (Report, error) {
	const op = "hooks"
	if len(data) > MaxBody {
		return Report{}, capability.Errorf(capability.CodeTooLarge, op, "a hook's body may have %d MiB at most", MaxBody>>20)
	}
	var b body
	if err := jsonx.Unmarshal(data, &b); err != nil {
		return Report{}, capability.Wrap(capability.CodeInvalidInput, op, "the body is not a JSON object of a hook", err).With("not_json", "")
	}
	event := b.HookEventName
	if event == "" {
		event = b.Event
	}
	if event == "" && b.Type == "agent-turn-complete" {
		event = b.Type
	}
	if event == "" {
		return Report{}, capability.Errorf(capability.CodeInvalidInput, op, "the body has neither hook_event_name nor event").With("no_event", "")
	}
	r := Report{
		Kind: Unknown, Event: clip(event, maxName), Session: clip(b.Session, maxName), Token: clip(b.SessionID, maxName),
		Cwd: clip(b.Cwd, maxPath), Transcript: clip(b.Transcript, maxPath),
	}
	if r.Token == "" {
		r.Token = clip(b.ThreadID, maxName)
	}
	r.read(&b)
	if r.Fact != nil {
		r.Fact.Class, r.Fact.Source = 2, "hook:"+r.Event
	}
	return r, nil
}

// read sets the kind and the members of the report by the name of its event.
func (r *Report) read(b *body) {
	busy := func(phase string) { r.Fact = &detect.Fact{State: detect.Busy, Phase: phase} }
	switch r.Event {
	case "UserPromptSubmit", "BeforeAgent":
		r.Kind = Submitted
		busy(detect.PhaseThinking)
		r.Fact.Begin = true
	case "PreToolUse", "BeforeTool":
		r.Kind, r.Tool, r.Input, r.Call = ToolStart, clip(b.Tool, maxName), b.ToolInput, clip(b.Call, maxName)
		busy(detect.PhaseTool + ":" + r.Tool)
	case "PostToolUse", "AfterTool", "PostToolUseFailure":
		r.Kind, r.Tool = Activity, clip(b.Tool, maxName)
		busy(detect.PhaseThinking)
	case "PermissionRequest":
		r.Kind, r.Tool, r.Input = Permission, clip(b.Tool, maxName), b.ToolInput
	case "TaskCompleted":
		if b.TaskID != "" { // an item of the program's own list, not the turn
			r.Kind = Activity
			return
		}
		r.complete(b)
	case "AfterAgent":
		// Gemini CLI 0.61.0 also sends it after a turn that failed or was interrupted, without
		// an answer. The screen then shows how the turn ended.
		if r.Kind = Activity; b.PromptResponse != "" && b.PromptResponse != "[no response text]" {
			r.complete(b)
		}
	case "Stop", "agent-turn-complete":
		r.complete(b)
	case "StopFailure":
		r.Kind, r.Failure, r.Response = Failure, failure(b.Error), clip(b.LastMessage, maxResponse)
		r.Fact = &detect.Fact{State: detect.Ready, Phase: "failed:" + r.Failure, Text: r.Response}
	case "Notification":
		r.notification(b)
	case "PreCompact", "PreCompress":
		r.Kind = Activity
		busy(detect.PhaseCompacting)
	case "SubagentStart", "SubagentStop":
		r.Kind = Activity
	case "SessionStart", "SessionEnd": // the end of the process is observed directly
		r.Kind = Note
	case "decision":
		r.Kind, r.Text = Decision, decision(b)
	}
}

// complete makes r the report of a completed turn, or of activity if the program still has
// background tasks.
func (r *Report) complete(b *body) {
	r.Kind = Complete
	if slices.ContainsFunc(b.Background, func(raw json.RawMessage) bool { return len(raw) > 0 }) {
		r.Kind = Activity
		r.Fact = &detect.Fact{State: detect.Busy, Phase: detect.PhaseThinking}
		return
	}
	for _, text := range []string{b.LastMessage, b.PromptResponse, b.LastNotified} {
		if r.Response == "" {
			r.Response = clip(text, maxResponse)
		}
	}
	for _, text := range b.Inputs[:min(len(b.Inputs), 20)] {
		r.Prompts = append(r.Prompts, clip(text, maxResponse))
	}
	r.Fact = &detect.Fact{State: detect.Ready, Phase: detect.PhaseDone}
}

// notification sets the state that a notification reports; other notifications are notes.
func (r *Report) notification(b *body) {
	r.Kind = Waiting
	switch b.NotificationType {
	case "permission_prompt", "ToolPermission":
		r.Fact = &detect.Fact{State: detect.Blocked, Kind: "permission", Text: b.Message}
		r.Input = b.Details
	case "elicitation_dialog":
		r.Fact = &detect.Fact{State: detect.Blocked, Kind: "question", Text: b.Message}
	case "idle_prompt":
		r.Fact = &detect.Fact{State: detect.Ready}
	default:
		r.Kind = Note
	}
}

// failure converts a program's name of a failure to the one that states use; an unknown one
// is reduced to lower-case letters, digits and underscores.
func failure(name string) string {
	switch name {
	case "billing_error":
		return "billing"
	case "authentication_failed", "authentication_error", "permission_error":
		return "auth"
	case "rate_limit", "rate_limit_error":
		return "rate_limit"
	case "", "unknown":
		return "unknown"
	}
	word := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' {
			return c
		}
		return -1
	}, strings.ToLower(clip(name, 40)))
	if word == "" {
		return "unknown"
	}
	return word
}

func decision(b *body) string {
	var data struct {
		Text string `json:"text"`
	}
	if jsonx.Unmarshal(b.Data, &data) != nil {
		return ""
	}
	return text.CutRunes(text.OneLine(data.Text), maxDecision)
}

// Verdict is a decision about a tool.
type Verdict struct {
	Allow  bool
	Deny   bool   // if neither is set, the program asks on its screen
	Ask    bool   // it must ask, also if it would allow the use itself
	Reason string // for the agent; of a denial
	By     sessions.By
}

// Reply returns the JSON answer to a report. It never prevents a program from stopping, and
// allows a tool only in answer to a request for permission.
func (r Report) Reply(v Verdict) json.RawMessage {
	var doc any = struct{}{}
	type specific struct {
		Name     string `json:"hookEventName"`
		Decision any    `json:"decision,omitempty"`
		Before   string `json:"permissionDecision,omitempty"`
		Reason   string `json:"permissionDecisionReason,omitempty"`
	}
	type out struct {
		Specific specific `json:"hookSpecificOutput"`
	}
	switch {
	case r.Kind == Unknown:
		doc = map[string]string{"status": "ignored", "reason": "unknown_event"}
	case r.Kind == Decision:
		doc = map[string]string{"status": "ok"}
	case r.Event == "PermissionRequest" && (v.Allow || v.Deny):
		behavior := map[string]string{"behavior": "allow"}
		if v.Deny {
			behavior = map[string]string{"behavior": "deny", "message": v.Reason}
		}
		doc = out{specific{Name: r.Event, Decision: behavior}}
	case r.Event == "PreToolUse" && v.Deny:
		doc = out{specific{Name: r.Event, Before: "deny", Reason: v.Reason}}
	case r.Event == "PreToolUse" && v.Ask:
		doc = out{specific{Name: r.Event, Before: "ask", Reason: v.Reason}}
	case r.Event == "BeforeTool" && v.Deny:
		doc = map[string]string{"decision": "deny", "reason": v.Reason}
	case r.Event == "BeforeTool" && v.Ask:
		doc = map[string]string{"decision": "ask", "reason": v.Reason}
	case r.Event == "AfterTool":
		doc = map[string]bool{"continue": true}
	}
	data, err := json.Marshal(doc)
	if err != nil {
		return json.RawMessage("{}") // it is made of strings
	}
	return data
}

// clip cuts a text to most bytes, without splitting a character.
func clip(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:most], "")
}
