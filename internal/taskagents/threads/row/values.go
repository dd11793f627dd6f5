package row

import "slices"

// ThreadKind is the sort of work of a thread.
type ThreadKind string

// ThreadStatus is the status of a thread; see threads.Status.
type ThreadStatus string

// SessionStatus is the status of a session's task.
type SessionStatus string

// NodeKind is the purpose of a node of the plan.
type NodeKind string

// NodeStatus is the status of a node of the plan.
type NodeStatus string

// DependencyKind is the reason why one node waits for another.
type DependencyKind string

// ClaimType is the kind of a session's claim on a node.
type ClaimType string

// ClaimStatus is the status of a claim.
type ClaimStatus string

// MailState is the delivery state of a message.
type MailState string

// JobStatus is the status of a verification.
type JobStatus string

// Verdict is the kind of a decision.
type Verdict string

// Direction is the direction of a piece of a transcript.
type Direction string

// The values of the columns.
const (
	Coding   ThreadKind = "coding"
	Research ThreadKind = "research"
	Planning ThreadKind = "planning"
	Ops      ThreadKind = "ops"
	Mixed    ThreadKind = "mixed"

	ThreadOpen        ThreadStatus = "open"
	ThreadActive      ThreadStatus = "active"
	ThreadWaiting     ThreadStatus = "waiting_on_user"
	ThreadBlocked     ThreadStatus = "blocked"
	ThreadValidating  ThreadStatus = "validating"
	ThreadDone        ThreadStatus = "done"
	ThreadFailed      ThreadStatus = "failed"
	ThreadArchived    ThreadStatus = "archived"
	ThreadInterrupted ThreadStatus = "interrupted"

	SessionActive      SessionStatus = "active"
	SessionBlocked     SessionStatus = "blocked"
	SessionWaiting     SessionStatus = "waiting_on_user"
	SessionCompleted   SessionStatus = "completed"
	SessionStopped     SessionStatus = "stopped"
	SessionError       SessionStatus = "error"
	SessionToolRunning SessionStatus = "tool_running"
	SessionInterrupted SessionStatus = "interrupted"

	GoalNode         NodeKind = "goal"
	ExecutionNode    NodeKind = "execution"
	ResearchNode     NodeKind = "research"
	PlanningNode     NodeKind = "planning"
	VerificationNode NodeKind = "verification"
	HandoffNode      NodeKind = "handoff"

	NodePlanned     NodeStatus = "planned"
	NodeReady       NodeStatus = "ready"
	NodeClaimed     NodeStatus = "claimed"
	NodeRunning     NodeStatus = "running"
	NodeBlocked     NodeStatus = "blocked"
	NodeWaiting     NodeStatus = "waiting_on_user"
	NodeVerifying   NodeStatus = "verifying"
	NodeCompleted   NodeStatus = "completed"
	NodeFailed      NodeStatus = "failed"
	NodeCanceled    NodeStatus = "canceled"
	NodeInterrupted NodeStatus = "interrupted"

	Blocks      DependencyKind = "blocks"
	ParentChild DependencyKind = "parent_child"
	NeedsFile   DependencyKind = "artifact"
	Handoff     DependencyKind = "handoff"

	ClaimExecution    ClaimType = "execution"
	ClaimVerification ClaimType = "verification"
	ClaimOwnership    ClaimType = "ownership"

	ClaimActive      ClaimStatus = "active"
	ClaimReleased    ClaimStatus = "released"
	ClaimCompleted   ClaimStatus = "completed"
	ClaimFailed      ClaimStatus = "failed"
	ClaimInterrupted ClaimStatus = "interrupted"

	MailPending   MailState = "pending"
	MailDelivered MailState = "delivered"
	MailConsumed  MailState = "consumed"

	JobPending  JobStatus = "pending"
	JobRunning  JobStatus = "running"
	JobPassed   JobStatus = "passed"
	JobFailed   JobStatus = "failed"
	JobCanceled JobStatus = "canceled"

	Respond      Verdict = "respond"
	Escalate     Verdict = "escalate"
	Ignore       Verdict = "ignore"
	Complete     Verdict = "complete"
	AutoResolved Verdict = "auto_resolved"
	Stopped      Verdict = "stopped"

	Stdout Direction = "stdout"
	Stderr Direction = "stderr"
	Stdin  Direction = "stdin"
	Keys   Direction = "keys"
	System Direction = "system"
)

// Event types that the registry writes or its callers agree on; any other text is
// allowed.
const (
	TaskCreated        = "task_created"
	TaskStatusChanged  = "task_status_changed"
	TaskPaused         = "task_paused"
	TaskResumed        = "task_resumed"
	TaskStopped        = "task_stopped"
	TaskArchived       = "task_archived"
	TaskReopened       = "task_reopened"
	SessionRegistered  = "session_registered"
	SessionUpdated     = "session_updated"
	SessionInterrupt   = "session_interrupted"
	DecisionRecorded   = "decision_recorded"
	DecisionShared     = "decision_shared"
	ArtifactRecorded   = "artifact_recorded"
	SummaryUpdated     = "summary_updated"
	SwarmComplete      = "swarm_complete"
	ShareDiscovered    = "share_discovered"
	SetupDone          = "setup_done"
	SetupFailed        = "setup_failed"
	ValidationStarted  = "validation_started"
	ValidationPassed   = "validation_passed"
	ValidationFailed   = "validation_failed"
	ValidationCanceled = "validation_canceled" // defined here: the result is unknown
	NodeChanged        = "node_changed"        // defined here: a user set a node's status
)

// Valid reports whether k is a kind.
func (k ThreadKind) Valid() bool {
	return slices.Contains([]ThreadKind{Coding, Research, Planning, Ops, Mixed}, k)
}

// Valid reports whether s is a status.
func (s ThreadStatus) Valid() bool {
	return slices.Contains([]ThreadStatus{
		ThreadOpen, ThreadActive, ThreadWaiting, ThreadBlocked, ThreadValidating, ThreadDone, ThreadFailed,
		ThreadArchived, ThreadInterrupted,
	}, s)
}

// Closed reports whether a thread with this status has ended and has closed_at.
func (s ThreadStatus) Closed() bool {
	return s == ThreadDone || s == ThreadFailed || s == ThreadInterrupted
}

// Valid reports whether s is a status.
func (s SessionStatus) Valid() bool { return s.Live() || s.Over() }

// Live reports whether a session may still act.
func (s SessionStatus) Live() bool {
	return slices.Contains([]SessionStatus{SessionActive, SessionBlocked, SessionWaiting, SessionToolRunning}, s)
}

// Over reports whether a session has ended.
func (s SessionStatus) Over() bool {
	return slices.Contains([]SessionStatus{SessionCompleted, SessionStopped, SessionError, SessionInterrupted}, s)
}

// Valid reports whether k is a kind.
func (k NodeKind) Valid() bool {
	return slices.Contains([]NodeKind{GoalNode, ExecutionNode, ResearchNode, PlanningNode, VerificationNode, HandoffNode}, k)
}

// Valid reports whether s is a status.
func (s NodeStatus) Valid() bool {
	return slices.Contains([]NodeStatus{
		NodePlanned, NodeReady, NodeClaimed, NodeRunning, NodeBlocked, NodeWaiting, NodeVerifying,
		NodeInterrupted,
	}, s) || s.Over()
}

// Over reports whether the work on a node has ended.
func (s NodeStatus) Over() bool {
	return s == NodeCompleted || s == NodeFailed || s == NodeCanceled
}

// Valid reports whether k is a kind.
func (k DependencyKind) Valid() bool {
	return slices.Contains([]DependencyKind{Blocks, ParentChild, NeedsFile, Handoff}, k)
}

// Valid reports whether t is a type.
func (t ClaimType) Valid() bool {
	return slices.Contains([]ClaimType{ClaimExecution, ClaimVerification, ClaimOwnership}, t)
}

// Valid reports whether s is a status.
func (s ClaimStatus) Valid() bool {
	return slices.Contains([]ClaimStatus{ClaimActive, ClaimReleased, ClaimCompleted, ClaimFailed, ClaimInterrupted}, s)
}

// Valid reports whether s is a state.
func (s MailState) Valid() bool { return s.Order() > 0 }

// Order returns 1, 2 or 3 for the states in the order of delivery, and less for an invalid state.
func (s MailState) Order() int {
	return slices.Index([]MailState{"", MailPending, MailDelivered, MailConsumed}, s)
}

// Valid reports whether s is a status.
func (s JobStatus) Valid() bool { return s == JobPending || s == JobRunning || s.Over() }

// Over reports whether a verification has ended.
func (s JobStatus) Over() bool { return s == JobPassed || s == JobFailed || s == JobCanceled }

// Valid reports whether v is a verdict.
func (v Verdict) Valid() bool {
	return slices.Contains([]Verdict{Respond, Escalate, Ignore, Complete, AutoResolved, Stopped}, v)
}

// Valid reports whether d is a direction.
func (d Direction) Valid() bool {
	return slices.Contains([]Direction{Stdout, Stderr, Stdin, Keys, System}, d)
}
