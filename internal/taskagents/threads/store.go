package threads

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Store keeps the rows. Implementations hold no rules: those are the [Registry]'s.
type Store interface {
	// Change runs f in one transaction: all of it is kept, or nothing. No other change
	// of that thread runs meanwhile. f may run more than once. A thread that is to be
	// created has an id already.
	Change(ctx context.Context, thread string, f func(Tx) error) error
	// Get reads the row that [row.Key] of r names into r.
	Get(ctx context.Context, r row.Row) (ok bool, err error)
	// Live returns the sessions that are active, blocked or tool_running, of all threads.
	Live(ctx context.Context) ([]row.Session, error)
	// Pending returns all pending decisions, the oldest first, MaxPending at most.
	Pending(ctx context.Context) ([]row.PendingDecision, error)
	// Mail returns messages in the order they were put.
	Mail(ctx context.Context, q MailQuery) ([]row.MailboxItem, error)
	// Threads returns what the filter selects, as [Registry.List] says; Count, how many
	// there are without the limit.
	Threads(ctx context.Context, f Filter) ([]Summary, error)
	Count(ctx context.Context, f Filter) (int, error)
	// Detail reads a thread at one moment: the summary, and the lists that s asks for.
	Detail(ctx context.Context, thread string, s Selection) (d Detail, ok bool, err error)
}

// Tx is one transaction of [Store.Change].
type Tx interface {
	// Graph reads the thread with what its statuses follow from. It must be read before
	// anything is written.
	Graph(ctx context.Context) (g Graph, ok bool, err error)
	// Get is [Store.Get] in the transaction.
	Get(ctx context.Context, r row.Row) (ok bool, err error)
	// Insert and Update write rows that were cleaned, Update those whose [row.Key] is
	// there; Remove ends one.
	Insert(ctx context.Context, r row.Row) error
	Update(ctx context.Context, r row.Row) error
	Remove(ctx context.Context, r row.Row) error
	// Count is how many rows of r's table the thread has.
	Count(ctx context.Context, r row.Row) (int, error)
	// TrimEvents removes the oldest events beyond keep.
	TrimEvents(ctx context.Context, keep int) error
	// TrimTranscript removes a session's oldest rows when they have more than limit bytes,
	// each row counted with RowOverhead more, until they have three quarters of it, and
	// puts what marker makes in their place: of how many rows and bytes are gone, those
	// that earlier markers stood for among them.
	TrimTranscript(ctx context.Context, session string, limit int, marker func(last row.TranscriptItem, gone Gone) row.TranscriptItem) error
}

// RowOverhead is what a row of a transcript counts beside its content, in bytes.
const RowOverhead = 128

// Gone is what a marker in a transcript stands for.
type Gone struct {
	Rows  int   `json:"droppedRows"`
	Bytes int64 `json:"droppedBytes"`
}

// Graph is a thread with all that its status and its nodes' statuses follow from. Jobs
// are those that have not ended.
type Graph struct {
	Thread       row.Thread
	Sessions     []row.Session // in the order they were registered
	Nodes        []row.Node
	Dependencies []row.Dependency
	Claims       []row.Claim
	Jobs         []row.VerifierJob
}

// Limits of lists.
const (
	DefaultLimit = 50
	MaxLimit     = 500
	MaxPending   = 1000
	// DefaultTranscript and MaxTranscript are how many rows of transcripts a detail has,
	// the newest; together at most MaxTranscriptBytes.
	DefaultTranscript  = 500
	MaxTranscript      = 10_000
	MaxTranscriptBytes = 8 << 20
	// MaxListed is how many characters of a request and of a summary lists show.
	MaxListed = 4000
)

// Filter selects threads; what is empty selects all. Times are inclusive.
type Filter struct {
	Archived       bool // archived ones too
	Statuses       []row.ThreadStatus
	Kind           row.ThreadKind
	RoomID         string
	WorldID        string
	OwnerUserID    string
	AgentID        string // the principal that made it
	ScenarioID     string
	BatchID        string
	CreatedAfter   time.Time
	CreatedBefore  time.Time
	UpdatedAfter   time.Time
	UpdatedBefore  time.Time
	ActivityAfter  time.Time
	ActivityBefore time.Time
	Active         *bool // with a live session, or without
	// Search are words that must all occur, as parts of words too, in title, request,
	// summary or metadata. Letters match in either case. At most 1 KiB, 16 words.
	Search string
	Limit  int // 1 to MaxLimit; 0: DefaultLimit
}

// Summary is a thread as lists show it. LatestSession is the one registered last.
type Summary struct {
	row.Thread
	SessionCount       int        `json:"sessionCount"`
	ActiveSessionCount int        `json:"activeSessionCount"`
	LatestSessionID    string     `json:"latestSessionId"`
	LatestSessionLabel string     `json:"latestSessionLabel"`
	LatestWorkdir      string     `json:"latestWorkdir"`
	LatestRepo         string     `json:"latestRepo"`
	LatestActivityAt   row.Millis `json:"latestActivityAt"` // of its sessions, else its creation
	DecisionCount      int        `json:"decisionCount"`
	NodeCount          int        `json:"nodeCount"`
	ReadyNodeCount     int        `json:"readyNodeCount"`
	CompletedNodeCount int        `json:"completedNodeCount"`
	VerifierJobCount   int        `json:"verifierJobCount"`
	EvidenceCount      int        `json:"evidenceCount"`
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

// Selection states what of a thread is read.
type Selection struct {
	Fields      []Field // nil: all
	Transcripts int     // the newest; 0: DefaultTranscript, at most MaxTranscript
}

// Detail is a thread with its lists, each in the order it was written; those that were
// not asked for are nil and stay off the wire.
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

// MailQuery selects messages of a thread; what is empty selects all.
type MailQuery struct {
	ThreadID  string
	NodeID    string
	Recipient string
	State     row.MailState
}
