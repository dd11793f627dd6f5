package verbs

// This file holds what the eleven verbs of task agents have in common: their names and
// all the others they go by, who is asking and on whose behalf, what is answered, and
// the codes of what went wrong.

import (
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Name is a verb.
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

// Row is a verb: its place in the catalog, what is needed to use it, and its other names.
type Row struct {
	Name    Name
	Action  capability.Action
	Ability Ability
	// Effect is that of the catalog's registry; Timeout the default of who names none.
	Effect  capability.Effect
	Timeout time.Duration
	Aliases []string
}

const (
	shortTimeout = time.Minute
	longTimeout  = 15 * time.Minute // a large repository is cloned or pushed
)

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

// Lookup finds a verb by its name, an alias or its action, whatever the case of its
// letters. spelled is how it was called, in capitals: an alias may say more than its verb.
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

// Bounds of what is told of a conversation; what is more is not looked at.
const (
	MaxMessage    = 64 << 10 // bytes of the user's message
	MaxRecent     = 10       // messages before it
	MaxRecentText = 400      // characters of each
)

// Call is who asks for a verb, and in which conversation.
type Call struct {
	By      capability.Principal
	Session string // of By, "" for none: what was made before in it is what is meant
	Spelled string // the name that was used, as of [Lookup]
	// Message is what the user said, word for word, where the caller tells; Recent what was
	// said in the room before, the oldest first.
	Message string
	Recent  []string
	// UserRole and Connector are of the user that an agent speaks for; see [Person].
	UserRole, Connector string
	RoomID, WorldID     string
	UserID              string
	Zone                *time.Location // the user's; nil: the server's
}

// Result is what every verb answers. Text may be shown to the user; it is empty where the
// coordinator reports later, and then the caller reports nothing either.
type Result struct {
	Success bool   `json:"success"`
	Text    string `json:"text"`
	Error   Code   `json:"error,omitempty"`
	Data    any    `json:"data,omitempty"`
	Task    string `json:"task,omitempty"` // the handle of a task that was begun
}
