package row

import (
	"encoding/json"
	"time"
)

// Thread is one durable task of a user. It owns sessions.
type Thread struct {
	ID                    string          `json:"id"`
	AgentID               string          `json:"agentId"`
	RoomID                string          `json:"roomId"`
	WorldID               string          `json:"worldId"`
	OwnerUserID           string          `json:"ownerUserId"`
	ScenarioID            string          `json:"scenarioId"`
	BatchID               string          `json:"batchId"`
	Title                 string          `json:"title"`
	Kind                  ThreadKind      `json:"kind"`
	Status                ThreadStatus    `json:"status"`
	OriginalRequest       string          `json:"originalRequest"` // the user's exact words
	Summary               string          `json:"summary"`
	AcceptanceCriteria    json.RawMessage `json:"acceptanceCriteria"` // a list
	CurrentPlan           json.RawMessage `json:"currentPlan"`
	SearchText            string          `json:"-"` // text for search, derived from the other columns
	CreatedAt             time.Time       `json:"createdAt"`
	UpdatedAt             time.Time       `json:"updatedAt"`
	ClosedAt              time.Time       `json:"closedAt,omitzero"`
	ArchivedAt            time.Time       `json:"archivedAt,omitzero"`
	LastUserTurnAt        time.Time       `json:"lastUserTurnAt,omitzero"`
	LastCoordinatorTurnAt time.Time       `json:"lastCoordinatorTurnAt,omitzero"`
	Metadata              json.RawMessage `json:"metadata"`
}

// Session is the record of a session with a task. SessionID identifies the session; ID is this
// row's id.
type Session struct {
	ID                    string          `json:"id"`
	ThreadID              string          `json:"threadId"`
	AgentID               string          `json:"agentId"`
	SessionID             string          `json:"sessionId"`
	Framework             string          `json:"framework"`
	ProviderSource        string          `json:"providerSource"`
	Label                 string          `json:"label"`
	OriginalTask          string          `json:"originalTask"`
	Workdir               string          `json:"workdir"`
	Repo                  string          `json:"repo"`
	Status                SessionStatus   `json:"status"`
	DecisionCount         int             `json:"decisionCount"`
	AutoResolvedCount     int             `json:"autoResolvedCount"`
	RegisteredAt          Millis          `json:"registeredAt"`
	LastActivityAt        Millis          `json:"lastActivityAt"`
	IdleCheckCount        int             `json:"idleCheckCount"`
	TaskDelivered         bool            `json:"taskDelivered"`
	CompletionSummary     string          `json:"completionSummary"`
	LastSeenDecisionIndex int             `json:"lastSeenDecisionIndex"`
	LastInputSentAt       Millis          `json:"lastInputSentAt,omitzero"`
	StoppedAt             Millis          `json:"stoppedAt,omitzero"`
	CreatedAt             time.Time       `json:"createdAt"`
	UpdatedAt             time.Time       `json:"updatedAt"`
	Metadata              json.RawMessage `json:"metadata"`
}

// Decision is one decision of the coordinator.
type Decision struct {
	ID         string          `json:"id"`
	ThreadID   string          `json:"threadId"`
	SessionID  string          `json:"sessionId"`
	Timestamp  Millis          `json:"timestamp"`
	EventType  string          `json:"event"`
	PromptText string          `json:"promptText"`
	Decision   Verdict         `json:"decision"`
	Response   string          `json:"response"`
	Reasoning  string          `json:"reasoning"`
	Metadata   json.RawMessage `json:"metadata"`
	CreatedAt  time.Time       `json:"createdAt"`
}

// Event is an event of a thread.
type Event struct {
	ID        string          `json:"id"`
	ThreadID  string          `json:"threadId"`
	SessionID string          `json:"sessionId"` // "": of the thread
	EventType string          `json:"eventType"`
	Timestamp Millis          `json:"timestamp"`
	Summary   string          `json:"summary"`
	Data      json.RawMessage `json:"data"`
	CreatedAt time.Time       `json:"createdAt"`
}

// Artifact is a result of a thread that can be shown.
type Artifact struct {
	ID           string          `json:"id"`
	ThreadID     string          `json:"threadId"`
	SessionID    string          `json:"sessionId"` // "": of the thread
	ArtifactType string          `json:"artifactType"`
	Title        string          `json:"title"`
	Path         string          `json:"path"`
	URI          string          `json:"uri"`
	MimeType     string          `json:"mimeType"`
	Metadata     json.RawMessage `json:"metadata"`
	CreatedAt    time.Time       `json:"createdAt"`
}

// TranscriptItem is a piece of a session's output or input.
type TranscriptItem struct {
	ID        string          `json:"id"`
	ThreadID  string          `json:"threadId"`
	SessionID string          `json:"sessionId"`
	Timestamp Millis          `json:"timestamp"`
	Direction Direction       `json:"direction"`
	Content   string          `json:"content"`
	Metadata  json.RawMessage `json:"metadata"`
	CreatedAt time.Time       `json:"createdAt"`
}

// PendingDecision is a decision that the user must confirm; a session has at most one.
type PendingDecision struct {
	SessionID    string          `json:"sessionId"`
	ThreadID     string          `json:"threadId"`
	PromptText   string          `json:"promptText"`
	RecentOutput string          `json:"recentOutput"`
	LLMDecision  json.RawMessage `json:"llmDecision"`
	TaskContext  json.RawMessage `json:"taskContext"`
	CreatedAt    Millis          `json:"createdAt"`
	UpdatedAt    time.Time       `json:"updatedAt"`
}

// Node is one part of the plan of a thread.
type Node struct {
	ID                   string          `json:"id"`
	ThreadID             string          `json:"threadId"`
	ParentNodeID         string          `json:"parentNodeId"`
	Kind                 NodeKind        `json:"kind"`
	Status               NodeStatus      `json:"status"`
	Title                string          `json:"title"`
	Instructions         string          `json:"instructions"`
	AcceptanceCriteria   json.RawMessage `json:"acceptanceCriteria"`   // a list
	RequiredCapabilities json.RawMessage `json:"requiredCapabilities"` // a list
	ExpectedArtifacts    json.RawMessage `json:"expectedArtifacts"`    // a list
	AssignedSessionID    string          `json:"assignedSessionId"`
	AssignedLabel        string          `json:"assignedLabel"`
	AgentType            string          `json:"agentType"`
	Workdir              string          `json:"workdir"`
	Repo                 string          `json:"repo"`
	Priority             int             `json:"priority"`
	Depth                int             `json:"depth"`
	Sequence             int             `json:"sequence"`
	CreatedFrom          string          `json:"createdFrom"`
	Metadata             json.RawMessage `json:"metadata"`
	CreatedAt            time.Time       `json:"createdAt"`
	UpdatedAt            time.Time       `json:"updatedAt"`
	StartedAt            time.Time       `json:"startedAt,omitzero"`
	CompletedAt          time.Time       `json:"completedAt,omitzero"`
}

// Dependency states that ToNodeID waits until FromNodeID has RequiredStatus, which is always
// completed. A parent waits for its children.
type Dependency struct {
	ID             string          `json:"id"`
	ThreadID       string          `json:"threadId"`
	FromNodeID     string          `json:"fromNodeId"`
	ToNodeID       string          `json:"toNodeId"`
	DependencyKind DependencyKind  `json:"dependencyKind"`
	RequiredStatus NodeStatus      `json:"requiredStatus"`
	Metadata       json.RawMessage `json:"metadata"`
	CreatedAt      time.Time       `json:"createdAt"`
}

// Claim records that a session works on a node.
type Claim struct {
	ID         string          `json:"id"`
	ThreadID   string          `json:"threadId"`
	NodeID     string          `json:"nodeId"`
	SessionID  string          `json:"sessionId"`
	ClaimType  ClaimType       `json:"claimType"`
	Status     ClaimStatus     `json:"status"`
	ClaimedAt  time.Time       `json:"claimedAt"`
	ReleasedAt time.Time       `json:"releasedAt,omitzero"`
	Metadata   json.RawMessage `json:"metadata"`
}

// MailboxItem is a message of one part of a thread to another.
type MailboxItem struct {
	ID            string          `json:"id"`
	ThreadID      string          `json:"threadId"`
	NodeID        string          `json:"nodeId"`
	SessionID     string          `json:"sessionId"`
	Sender        string          `json:"sender"`
	Recipient     string          `json:"recipient"`
	Subject       string          `json:"subject"`
	Body          string          `json:"body"`
	DeliveryState MailState       `json:"deliveryState"`
	Metadata      json.RawMessage `json:"metadata"`
	CreatedAt     time.Time       `json:"createdAt"`
	DeliveredAt   time.Time       `json:"deliveredAt,omitzero"`
}

// VerifierJob is one validation of a node.
type VerifierJob struct {
	ID           string          `json:"id"`
	ThreadID     string          `json:"threadId"`
	NodeID       string          `json:"nodeId"` // "": of the thread
	Status       JobStatus       `json:"status"`
	VerifierType string          `json:"verifierType"`
	Title        string          `json:"title"`
	Instructions string          `json:"instructions"`
	Config       json.RawMessage `json:"config"`
	Metadata     json.RawMessage `json:"metadata"`
	CreatedAt    time.Time       `json:"createdAt"`
	StartedAt    time.Time       `json:"startedAt,omitzero"`
	CompletedAt  time.Time       `json:"completedAt,omitzero"`
}

// Evidence is one observation of a validation.
type Evidence struct {
	ID            string          `json:"id"`
	ThreadID      string          `json:"threadId"`
	NodeID        string          `json:"nodeId"`
	SessionID     string          `json:"sessionId"`
	VerifierJobID string          `json:"verifierJobId"`
	EvidenceType  string          `json:"evidenceType"`
	Title         string          `json:"title"`
	Summary       string          `json:"summary"`
	Path          string          `json:"path"`
	URI           string          `json:"uri"`
	Content       json.RawMessage `json:"content"`
	Metadata      json.RawMessage `json:"metadata"`
	CreatedAt     time.Time       `json:"createdAt"`
}
