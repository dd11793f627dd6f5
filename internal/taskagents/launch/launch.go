// Package launch begins and ends the work of threads: it makes a thread with its plan,
// gives every part a place and a program, starts the sessions and hands them to the
// coordinator; it pauses, stops, resumes and continues threads; and it finds another
// program where one has failed. What happens to sessions that run is the coordinator's;
// what a plan is, the registry's.
package launch

import (
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/validation"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// MaxParts bounds the agents of one task.
const MaxParts = 8

// Task is the work that a caller wants to have done.
type Task struct {
	Title      string // "": the beginning of the request
	Request    string // the user's own words
	Kind       row.ThreadKind
	Parts      []Part // 1 to MaxParts
	Repo       string // what is cloned, a worktree for each part; "": none
	BaseBranch string
	Workdir    string // where all parts work; "": a worktree, or a folder that is made
	Brief      string // the plan that all parts share
	Memory     string
	Preset     programs.Preset
	Criteria   []string
	Validator  *validation.Custom
	RoomID     string
	WorldID    string
	UserID     string
	Metadata   json.RawMessage // an object, or nothing
}

// Part is what one agent does.
type Part struct {
	Task      string
	AgentType string // "": the best program for it
	Label     string // "": the beginning of its task
	DependsOn []int  // parts, by their place, that have to be done first
}

// Created is a thread that was made. Parts that wait for others are planned, those that
// wait for a place are ready, and those that could not be started have an Error.
type Created struct {
	ThreadID string    `json:"threadId"`
	Task     string    `json:"task,omitempty"` // its handle
	Agents   []Started `json:"agents"`
}

// Started is a part's session.
type Started struct {
	SessionID string            `json:"sessionId,omitempty"`
	AgentType programs.Name     `json:"agentType,omitempty"`
	Workdir   string            `json:"workdir,omitempty"`
	Label     string            `json:"label"`
	Status    string            `json:"status"` // the session's, or planned, ready or failed
	Error     *capability.Error `json:"error,omitempty"`
}

// Operation is what people do to a thread.
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

// Control states what is to be done to which thread.
type Control struct {
	ThreadID    string    `json:"threadId"`
	Operation   Operation `json:"action"`
	Note        string    `json:"note,omitempty"`
	Instruction string    `json:"instruction,omitempty"` // of Continue
	AgentType   string    `json:"agentType,omitempty"`   // of Resume and Continue; "": as before
	// Wait is for places: where as many sessions run as may, what is started waits for one
	// as long as the context lasts and the thread is not stopped.
	Wait bool `json:"-"`
}

// Controlled is what came of it.
type Controlled struct {
	ThreadID string           `json:"threadId"`
	Action   Operation        `json:"action"`
	Status   row.ThreadStatus `json:"status"`
	Task     string           `json:"task,omitempty"`    // the handle of what was started
	Stopped  []string         `json:"stopped,omitempty"` // sessions
	Agents   []Started        `json:"agents,omitempty"`  // that were started
}
