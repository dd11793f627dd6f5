// Package tasks manages the calls that outlive the request that made them. Each of them runs
// on the one governed path, as a call of the principal that made it.
//
//   - A [Task] is durable: it is stored before its id is returned, it belongs to one
//     principal, and to any other principal it does not exist. MCP and A2A use its id as
//     their task id. The [Manager] runs each invocation in a separate goroutine
//     and turns its progress, its questions and its missing approvals into the state of
//     the task. A waiting task survives a restart. One that was running has failed, reason
//     interrupted, because it is unknown whether its work was done.
//   - A [Run] lives in memory, in [Runs]: an invocation whose progress and result a
//     client polls for. The audit log is its lasting record.
//   - A [HeldCall] is durable and waits for a disconnected node. The [HeldKeeper] delivers
//     it once, through the gateway to which the node returns.
//
// Surfaces start tasks, answer, cancel, list and watch them. All watchers of a task
// receive the same changes in the same order. Requests, results and the documents of a
// conversation are stored as the bytes that arrived; the surface interprets them.
package tasks

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// ReasonNotFound is the reason of the error for a task that does not exist, or that
// belongs to another principal.
const ReasonNotFound = "task_not_found"

// Kind is the kind of work that a task represents.
type Kind string

// The kinds.
const (
	KindCall   Kind = "call"   // one invocation
	KindThread Kind = "thread" // a thread of a task agent
	KindTurn   Kind = "turn"   // a run of the agent loop: the answer to one message
)

// carried reports whether tasks of this kind are run outside the Manager, by a [Carrier].
func (k Kind) carried() bool { return k == KindThread || k == KindTurn }

// State is the state of a task.
type State string

// The states.
const (
	Submitted     State = "submitted"
	Working       State = "working"
	InputRequired State = "input_required"
	AuthRequired  State = "auth_required"
	Interrupted   State = "interrupted"
	Completed     State = "completed"
	Failed        State = "failed"
	Rejected      State = "rejected" // nothing was started
	Cancelled     State = "cancelled"
)

// Known reports whether s is a valid state.
func (s State) Known() bool {
	switch s {
	case Submitted, Working, InputRequired, AuthRequired, Interrupted, Completed, Failed, Rejected, Cancelled:
		return true
	}
	return false
}

// States returns every state.
func States() []State {
	return []State{Submitted, Working, InputRequired, AuthRequired, Interrupted, Completed, Failed, Rejected, Cancelled}
}

// Terminal reports whether s is final.
func (s State) Terminal() bool {
	switch s {
	case Completed, Failed, Rejected, Cancelled:
		return true
	}
	return false
}

// Waiting reports whether a task in this state does not continue until a user acts.
func (s State) Waiting() bool { return s == InputRequired || s == AuthRequired || s == Interrupted }

// Request is an open question. Method and Params are MCP's, for every kind of requester.
type Request struct {
	Key    string          `json:"key"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
	// Approval is the id of the approval that an answer decides about; "" for questions
	// of a provider.
	Approval string    `json:"approval,omitempty"`
	Asked    time.Time `json:"asked"`
}

// Call is the invocation behind a task, without its input. It is repeated after an approval.
type Call struct {
	Target   capability.Target   `json:"target"`
	Client   string              `json:"client,omitempty"`
	Session  string              `json:"session,omitempty"`
	Context  *capability.Context `json:"context,omitempty"`
	Timeout  time.Duration       `json:"timeout,omitempty"`
	Key      string              `json:"key,omitempty"`
	Audience capability.Audience `json:"audience,omitempty"`
	// Kept is the work at a far side that can be resumed after a restart.
	Kept capability.Kept `json:"kept,omitzero"`
}

// Task is a snapshot of one task. Its slices and documents are shared and must not be
// changed.
type Task struct {
	ID         string                 `json:"id"` // tsk_ + 32 hex
	Kind       Kind                   `json:"kind"`
	Owner      string                 `json:"owner"`
	State      State                  `json:"state"`
	Status     string                 `json:"status,omitempty"` // a sentence for people
	Surface    string                 `json:"surface"`
	Context    string                 `json:"context,omitempty"` // the conversation, as the surface names it
	Invocation string                 `json:"invocation,omitempty"`
	Thread     string                 `json:"thread,omitempty"`   // of kind thread
	Provider   capability.ProviderKey `json:"provider,omitempty"` // the provider that ran it
	Requests   []Request              `json:"requests,omitempty"`
	Result     json.RawMessage        `json:"result,omitempty"` // of a failure too, if the provider describes it
	Error      *capability.Error      `json:"error,omitempty"`
	Created    time.Time              `json:"created"`
	Updated    time.Time              `json:"updated"`
	Expires    time.Time              `json:"expires"`
	// Version counts the stored changes; progress alone is not a change.
	Version int64 `json:"version"`
	// History are the documents of the conversation, in the form of the surface.
	History []json.RawMessage `json:"-"`
	Call    Call              `json:"-"`
	Input   json.RawMessage   `json:"-"` // only of tasks that the store returns by id
	Gateway string            `json:"-"` // the gateway whose process runs it
	Keep    time.Duration     `json:"-"`
}

// Request returns the open question with that key. An empty key selects the only one.
func (t *Task) Request(key string) (Request, bool) {
	if key == "" && len(t.Requests) == 1 {
		return t.Requests[0], true
	}
	for _, r := range t.Requests {
		if r.Key == key {
			return r, true
		}
	}
	return Request{}, false
}

// Query selects tasks of one owner.
type Query struct {
	Owner   string
	Surface string    // "": of all
	Context string    // "": of all
	State   State     // "": any
	Since   time.Time // changed at or after
	Cursor  string    // Page.Next of the page before
	Limit   int       // 1 to 100; 0: 50
	Results bool      // with results
	History bool      // with the documents
}

// Page is a part of a list, the last changed first.
type Page struct {
	Tasks []Task
	Total int    // all that the query selects
	Next  string // "" on the last page
}

// Store stores tasks.
type Store interface {
	// CreateTask adds t unless its owner has b.Open tasks that have not ended, and
	// removes the owner's oldest ended ones beyond b.Ended or b.Bytes of results and
	// documents.
	CreateTask(ctx context.Context, t Task, b Bounds) (ok bool, err error)
	// Task returns a complete task; ok is false if it does not exist.
	Task(ctx context.Context, id string) (t Task, ok bool, err error)
	// Tasks returns the page of q that follows the task (before, id), and the total number of
	// matches. Zero values select the first page.
	Tasks(ctx context.Context, q Query, before time.Time, id string) (list []Task, total int, err error)
	// SaveTask writes t, whose Version is one higher, if the stored version is still
	// t.Version-1. The input is not changed unless t has one, and is removed at the end.
	SaveTask(ctx context.Context, t Task) (ok bool, err error)
	// OpenTasks returns the tasks of a gateway that have not ended, without their input.
	OpenTasks(ctx context.Context, gateway string) ([]Task, error)
	// TakeTasks gives open tasks to a gateway, and returns them without their input.
	TakeTasks(ctx context.Context, gateway string, ids []string) ([]Task, error)
	// SweepTasks removes expired ended tasks.
	SweepTasks(ctx context.Context, now time.Time) error
}

// Engine is the one governed path.
type Engine interface {
	NewID() string
	Follow(ctx context.Context, inv capability.Invocation, moved func(invoke.State)) (invoke.Reply, error)
}

// Config configures a [Manager]. Store, Engine, Standing, Approval and Decide are required.
type Config struct {
	Store  Store
	Engine Engine
	// Standing returns the current state of a principal. The error is unauthenticated if it
	// does not have a live token, and unavailable if its state is known only while it is
	// connected. See [Manager.Seen].
	Standing func(id string) (capability.Principal, error)
	// Approval returns an approval. The error is not_found if it does not exist.
	Approval func(ctx context.Context, id string) (policy.Approval, error)
	// Decide answers an approval on the caller's own channel.
	Decide func(ctx context.Context, by capability.Principal, id string, d policy.Decision) error
	// Changed is called with every stored change, in order per task. It must not block and
	// must not call the Manager. It may be nil.
	Changed func(Task)
	Gateway string     // name of this process among those that share the store
	Log     *audit.Log // nil: no records
	Logger  *slog.Logger
	Now     func() time.Time
	// Poll is the interval at which approvals are checked; 0 means 500 ms.
	Poll time.Duration
}

// Options describes a task beyond its invocation.
type Options struct {
	Context string
	History []json.RawMessage
	// Request makes a task that waits for a first answer before it has a call; the
	// invocation then has no target. See [Manager.Begin].
	Request *Request
	Status  string
	// Keep is how long the task is available after its end; 0: [TaskTTL], at most 7 days.
	Keep time.Duration
}
