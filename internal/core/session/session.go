// Package session stores the state of a conversation: its messages, and the last results
// of the commands that ran in it, so that a following command can refer to "the last
// response".
//
// Everything belongs to an [Owner]: a session id is unique only for its principal, so another
// principal cannot reach the session by its name. The rules are here, and the data is in a
// [Store], for example [NewMemory].
package session

import (
	"context"
	"encoding/json"
	"time"

	"github.com/junctor-run/junctor/capability"
)

const op = "session"

// Limits.
const (
	MaxMessageText     = 256 << 10 // bytes
	MaxMessageMetadata = 64 << 10  // bytes
	MaxMessages        = 10_000    // of a session; the oldest go first
	MaxSessions        = 1_000     // of a principal; the one idle longest goes first
	MaxPage            = 500       // messages or sessions of one answer
	maxPrincipal       = 256
	maxID              = 128
)

// Owner states whose session it is.
type Owner struct {
	Principal string
	Session   string
}

// Check returns invalid_input when the ids are not ids: a session is 1 to 128 of
// [A-Za-z0-9._:@-].
func (o Owner) Check() error {
	if o.Principal == "" || len(o.Principal) > maxPrincipal {
		return capability.Errorf(capability.CodeInvalidInput, op, "the session has no principal, or one beyond %d bytes", maxPrincipal)
	}
	if o.Session == "" {
		return capability.Errorf(capability.CodeInvalidInput, op, "this needs a session, and none is named (--session ID, session_id)").
			With("invalid_params", "")
	}
	if !ValidID(o.Session) {
		return capability.Errorf(capability.CodeInvalidInput, op, "a session id is 1 to %d letters, digits or any of . _ : @ -",
			maxID).With("invalid_params", "")
	}
	return nil
}

// ValidID holds an id of a session, user or extension to its grammar.
func ValidID(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == ':', c == '@', c == '-':
		default:
			return false
		}
	}
	return s != "" && len(s) <= maxID
}

// Roles of messages.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleSystem    = "system" // junctor's own notices
)

// Message is one message of a session.
type Message struct {
	Seq      int64           `json:"seq"` // from 1, growing; gaps mean nothing
	Role     string          `json:"role"`
	Text     string          `json:"text"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // a JSON object, or nil
	Time     time.Time       `json:"time"`
}

// Info is a session of a list.
type Info struct {
	Session  string    `json:"session"`
	Messages int       `json:"messages"`
	Created  time.Time `json:"created"`
	Active   time.Time `json:"active"` // when its last message came
}

// Result is what ran last: the text of it, and whence it came.
type Result struct {
	Text      string    `json:"-"`
	Saved     time.Time `json:"timestamp"`
	Extension string    `json:"extension_id"` // or the module of another capability
	Command   string    `json:"command,omitempty"`
	Action    string    `json:"action,omitempty"`
	Tool      string    `json:"tool,omitempty"`
	Run       string    `json:"run_id,omitempty"`
	Type      string    `json:"content_type,omitempty"`
	Truncated bool      `json:"truncated,omitempty"`
}

// Stats are figures about the kept results.
type Stats struct {
	Entries int   `json:"total_entries"`
	Bytes   int64 `json:"total_size_bytes"`
	TTL     int   `json:"ttl_hours"`
	Max     int   `json:"max_response_size"`
}

// Store keeps messages and results. Implementations are safe for concurrent use,
// decide nothing, and copy what they are given; sessiontest holds what they
// promise. Times come from the caller.
type Store interface {
	// AppendMessage adds a message, begins the session with its first one, and
	// drops what is beyond the bounds. It returns the message's Seq.
	AppendMessage(ctx context.Context, o Owner, m Message, b Bounds) (int64, error)
	// Messages returns up to limit messages with a Seq beyond after, oldest first.
	Messages(ctx context.Context, o Owner, after int64, limit int) ([]Message, error)
	// RecentMessages returns the last limit messages, oldest first.
	RecentMessages(ctx context.Context, o Owner, limit int) ([]Message, error)
	// Sessions returns up to limit sessions of a principal, the last active first.
	Sessions(ctx context.Context, principal string, limit int) ([]Info, error)
	// DeleteSession drops messages and results; false when there was nothing.
	DeleteSession(ctx context.Context, o Owner) (bool, error)
	// SweepSessions drops sessions that were last active before a time, with
	// their results, and states how many there were.
	SweepSessions(ctx context.Context, before time.Time) (int, error)

	// PutResult replaces the result of (owner, extension), then drops those that
	// were used longest ago until at most most.Bytes of text and most.Entries are
	// left; the new one always stays.
	PutResult(ctx context.Context, o Owner, r Result, most ResultBounds) error
	// LastResult returns the result of the extension, or, if extension is "", the
	// one of the owner that was saved last; those saved before a time are not
	// there. It counts as a use at now.
	LastResult(ctx context.Context, o Owner, extension string, before, now time.Time) (Result, bool, error)
	// ClearResults drops the results of an owner.
	ClearResults(ctx context.Context, o Owner) error
	// ClearAllResults drops all results.
	ClearAllResults(ctx context.Context) error
	// SweepResults drops the results saved before a time and states how many.
	SweepResults(ctx context.Context, before time.Time) (int, error)
	// ResultStats counts the results and their bytes of text.
	ResultStats(ctx context.Context) (entries int, bytes int64, err error)
}

// ResultBounds are how much is kept of all results together.
type ResultBounds struct {
	Bytes   int64
	Entries int
}

// Bounds are how much is kept of messages.
type Bounds struct {
	Messages int // of the session
	Sessions int // of the principal
}
