package agents

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// Bounds of what is kept of a body.
const (
	MaxBody     = 1 << 20
	maxName     = 128
	maxPath     = 4096
	maxResponse = 256 << 10
	maxDecision = 2000 // characters of a shared decision
)

// ReportKind states what a report is about.
type ReportKind string

// The kinds.
const (
	Submitted  ReportKind = "submitted"  // a text was taken: a turn begins
	ToolStart  ReportKind = "tool_start" // and may be refused
	Permission ReportKind = "permission" // a tool may be allowed or refused
	Complete   ReportKind = "complete"   // a turn ended
	Failure    ReportKind = "failure"    // a turn failed
	Waiting    ReportKind = "waiting"    // the program waits for an answer or for input
	Activity   ReportKind = "activity"   // it works
	Decision   ReportKind = "decision"   // something that others should know
	Note       ReportKind = "note"       // nothing follows from it
	Unknown    ReportKind = "unknown"
)

// Report is what one body says.
type Report struct {
	Kind  ReportKind
	Event string // as it was sent

	Session    string // ours, where the body names it
	Token      string // the program's own name of the conversation
	Transcript string // the program's file about it
	Cwd        string

	Fact     *detect.Fact // what it says about the state; nil: nothing
	Response string       // the last message of a turn that ended

	Tool  string
	Input json.RawMessage // of the tool; nil: none

	Failure string   // the kind of a failure: billing, auth, rate_limit, …
	Prompts []string // of a turn that ended by Codex's notify: what it was asked
	Text    string   // of a decision
}

// body holds every member that is read, of all programs.
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

// ReadReport reads a body of at most a mebibyte. Its error, invalid_input, has a reason:
// not_json, no_event.
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

func (r *Report) read(b *body) {
	busy := func(phase string) { r.Fact = &detect.Fact{State: detect.Busy, Phase: phase} }
	switch r.Event {
	case "UserPromptSubmit", "BeforeAgent":
		r.Kind = Submitted
		busy(detect.PhaseThinking)
	case "PreToolUse", "BeforeTool":
		r.Kind, r.Tool, r.Input = ToolStart, clip(b.Tool, maxName), b.ToolInput
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
		// It comes after a turn that failed or was interrupted, too, and says then that there
		// is not an answer (measured with Gemini CLI 0.61.0): how it ended is on the screen.
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
	case "SessionStart", "SessionEnd": // the process itself states when it ends
		r.Kind = Note
	case "decision":
		r.Kind, r.Text = Decision, decision(b)
	}
}

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

// failure is the word of the states for a program's word.
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

// Verdict is what is decided about a tool.
type Verdict struct {
	Allow  bool
	Deny   bool   // neither: the program asks on its screen
	Reason string // for the agent; of a denial
}

// Reply is the answer to a report: never one that keeps a program from stopping, and
// never one that allows what the program itself would still ask about, but to a request
// for permission.
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
	case r.Event == "BeforeTool" && v.Deny:
		doc = map[string]string{"decision": "deny", "reason": v.Reason}
	case r.Event == "AfterTool":
		doc = map[string]bool{"continue": true}
	}
	data, err := json.Marshal(doc)
	if err != nil {
		return json.RawMessage("{}") // it is made of strings
	}
	return data
}

// clip cuts a text at a bound, between characters.
func clip(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:most], "")
}
