package threads

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Store stores the rows. Implementations contain no rules, which are in [Registry].
type Store interface {
	// Change runs f in one transaction, which is committed if f returns nil. No other change of
	// that thread runs at the same time. f may be called more than once. A thread to be created
	// already has an id.
	Change(ctx context.Context, thread string, f func(Tx) error) error
	// Get reads into r the row whose key equals [row.Key] of r.
	Get(ctx context.Context, r row.Row) (ok bool, err error)
	// Live returns the sessions that are active, blocked or tool_running, of all threads.
	Live(ctx context.Context) ([]row.Session, error)
	// Pending returns all pending decisions, the oldest first, at most MaxPending.
	Pending(ctx context.Context) ([]row.PendingDecision, error)
	// Recent returns the newest sessions with a summary, and the newest shared decisions, of threads
	// that have changed since a time. If agent is "", they are those of all principals.
	Recent(ctx context.Context, agent string, since time.Time, limit int) ([]row.Session, []row.Event, error)
	// Mail returns messages in the order in which they were added.
	Mail(ctx context.Context, q MailQuery) ([]row.MailboxItem, error)
	// Threads returns the threads that the filter selects, as in [Registry.List]. Count returns
	// their number, ignoring the limit.
	Threads(ctx context.Context, f Filter) ([]Summary, error)
	Count(ctx context.Context, f Filter) (int, error)
	// Detail reads a consistent snapshot of a thread: the summary and the lists that s selects.
	Detail(ctx context.Context, thread string, s Selection) (d Detail, ok bool, err error)
}

// Tx is one transaction of [Store.Change].
type Tx interface {
	// Graph reads the thread with the rows from which its statuses are derived. It must be called
	// before rows are written.
	Graph(ctx context.Context) (g Graph, ok bool, err error)
	// Get is [Store.Get] in the transaction.
	Get(ctx context.Context, r row.Row) (ok bool, err error)
	// Insert and Update write cleaned rows; Update requires that the [row.Key] exists. Remove
	// deletes a row.
	Insert(ctx context.Context, r row.Row) error
	Update(ctx context.Context, r row.Row) error
	Remove(ctx context.Context, r row.Row) error
	// Count returns the number of rows that the thread has in r's table.
	Count(ctx context.Context, r row.Row) (int, error)
	// TrimEvents removes the oldest events beyond keep.
	TrimEvents(ctx context.Context, keep int) error
	// TrimTranscript removes a session's oldest rows if its transcript has more than limit bytes,
	// until it has three quarters of that; each row counts RowOverhead more. It replaces them by
	// the row that marker returns for the number of removed rows and bytes, including those of
	// earlier markers.
	TrimTranscript(ctx context.Context, session string, limit int, marker func(last row.TranscriptItem, gone Gone) row.TranscriptItem) error
}

// RowOverhead is the number of bytes that a row of a transcript counts in addition to its content.
const RowOverhead = 128

// Gone holds the numbers of removed rows and bytes that a marker represents.
type Gone struct {
	Rows  int   `json:"droppedRows"`
	Bytes int64 `json:"droppedBytes"`
}

// Graph is a thread with all rows from which its status and its nodes' statuses are derived. Jobs
// holds the ones that have not ended.
type Graph struct {
	Thread       row.Thread
	Sessions     []row.Session // in the order they were registered
	Nodes        []row.Node
	Dependencies []row.Dependency
	Claims       []row.Claim
	Jobs         []row.VerifierJob
}

// Filter selects threads. Empty fields do not restrict. Times are inclusive.
type Filter struct {
	Archived       bool // include archived threads
	Statuses       []row.ThreadStatus
	Kind           row.ThreadKind
	RoomID         string
	WorldID        string
	OwnerUserID    string
	AgentID        string // principal that created the thread
	ScenarioID     string
	BatchID        string
	CreatedAfter   time.Time
	CreatedBefore  time.Time
	UpdatedAfter   time.Time
	UpdatedBefore  time.Time
	ActivityAfter  time.Time
	ActivityBefore time.Time
	Active         *bool // true: with a live session; false: without
	// Search holds words that must all occur, at least as parts of words, in title, request,
	// summary or metadata, ignoring case. At most 1 KiB and 16 words.
	Search string
	Limit  int // 1 to MaxLimit; 0: DefaultLimit
}

// Summary is a thread in a list. LatestSession is the last registered session.
type Summary struct {
	row.Thread
	SessionCount       int        `json:"sessionCount"`
	ActiveSessionCount int        `json:"activeSessionCount"`
	LatestSessionID    string     `json:"latestSessionId"`
	LatestSessionLabel string     `json:"latestSessionLabel"`
	LatestWorkdir      string     `json:"latestWorkdir"`
	LatestRepo         string     `json:"latestRepo"`
	LatestActivityAt   row.Millis `json:"latestActivityAt"` // last activity of its sessions, or its creation
	DecisionCount      int        `json:"decisionCount"`
	NodeCount          int        `json:"nodeCount"`
	ReadyNodeCount     int        `json:"readyNodeCount"`
	CompletedNodeCount int        `json:"completedNodeCount"`
	VerifierJobCount   int        `json:"verifierJobCount"`
	EvidenceCount      int        `json:"evidenceCount"`
	// Usage is the sum of what its sessions report, or nil if none does.
	Usage *programs.Usage `json:"usage,omitempty"`
}

// Field is one list of a detail.
type Field string

// The fields of GET /threads/:id.
const (
	FieldSessions     Field = "sessions"
	FieldDecisions    Field = "decisions"
	FieldEvents       Field = "events"
	FieldArtifacts    Field = "artifacts"
	FieldTranscripts  Field = "transcripts"
	FieldPending      Field = "pendingDecisions"
	FieldNodes        Field = "nodes"
	FieldDependencies Field = "dependencies"
	FieldClaims       Field = "claims"
	FieldMailbox      Field = "mailbox"
	FieldJobs         Field = "verifierJobs"
	FieldEvidence     Field = "evidence"
)

// Fields returns every field, in the order of the wire.
func Fields() []Field {
	return []Field{
		FieldSessions, FieldDecisions, FieldEvents, FieldArtifacts, FieldTranscripts, FieldPending, FieldNodes, FieldDependencies,
		FieldClaims, FieldMailbox, FieldJobs, FieldEvidence,
	}
}

// Selection selects the lists of a detail.
type Selection struct {
	Fields      []Field // nil: all
	Transcripts int     // number of the newest rows, at most MaxTranscript; 0: DefaultTranscript
}

// Detail is a thread with its lists, each in the order of creation. Lists that were not selected
// are nil and left out of the JSON.
type Detail struct {
	Summary
	Sessions         []row.Session         `json:"sessions,omitzero"`
	Decisions        []row.Decision        `json:"decisions,omitzero"`
	Events           []row.Event           `json:"events,omitzero"`
	Artifacts        []row.Artifact        `json:"artifacts,omitzero"`
	Transcripts      []row.TranscriptItem  `json:"transcripts,omitzero"`
	PendingDecisions []row.PendingDecision `json:"pendingDecisions,omitzero"`
	Nodes            []row.Node            `json:"nodes,omitzero"`
	Dependencies     []row.Dependency      `json:"dependencies,omitzero"`
	Claims           []row.Claim           `json:"claims,omitzero"`
	Mailbox          []row.MailboxItem     `json:"mailbox,omitzero"`
	VerifierJobs     []row.VerifierJob     `json:"verifierJobs,omitzero"`
	Evidence         []row.Evidence        `json:"evidence,omitzero"`
}

// MailQuery selects messages of a thread. Empty fields do not restrict.
type MailQuery struct {
	ThreadID  string
	NodeID    string
	Recipient string
	State     row.MailState
}
