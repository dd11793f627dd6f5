package verbs

// This file holds the common parts of the eleven verbs of task agents: their names and aliases,
// the call with its user and conversation, and the result.

import (
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Name is the name of a verb.
type Name string

// The verbs.
const (
	CreateTask         Name = "CREATE_TASK"
	SpawnAgent         Name = "SPAWN_AGENT"
	SendToAgent        Name = "SEND_TO_AGENT"
	ListAgents         Name = "LIST_AGENTS"
	StopAgent          Name = "STOP_AGENT"
	TaskControl        Name = "TASK_CONTROL"
	TaskHistory        Name = "TASK_HISTORY"
	TaskShare          Name = "TASK_SHARE"
	ProvisionWorkspace Name = "PROVISION_WORKSPACE"
	FinalizeWorkspace  Name = "FINALIZE_WORKSPACE"
	ManageIssues       Name = "MANAGE_ISSUES"
)

// Row describes a verb: its action in the catalog, the required ability, and its aliases.
type Row struct {
	Name    Name
	Action  capability.Action
	Ability Ability
	// Effect is that of the catalog's action. Timeout is the default for callers.
	Effect  capability.Effect
	Timeout time.Duration
	Aliases []string
}

// Table returns all verbs in the order in which they are listed.
func Table() []Row {
	const read, write, external = capability.EffectRead, capability.EffectWrite, capability.EffectExternal
	return []Row{
		{CreateTask, "task-agent.task.create", Create, write, longTimeout, []string{
			"START_CODING_TASK", "LAUNCH_CODING_TASK", "RUN_CODING_TASK", "START_AGENT_TASK", "SPAWN_AND_PROVISION", "CODE_THIS", "LAUNCH_TASK",
			"CREATE_SUBTASK",
		}},
		{SpawnAgent, "task-agent.spawn", Create, write, longTimeout, []string{
			"SPAWN_CODING_AGENT", "START_CODING_AGENT", "LAUNCH_CODING_AGENT", "CREATE_CODING_AGENT", "SPAWN_CODER", "RUN_CODING_AGENT",
			"SPAWN_SUB_AGENT", "START_TASK_AGENT", "CREATE_AGENT",
		}},
		{SendToAgent, "task-agent.send", Interact, write, longTimeout, []string{
			"SEND_TO_CODING_AGENT", "MESSAGE_CODING_AGENT", "INPUT_TO_AGENT", "RESPOND_TO_AGENT", "TELL_CODING_AGENT", "MESSAGE_AGENT",
			"TELL_TASK_AGENT",
		}},
		{ListAgents, "task-agent.list", Interact, read, shortTimeout, []string{
			"LIST_CODING_AGENTS", "SHOW_CODING_AGENTS", "GET_ACTIVE_AGENTS", "LIST_SESSIONS", "SHOW_CODING_SESSIONS", "SHOW_TASK_AGENTS",
			"LIST_SUB_AGENTS", "SHOW_TASK_STATUS",
		}},
		{StopAgent, "task-agent.stop", Interact, write, shortTimeout, []string{
			"STOP_CODING_AGENT", "KILL_CODING_AGENT", "TERMINATE_AGENT", "END_CODING_SESSION", "CANCEL_AGENT", "CANCEL_TASK_AGENT",
			"STOP_SUB_AGENT",
		}},
		{TaskControl, "task-agent.task.control", Interact, write, longTimeout, []string{
			"CONTROL_TASK", "PAUSE_TASK", "RESUME_TASK", "STOP_TASK", "CONTINUE_TASK", "ARCHIVE_TASK", "REOPEN_TASK",
		}},
		{TaskHistory, "task-agent.task.history", Interact, read, shortTimeout, []string{
			"LIST_TASK_HISTORY", "GET_TASK_HISTORY", "SHOW_TASKS", "COUNT_TASKS", "TASK_STATUS_HISTORY",
		}},
		{TaskShare, "task-agent.task.share", Interact, read, shortTimeout, []string{
			"SHARE_TASK_RESULT", "SHOW_TASK_ARTIFACT", "VIEW_TASK_OUTPUT", "CAN_I_SEE_IT", "PULL_IT_UP",
		}},
		{ProvisionWorkspace, "workspace.provision", Create, write, longTimeout, []string{
			"CREATE_WORKSPACE", "CLONE_REPO", "SETUP_WORKSPACE", "PREPARE_WORKSPACE",
		}},
		{FinalizeWorkspace, "workspace.finalize", Interact, external, longTimeout, []string{
			"COMMIT_AND_PR", "CREATE_PR", "SUBMIT_CHANGES", "FINISH_WORKSPACE",
		}},
		{ManageIssues, "workspace.issues.manage", Interact, external, shortTimeout, []string{
			"CREATE_ISSUE", "LIST_ISSUES", "CLOSE_ISSUE", "COMMENT_ISSUE", "UPDATE_ISSUE", "GET_ISSUE",
		}},
	}
}

// Lookup returns the verb with a name, alias or action, ignoring case. spelled is the given
// name in upper case, because an alias may also select an operation.
func Lookup(name string) (r Row, spelled string, ok bool) {
	spelled = strings.ToUpper(strings.NewReplacer("-", "_", " ", "_").Replace(strings.TrimSpace(name)))
	for _, r := range Table() {
		if spelled == string(r.Name) || strings.EqualFold(name, string(r.Action)) {
			return r, string(r.Name), true
		}
		for _, alias := range r.Aliases {
			if spelled == alias {
				return r, alias, true
			}
		}
	}
	return Row{}, "", false
}

// Call holds the caller of a verb and its conversation.
type Call struct {
	By      capability.Principal
	Session string // session of By, whose last results are defaults; "" if none
	Spelled string // the name that was used, as of [Lookup]
	// Message is the user's message, or "" if the caller does not pass it. Recent holds the
	// earlier messages of the room, the oldest first.
	Message string
	Recent  []string
	// UserRole and Connector belong to the user for whom an agent calls; see [Person].
	UserRole, Connector string
	RoomID, WorldID     string
	UserID              string
	Zone                *time.Location // the user's; nil: the server's
}

// Result is the result of a verb. Text may be shown to the user. It is empty if the coordinator
// reports later; then the caller should report nothing either.
type Result struct {
	Success bool   `json:"success"`
	Text    string `json:"text"`
	Error   Code   `json:"error,omitempty"`
	Data    any    `json:"data,omitempty"`
	Task    string `json:"task,omitempty"` // id of the started Task
}
