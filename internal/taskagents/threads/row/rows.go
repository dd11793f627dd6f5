package row

import (
	"encoding/json"
	"time"
)

// Thread is one durable task of a user. It owns sessions.
type Thread struct {
	ID                    string          `json:"id" col:"id,id"`
	AgentID               string          `json:"agentId" col:"agent_id,name"`
	RoomID                string          `json:"roomId" col:"room_id,name"`
	WorldID               string          `json:"worldId" col:"world_id,name"`
	OwnerUserID           string          `json:"ownerUserId" col:"owner_user_id,name"`
	ScenarioID            string          `json:"scenarioId" col:"scenario_id,name"`
	BatchID               string          `json:"batchId" col:"batch_id,name"`
	Title                 string          `json:"title" col:"title,title"`
	Kind                  ThreadKind      `json:"kind" col:"kind,value"`
	Status                ThreadStatus    `json:"status" col:"status,value"`
	OriginalRequest       string          `json:"originalRequest" col:"original_request,text"` // the user's exact words
	Summary               string          `json:"summary" col:"summary,text"`
	AcceptanceCriteria    json.RawMessage `json:"acceptanceCriteria" col:"acceptance_criteria_json,list"` // a list
	CurrentPlan           json.RawMessage `json:"currentPlan" col:"current_plan_json,object"`
	SearchText            string          `json:"-" col:"search_text,search"` // text for search, derived from the other columns
	CreatedAt             time.Time       `json:"createdAt" col:"created_at,set"`
	UpdatedAt             time.Time       `json:"updatedAt" col:"updated_at,set"`
	ClosedAt              time.Time       `json:"closedAt,omitzero" col:"closed_at"`
	ArchivedAt            time.Time       `json:"archivedAt,omitzero" col:"archived_at"`
	LastUserTurnAt        time.Time       `json:"lastUserTurnAt,omitzero" col:"last_user_turn_at"`
	LastCoordinatorTurnAt time.Time       `json:"lastCoordinatorTurnAt,omitzero" col:"last_coordinator_turn_at"`
	Metadata              json.RawMessage `json:"metadata" col:"metadata_json,object"`
}

// Table implements [Row].
func (*Thread) Table() string { return "task_threads" }

// Session is the record of a session with a task. SessionID identifies the session; ID is this
// row's id.
type Session struct {
	ID                    string          `json:"id" col:"id,id"`
	ThreadID              string          `json:"threadId" col:"thread_id,id"`
	AgentID               string          `json:"agentId" col:"agent_id,name"`
	SessionID             string          `json:"sessionId" col:"session_id,id"`
	Framework             string          `json:"framework" col:"framework,name"`
	ProviderSource        string          `json:"providerSource" col:"provider_source,name"`
	Label                 string          `json:"label" col:"label,name"`
	OriginalTask          string          `json:"originalTask" col:"original_task,text"`
	Workdir               string          `json:"workdir" col:"workdir,path"`
	Repo                  string          `json:"repo" col:"repo,path"`
	Status                SessionStatus   `json:"status" col:"status,value"`
	DecisionCount         int             `json:"decisionCount" col:"decision_count"`
	AutoResolvedCount     int             `json:"autoResolvedCount" col:"auto_resolved_count"`
	RegisteredAt          Millis          `json:"registeredAt" col:"registered_at,set"`
	LastActivityAt        Millis          `json:"lastActivityAt" col:"last_activity_at,set"`
	IdleCheckCount        int             `json:"idleCheckCount" col:"idle_check_count"`
	TaskDelivered         bool            `json:"taskDelivered" col:"task_delivered"`
	CompletionSummary     string          `json:"completionSummary" col:"completion_summary,text"`
	LastSeenDecisionIndex int             `json:"lastSeenDecisionIndex" col:"last_seen_decision_index"`
	LastInputSentAt       Millis          `json:"lastInputSentAt,omitzero" col:"last_input_sent_at"`
	StoppedAt             Millis          `json:"stoppedAt,omitzero" col:"stopped_at"`
	CreatedAt             time.Time       `json:"createdAt" col:"created_at,set"`
	UpdatedAt             time.Time       `json:"updatedAt" col:"updated_at,set"`
	Metadata              json.RawMessage `json:"metadata" col:"metadata_json,object"`
}

// Table implements [Row].
func (*Session) Table() string { return "task_sessions" }

// Decision is one decision of the coordinator.
type Decision struct {
	ID         string          `json:"id" col:"id,id"`
	ThreadID   string          `json:"threadId" col:"thread_id,id"`
	SessionID  string          `json:"sessionId" col:"session_id,id"`
	Timestamp  Millis          `json:"timestamp" col:"timestamp,set"`
	EventType  string          `json:"event" col:"event_type,title"`
	PromptText string          `json:"promptText" col:"prompt_text,text"`
	Decision   Verdict         `json:"decision" col:"decision,value"`
	Response   string          `json:"response" col:"response,text"`
	Reasoning  string          `json:"reasoning" col:"reasoning,text"`
	Metadata   json.RawMessage `json:"metadata" col:"metadata_json,object"`
	CreatedAt  time.Time       `json:"createdAt" col:"created_at,set"`
}

// Table implements [Row].
func (*Decision) Table() string { return "task_decisions" }

// Event is an event of a thread.
type Event struct {
	ID        string          `json:"id" col:"id,id"`
	ThreadID  string          `json:"threadId" col:"thread_id,id"`
	SessionID string          `json:"sessionId" col:"session_id,ref"` // "": of the thread
	EventType string          `json:"eventType" col:"event_type,title"`
	Timestamp Millis          `json:"timestamp" col:"timestamp,set"`
	Summary   string          `json:"summary" col:"summary,text"`
	Data      json.RawMessage `json:"data" col:"data_json,object"`
	CreatedAt time.Time       `json:"createdAt" col:"created_at,set"`
}

// Table implements [Row].
func (*Event) Table() string { return "task_events" }

// Artifact is a result of a thread that can be shown.
type Artifact struct {
	ID           string          `json:"id" col:"id,id"`
	ThreadID     string          `json:"threadId" col:"thread_id,id"`
	SessionID    string          `json:"sessionId" col:"session_id,ref"` // "": of the thread
	ArtifactType string          `json:"artifactType" col:"artifact_type,title"`
	Title        string          `json:"title" col:"title,name"`
	Path         string          `json:"path" col:"path,path"`
	URI          string          `json:"uri" col:"uri,path"`
	MimeType     string          `json:"mimeType" col:"mime_type,name"`
	Metadata     json.RawMessage `json:"metadata" col:"metadata_json,object"`
	CreatedAt    time.Time       `json:"createdAt" col:"created_at,set"`
}

// Table implements [Row].
func (*Artifact) Table() string { return "task_artifacts" }

// TranscriptItem is a piece of a session's output or input.
type TranscriptItem struct {
	ID        string          `json:"id" col:"id,id"`
	ThreadID  string          `json:"threadId" col:"thread_id,id"`
	SessionID string          `json:"sessionId" col:"session_id,id"`
	Timestamp Millis          `json:"timestamp" col:"timestamp,set"`
	Direction Direction       `json:"direction" col:"direction,value"`
	Content   string          `json:"content" col:"content,text"`
	Metadata  json.RawMessage `json:"metadata" col:"metadata_json,object"`
	CreatedAt time.Time       `json:"createdAt" col:"created_at,set"`
}

// Table implements [Row].
func (*TranscriptItem) Table() string { return "task_transcripts" }

// PendingDecision is a decision that the user must confirm; a session has at most one.
type PendingDecision struct {
	SessionID    string          `json:"sessionId" col:"session_id,id"`
	ThreadID     string          `json:"threadId" col:"thread_id,id"`
	PromptText   string          `json:"promptText" col:"prompt_text,text"`
	RecentOutput string          `json:"recentOutput" col:"recent_output,text"`
	LLMDecision  json.RawMessage `json:"llmDecision" col:"llm_decision_json,object"`
	TaskContext  json.RawMessage `json:"taskContext" col:"task_context_json,object"`
	CreatedAt    Millis          `json:"createdAt" col:"created_at,set"`
	UpdatedAt    time.Time       `json:"updatedAt" col:"updated_at,set"`
}

// Table implements [Row].
func (*PendingDecision) Table() string { return "task_pending_decisions" }

// Node is one part of the plan of a thread.
type Node struct {
	ID                   string          `json:"id" col:"id,id"`
	ThreadID             string          `json:"threadId" col:"thread_id,id"`
	ParentNodeID         string          `json:"parentNodeId" col:"parent_node_id,ref"`
	Kind                 NodeKind        `json:"kind" col:"kind,value"`
	Status               NodeStatus      `json:"status" col:"status,value"`
	Title                string          `json:"title" col:"title,title"`
	Instructions         string          `json:"instructions" col:"instructions,text"`
	AcceptanceCriteria   json.RawMessage `json:"acceptanceCriteria" col:"acceptance_criteria_json,list"`     // a list
	RequiredCapabilities json.RawMessage `json:"requiredCapabilities" col:"required_capabilities_json,list"` // a list
	ExpectedArtifacts    json.RawMessage `json:"expectedArtifacts" col:"expected_artifacts_json,list"`       // a list
	AssignedSessionID    string          `json:"assignedSessionId" col:"assigned_session_id,ref"`
	AssignedLabel        string          `json:"assignedLabel" col:"assigned_label,name"`
	AgentType            string          `json:"agentType" col:"agent_type,name"`
	Workdir              string          `json:"workdir" col:"workdir,path"`
	Repo                 string          `json:"repo" col:"repo,path"`
	Priority             int             `json:"priority" col:"priority"`
	Depth                int             `json:"depth" col:"depth"`
	Sequence             int             `json:"sequence" col:"sequence"`
	CreatedFrom          string          `json:"createdFrom" col:"created_from,name"`
	Metadata             json.RawMessage `json:"metadata" col:"metadata_json,object"`
	CreatedAt            time.Time       `json:"createdAt" col:"created_at,set"`
	UpdatedAt            time.Time       `json:"updatedAt" col:"updated_at,set"`
	StartedAt            time.Time       `json:"startedAt,omitzero" col:"started_at"`
	CompletedAt          time.Time       `json:"completedAt,omitzero" col:"completed_at"`
}

// Table implements [Row].
func (*Node) Table() string { return "task_nodes" }

// Dependency states that ToNodeID waits until FromNodeID has RequiredStatus, which is always
// completed. A parent waits for its children.
type Dependency struct {
	ID             string          `json:"id" col:"id,id"`
	ThreadID       string          `json:"threadId" col:"thread_id,id"`
	FromNodeID     string          `json:"fromNodeId" col:"from_node_id,id"`
	ToNodeID       string          `json:"toNodeId" col:"to_node_id,id"`
	DependencyKind DependencyKind  `json:"dependencyKind" col:"dependency_kind,value"`
	RequiredStatus NodeStatus      `json:"requiredStatus" col:"required_status,completed"`
	Metadata       json.RawMessage `json:"metadata" col:"metadata_json,object"`
	CreatedAt      time.Time       `json:"createdAt" col:"created_at,set"`
}

// Table implements [Row].
func (*Dependency) Table() string { return "task_dependencies" }

// Claim records that a session works on a node.
type Claim struct {
	ID         string          `json:"id" col:"id,id"`
	ThreadID   string          `json:"threadId" col:"thread_id,id"`
	NodeID     string          `json:"nodeId" col:"node_id,id"`
	SessionID  string          `json:"sessionId" col:"session_id,id"`
	ClaimType  ClaimType       `json:"claimType" col:"claim_type,value"`
	Status     ClaimStatus     `json:"status" col:"status,value"`
	ClaimedAt  time.Time       `json:"claimedAt" col:"claimed_at,set"`
	ReleasedAt time.Time       `json:"releasedAt,omitzero" col:"released_at"`
	Metadata   json.RawMessage `json:"metadata" col:"metadata_json,object"`
}

// Table implements [Row].
func (*Claim) Table() string { return "task_claims" }

// MailboxItem is a message of one part of a thread to another.
type MailboxItem struct {
	ID            string          `json:"id" col:"id,id"`
	ThreadID      string          `json:"threadId" col:"thread_id,id"`
	NodeID        string          `json:"nodeId" col:"node_id,ref"`
	SessionID     string          `json:"sessionId" col:"session_id,ref"`
	Sender        string          `json:"sender" col:"sender,name"`
	Recipient     string          `json:"recipient" col:"recipient,name"`
	Subject       string          `json:"subject" col:"subject,name"`
	Body          string          `json:"body" col:"body,text"`
	DeliveryState MailState       `json:"deliveryState" col:"delivery_state,value"`
	Metadata      json.RawMessage `json:"metadata" col:"metadata_json,object"`
	CreatedAt     time.Time       `json:"createdAt" col:"created_at,set"`
	DeliveredAt   time.Time       `json:"deliveredAt,omitzero" col:"delivered_at"`
}

// Table implements [Row].
func (*MailboxItem) Table() string { return "task_mailbox" }

// VerifierJob is one validation of a node.
type VerifierJob struct {
	ID           string          `json:"id" col:"id,id"`
	ThreadID     string          `json:"threadId" col:"thread_id,id"`
	NodeID       string          `json:"nodeId" col:"node_id,ref"` // "": of the thread
	Status       JobStatus       `json:"status" col:"status,value"`
	VerifierType string          `json:"verifierType" col:"verifier_type,title"`
	Title        string          `json:"title" col:"title,name"`
	Instructions string          `json:"instructions" col:"instructions,text"`
	Config       json.RawMessage `json:"config" col:"config_json,object"`
	Metadata     json.RawMessage `json:"metadata" col:"metadata_json,object"`
	CreatedAt    time.Time       `json:"createdAt" col:"created_at,set"`
	StartedAt    time.Time       `json:"startedAt,omitzero" col:"started_at"`
	CompletedAt  time.Time       `json:"completedAt,omitzero" col:"completed_at"`
}

// Table implements [Row].
func (*VerifierJob) Table() string { return "task_verifier_jobs" }

// Evidence is one observation of a validation.
type Evidence struct {
	ID            string          `json:"id" col:"id,id"`
	ThreadID      string          `json:"threadId" col:"thread_id,id"`
	NodeID        string          `json:"nodeId" col:"node_id,ref"`
	SessionID     string          `json:"sessionId" col:"session_id,ref"`
	VerifierJobID string          `json:"verifierJobId" col:"verifier_job_id,ref"`
	EvidenceType  string          `json:"evidenceType" col:"evidence_type,title"`
	Title         string          `json:"title" col:"title,name"`
	Summary       string          `json:"summary" col:"summary,text"`
	Path          string          `json:"path" col:"path,path"`
	URI           string          `json:"uri" col:"uri,path"`
	Content       json.RawMessage `json:"content" col:"content_json,object"`
	Metadata      json.RawMessage `json:"metadata" col:"metadata_json,object"`
	CreatedAt     time.Time       `json:"createdAt" col:"created_at,set"`
}

// Table implements [Row].
func (*Evidence) Table() string { return "task_evidence" }
