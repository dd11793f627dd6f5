// Package launch starts and controls the work of threads. It creates a thread with its plan,
// selects a folder and a program for each part, starts the sessions and registers them with
// the coordinator. It also pauses, stops, resumes and continues threads, and replaces failed
// programs. The coordinator supervises running sessions; the registry stores the plans.
package launch

import (
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/validation"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Task is the work that a caller requests.
type Task struct {
	Title      string // "": the beginning of the request
	Request    string // the user's own words
	Kind       row.ThreadKind
	Parts      []Part // 1 to MaxParts
	Repo       string // repository to clone, with a worktree for each part; or ""
	BaseBranch string
	Workdir    string    // working directory of all parts; "": a worktree or a new folder
	Checkout   *Checkout // the user's own repository in place of Repo and Workdir, or nil
	Brief      string    // the plan that all parts share
	Memory     string
	Preset     programs.Preset
	Mode       sessions.Mode // of all parts; "": the default
	Criteria   []string
	Validator  *validation.Custom
	RoomID     string
	WorldID    string
	UserID     string
	Metadata   json.RawMessage // an object, or empty
}

// Part is the work of one agent.
type Part struct {
	Task      string
	AgentType string // "": the best program for it
	Label     string // "": the beginning of its task
	DependsOn []int  // indexes of parts that must be done before
}

// Created is a new thread. Parts that wait for other parts have status planned, those that
// wait for a slot have status ready, and those that could not be started have an Error.
type Created struct {
	ThreadID string      `json:"threadId"`
	Task     string      `json:"task,omitempty"` // id of the thread's Task
	Agents   []Started   `json:"agents"`
	Checkout *InCheckout `json:"checkout,omitempty"`
}

// Started is the state of a part and its session.
type Started struct {
	SessionID string            `json:"sessionId,omitempty"`
	AgentType programs.Name     `json:"agentType,omitempty"`
	Workdir   string            `json:"workdir,omitempty"`
	Label     string            `json:"label"`
	Status    string            `json:"status"` // the session's, or planned, ready or failed
	Error     *capability.Error `json:"error,omitempty"`
}

// Operation is an operation on a thread.
type Operation string

// The operations.
const (
	Pause    Operation = "pause"
	Stop     Operation = "stop"
	Resume   Operation = "resume"
	Continue Operation = "continue"
	Archive  Operation = "archive"
	Reopen   Operation = "reopen"
)

// Control is a request for an operation on a thread.
type Control struct {
	ThreadID    string    `json:"threadId"`
	Operation   Operation `json:"action"`
	Note        string    `json:"note,omitempty"`
	Instruction string    `json:"instruction,omitempty"` // of Continue
	AgentType   string    `json:"agentType,omitempty"`   // of Resume and Continue; "": as before
	// Session is the session to continue; "": the newest.
	Session string `json:"-"`
	// Wait makes sessions wait for a slot if the maximal number of sessions runs, until the
	// context ends or the thread is paused or stopped.
	Wait bool `json:"-"`
}

// Controlled is the result of an operation.
type Controlled struct {
	ThreadID string           `json:"threadId"`
	Action   Operation        `json:"action"`
	Status   row.ThreadStatus `json:"status"`
	Task     string           `json:"task,omitempty"`    // id of the thread's Task
	Stopped  []string         `json:"stopped,omitempty"` // sessions
	Agents   []Started        `json:"agents,omitempty"`  // started or continued sessions
}
