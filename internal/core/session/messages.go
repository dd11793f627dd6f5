package session

import (
	"context"
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// MessagesConfig tunes Messages. The zero value of every member but Store is the
// default.
type MessagesConfig struct {
	Store Store
	Now   func() time.Time
	// Keep is how long a session is stored after its last message; 0 means 30 days.
	Keep   time.Duration
	Bounds Bounds // zero members mean MaxMessages and MaxSessions
}

// Messages stores the messages of sessions. It is safe for concurrent use.
type Messages struct{ cfg MessagesConfig }

// NewMessages returns a Messages with the given store and the defaults for zero members.
func NewMessages(cfg MessagesConfig) *Messages {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Keep <= 0 {
		cfg.Keep = 30 * 24 * time.Hour
	}
	if cfg.Bounds.Messages <= 0 {
		cfg.Bounds.Messages = MaxMessages
	}
	if cfg.Bounds.Sessions <= 0 {
		cfg.Bounds.Sessions = MaxSessions
	}
	return &Messages{cfg}
}

// Append adds a message and returns it with its Seq and Time. The first message creates the
// session. Text beyond [MaxMessageText], or not UTF-8, is too_large from a user; from other
// roles it is cut. Metadata is a JSON object of at most [MaxMessageMetadata] bytes, without
// sensitive values. Other errors: invalid_input for a malformed id, role or metadata.
func (s *Messages) Append(ctx context.Context, o Owner, role, text string, metadata json.RawMessage) (Message, error) {
	if err := o.Check(); err != nil {
		return Message{}, err
	}
	if !slices.Contains([]string{RoleUser, RoleAssistant, RoleSystem}, role) {
		return Message{}, capability.Errorf(capability.CodeInvalidInput, op, "the role of a message is %s, %s or %s", RoleUser, RoleAssistant,
			RoleSystem)
	}
	if role == RoleUser && (len(text) > MaxMessageText || !utf8.ValidString(text)) {
		return Message{}, capability.Errorf(capability.CodeTooLarge, op, "a message is UTF-8 text of at most %d bytes", MaxMessageText)
	}
	if len(metadata) > MaxMessageMetadata {
		return Message{}, capability.Errorf(capability.CodeTooLarge, op, "the metadata of a message has at most %d bytes", MaxMessageMetadata)
	}
	if len(metadata) > 0 && (!jsonx.Valid(metadata) || jsonx.Unmarshal(metadata, &map[string]jsonx.Raw{}) != nil) {
		return Message{}, capability.Errorf(capability.CodeInvalidInput, op, "the metadata of a message is not a JSON object")
	}
	m := Message{Role: role, Metadata: metadata, Time: s.cfg.Now().UTC()}
	m.Text, _ = Cut(text, MaxMessageText)
	seq, err := s.cfg.Store.AppendMessage(ctx, o, m, s.cfg.Bounds)
	m.Seq = seq
	return m, err
}

// List returns messages after a Seq (0: from the first), oldest first. limit is clamped to
// 1..[MaxPage]. For a missing session it returns none.
func (s *Messages) List(ctx context.Context, o Owner, after int64, limit int) ([]Message, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	return s.cfg.Store.Messages(ctx, o, after, page(limit))
}

// Recent returns the last messages, oldest first. limit is clamped to 1..[MaxPage].
func (s *Messages) Recent(ctx context.Context, o Owner, limit int) ([]Message, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	return s.cfg.Store.RecentMessages(ctx, o, page(limit))
}

// Sessions returns the sessions of a principal, the last active first.
func (s *Messages) Sessions(ctx context.Context, principal string, limit int) ([]Info, error) {
	return s.cfg.Store.Sessions(ctx, principal, page(limit))
}

// Delete deletes a session with its results. The error is not_found if it does not exist.
func (s *Messages) Delete(ctx context.Context, o Owner) error {
	if err := o.Check(); err != nil {
		return err
	}
	ok, err := s.cfg.Store.DeleteSession(ctx, o)
	if err == nil && !ok {
		return capability.Errorf(capability.CodeNotFound, op, "there is no session %q", o.Session).With("no_session", "")
	}
	return err
}

// Sweep deletes sessions without a message for MessagesConfig.Keep and returns their number.
func (s *Messages) Sweep(ctx context.Context) (int, error) {
	return s.cfg.Store.SweepSessions(ctx, s.cfg.Now().Add(-s.cfg.Keep))
}

func page(limit int) int { return min(max(limit, 1), MaxPage) }
