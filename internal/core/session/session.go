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

// Owner identifies a session: its principal and its id.
type Owner struct {
	Principal string
	Session   string
}

// Check returns invalid_input if an id is malformed. A session id is 1 to 128 characters of
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

// ValidID reports whether s has the form of an id of a session, user or extension.
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
	Seq      int64           `json:"seq"` // from 1, increasing; gaps are normal
	Role     string          `json:"role"`
	Text     string          `json:"text"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // a JSON object, or nil
	Time     time.Time       `json:"time"`
}

// Info is one session in a list.
type Info struct {
	Session  string    `json:"session"`
	Messages int       `json:"messages"`
	Created  time.Time `json:"created"`
	Active   time.Time `json:"active"` // time of the last message
}

// Result is the stored result of a run, with its source.
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

// Stats holds figures about the stored results.
type Stats struct {
	Entries int   `json:"total_entries"`
	Bytes   int64 `json:"total_size_bytes"`
	TTL     int   `json:"ttl_hours"`
	Max     int   `json:"max_response_size"`
}

// Store stores messages and results. Implementations must be safe for concurrent use, must copy
// their arguments, and must pass the suite in sessiontest. Times come from the caller.
type Store interface {
	// AppendMessage adds a message, creates the session with its first one, and drops messages
	// and sessions beyond the bounds. It returns the message's Seq.
	AppendMessage(ctx context.Context, o Owner, m Message, b Bounds) (int64, error)
	// Messages returns up to limit messages with a Seq beyond after, oldest first.
	Messages(ctx context.Context, o Owner, after int64, limit int) ([]Message, error)
	// RecentMessages returns the last limit messages, oldest first.
	RecentMessages(ctx context.Context, o Owner, limit int) ([]Message, error)
	// Sessions returns up to limit sessions of a principal, the last active first.
	Sessions(ctx context.Context, principal string, limit int) ([]Info, error)
	// DeleteSession deletes messages and results. It returns false if there were none.
	DeleteSession(ctx context.Context, o Owner) (bool, error)
	// SweepSessions deletes sessions that were last active before a time, with their results,
	// and returns their number.
	SweepSessions(ctx context.Context, before time.Time) (int, error)

	// PutResult replaces the result of (owner, extension). Then it drops the least recently
	// used results until at most most.Bytes of text and most.Entries are left; the new one
	// always stays.
	PutResult(ctx context.Context, o Owner, r Result, most ResultBounds) error
	// LastResult returns the result of the extension or, if extension is "", the owner's last
	// saved one. Results saved before the time before are ignored. The call counts as a use
	// at now.
	LastResult(ctx context.Context, o Owner, extension string, before, now time.Time) (Result, bool, error)
	// ClearResults drops the results of an owner.
	ClearResults(ctx context.Context, o Owner) error
	// SweepResults deletes the results saved before a time and returns their number.
	SweepResults(ctx context.Context, before time.Time) (int, error)
	// ResultStats counts the results and their bytes of text.
	ResultStats(ctx context.Context) (entries int, bytes int64, err error)
}
