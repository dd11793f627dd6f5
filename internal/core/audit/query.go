package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/junctor-run/junctor/capability"
)

// Query selects records: every field that is set must match. Strings must be equal.
type Query struct {
	Extension  string
	Event      Event
	Session    string
	User       string
	Run        string
	Capability string // capability id, or an action
	Provider   string
	Parent     string // the invocation or task that made the call
	Approval   string // the approval that the record is about, or that permitted the call
	Level      Level  // this level and above
	Since      time.Time
	Until      time.Time // exclusive
	Success    *bool
	Before     uint64 // only records before this number; for paging
	Limit      int    // 0: the configured default
}

// Entry is the row of the index for one record: the fields for queries, and the position of
// its line.
type Entry struct {
	Seq        uint64
	Segment    uint64
	Offset     int64
	Length     int // of the line without its newline
	Time       time.Time
	Level      Level
	Event      Event
	Extension  string
	Action     string
	Capability string
	Session    string
	User       string
	Run        string
	Provider   string
	Parent     string
	Approval   string
	Success    *bool
}

// Checkpoint is a proof that record Seq with hash Hash (hex) was logged.
type Checkpoint struct {
	Seq  uint64
	Hash string
	At   time.Time
	// Coded is the number of the first record that has a code, or 0 if none has. It reveals that
	// codes were removed from the whole log to append records without any.
	Coded uint64
	// MAC is the code of the other fields under the key of the home; empty without a key.
	MAC string
}

// Position is the end of the indexed part: record Seq with hash Hash.
type Position struct {
	Seq     uint64
	Hash    string
	Segment uint64
	Offset  int64
}

// Index finds records. It is a copy that Reset empties and the log fills again. Checkpoints
// survive Reset.
type Index interface {
	// Position returns the zero value for an empty index.
	Position(ctx context.Context) (Position, error)
	// Add stores entries, in rising order, and the new position in one transaction.
	Add(ctx context.Context, entries []Entry, at Position) error
	Reset(ctx context.Context) error
	// Forget removes the entries and checkpoints of records before seq, except the checkpoint
	// of record seq-1.
	Forget(ctx context.Context, seq uint64) error
	// Find returns at most q.Limit matches, newest first.
	Find(ctx context.Context, q Query) ([]Entry, error)
	// Usage counts the calls of q, which the caller has checked, by the events of [Ends].
	Usage(ctx context.Context, q UsageQuery) ([]Usage, error)
	AddCheckpoint(ctx context.Context, c Checkpoint) error
	// Checkpoints returns at most limit checkpoints with Seq > after, rising.
	Checkpoints(ctx context.Context, after uint64, limit int) ([]Checkpoint, error)
}

// view is the decoded part of a record's line.
type view struct {
	Timestamp time.Time `json:"timestamp"`
	Level     Level     `json:"level"`
	Event     Event     `json:"event"`
	Extension string    `json:"extension_id"`
	Action    string    `json:"action"`
	Runner    string    `json:"runner"`
	Session   string    `json:"session_id"`
	User      string    `json:"user_id"`
	Success   *bool     `json:"success"`
	Metadata  struct {
		RunID      string          `json:"run_id"`
		Capability string          `json:"capability_id"`
		Effect     string          `json:"effect"`
		Provider   string          `json:"provider"`
		Parent     string          `json:"parent"`
		Approval   string          `json:"approval"`
		Code       capability.Code `json:"code"`
		Decision   struct {
			Approval string `json:"approval"`
		} `json:"decision"`
	} `json:"metadata"`
}

// read decodes a line. A name may occur twice: earlier builds wrote attributes with the names of members.
func (v *view) read(data []byte) error {
	return jsonv2.Unmarshal(data, v, jsontext.AllowDuplicateNames(true))
}

func (v *view) call(seq uint64) openCall {
	return openCall{
		Run: v.Metadata.RunID, Extension: v.Extension, Action: v.Action, Runner: v.Runner, Session: v.Session,
		User: v.User, Capability: v.Metadata.Capability, Effect: v.Metadata.Effect, Seq: seq,
	}
}

func (v *view) entry(ln line, seq uint64) Entry {
	return Entry{
		Seq: seq, Segment: ln.segment, Offset: ln.offset, Length: len(ln.data), Time: v.Timestamp, Level: v.Level,
		Event: v.Event, Extension: v.Extension, Action: v.Action, Capability: v.Metadata.Capability,
		Session: v.Session, User: v.User, Run: v.Metadata.RunID, Success: v.Success, Provider: v.Metadata.Provider,
		Parent: v.Metadata.Parent, Approval: cmp.Or(v.Metadata.Approval, v.Metadata.Decision.Approval),
	}
}

// Match reports whether e fits q; the caller applies Limit.
func (q Query) Match(e Entry) bool {
	eq := func(want, got string) bool { return want == "" || want == got }
	return eq(q.Extension, e.Extension) && eq(string(q.Event), string(e.Event)) && eq(q.Session, e.Session) &&
		eq(q.User, e.User) && eq(q.Run, e.Run) &&
		eq(q.Provider, e.Provider) && eq(q.Parent, e.Parent) && eq(q.Approval, e.Approval) &&
		(q.Capability == "" || q.Capability == e.Capability || q.Capability == e.Action) &&
		(q.Level == "" || e.Level.Rank() >= q.Level.Rank()) &&
		(q.Since.IsZero() || !e.Time.Before(q.Since)) && (q.Until.IsZero() || e.Time.Before(q.Until)) &&
		(q.Success == nil || e.Success != nil && *q.Success == *e.Success) &&
		(q.Before == 0 || e.Seq < q.Before)
}

// Query returns the lines of the matching records, newest first. It updates the index first. If
// the log has no index, or its database is unavailable, it reads the segments.
func (l *Log) Query(ctx context.Context, q Query) ([]json.RawMessage, error) {
	if q.Limit <= 0 {
		q.Limit = l.cfg.QueryLimit
	}
	if l.cfg.Index == nil {
		return l.search(ctx, q)
	}
	for attempt := 0; ; attempt++ {
		err := l.catchUp(ctx)
		var found []Entry
		if err == nil {
			found, err = l.cfg.Index.Find(ctx, q)
		}
		if capability.CodeOf(err) == capability.CodeUnavailable { // the database is unreachable, but the segments are local
			return l.search(ctx, q)
		}
		if err != nil {
			return nil, err
		}
		out, stale, err := l.fetch(found)
		if !stale || attempt > 0 {
			return out, err
		}
		// The index does not match the files, which were restored or replaced.
		if err := l.resetIndex(ctx); err != nil {
			return nil, err
		}
	}
}

// Denied returns the lines of the calls that were refused and match q, newest first. A call that needs an
// approval was not refused; earlier versions recorded it as [PermissionDenied], too.
func (l *Log) Denied(ctx context.Context, q Query) ([]json.RawMessage, error) {
	q.Limit = cmp.Or(q.Limit, l.cfg.QueryLimit)
	return deniedOf(func(q Query) ([]json.RawMessage, error) { return l.Query(ctx, q) }, q)
}

// deniedOf implements Denied over the pages that find returns.
func deniedOf(find func(Query) ([]json.RawMessage, error), q Query) ([]json.RawMessage, error) {
	q.Event = PermissionDenied
	var out []json.RawMessage
	for {
		page, err := find(q)
		if err != nil {
			return nil, err
		}
		for _, line := range page {
			var v view
			if err := v.read(line); err == nil && v.Metadata.Code != capability.CodeApprovalRequired && len(out) < q.Limit {
				out = append(out, line)
			}
		}
		if len(page) < q.Limit || len(out) == q.Limit {
			return out, nil
		}
		last, ok := parseLink(page[len(page)-1])
		if !ok {
			return out, nil
		}
		q.Before = last.seq
	}
}
