package threads

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Registration describes a new session. Session.SessionID is required; an empty status means
// active. The registry sets id, counters and times.
type Registration struct {
	ThreadID string
	Session  row.Session
	Node     string // the node it works on; "": that of the first replaced session, or none
	// Replaces lists sessions that this one continues, after a failure or to resume. They do not
	// count any more and cannot become live again.
	Replaces []string
}

// Register adds a session that claims its node, and marks replaced ones as stopped. Errors:
// conflict, reason wrong_state, if the session exists, the thread is archived, paused or stopped,
// or the node is not ready or belongs to another live session; overloaded; not_found.
func (r *Registry) Register(ctx context.Context, in Registration) (Moved, error) {
	return r.change(ctx, in.ThreadID, func(w *work) error {
		t := &w.g.Thread
		switch control := row.Meta(t.Metadata, row.ControlState); {
		case t.Status == row.ThreadArchived:
			return wrongState("reopen it first", "the thread is archived")
		case control != "":
			return wrongState("resume it first", "the thread is %s", control)
		case len(w.g.Sessions) >= MaxSessions:
			return full("task_sessions", MaxSessions)
		}
		other := row.Session{SessionID: in.Session.SessionID}
		if ok, err := w.Get(w.ctx, &other); err != nil || ok {
			if err == nil {
				err = wrongState("register it once", "a session %q is registered already", other.SessionID)
			}
			return err
		}
		s := in.Session
		now := row.At(w.now)
		s.ID, s.ThreadID, s.DecisionCount, s.AutoResolvedCount = row.NewID("ses"), t.ID, 0, 0
		s.RegisteredAt, s.LastActivityAt, s.CreatedAt, s.UpdatedAt = now, now, w.now, w.now
		s.Metadata = row.WithMeta(row.WithMeta(s.Metadata, row.ReplacedBy, ""), row.Gateway, r.gateway)
		if s.Status == "" {
			s.Status = row.SessionActive
		}
		node := in.Node
		for _, old := range in.Replaces {
			freed, err := w.replace(old, s.SessionID)
			if err != nil {
				return err
			}
			if node == "" {
				node = freed
			}
		}
		w.stop(&s)
		w.g.Sessions = append(w.g.Sessions, s)
		if node != "" {
			if err := w.claim(node, s); err != nil {
				return err
			}
		}
		w.event(row.SessionRegistered, s.SessionID, s.Label, struct {
			Framework string   `json:"framework"`
			Node      string   `json:"nodeId,omitzero"`
			Replaces  []string `json:"replaces,omitzero"`
		}{s.Framework, node, in.Replaces})
		return nil
	})
}

// replace marks the session old as replaced by another one, stops it if it is live, and returns
// the node that it had.
func (w *work) replace(old, by string) (freed string, err error) {
	s, err := w.session(old)
	if err != nil {
		return "", err
	}
	if replaced(*s) {
		return "", wrongState("replace the one that goes on for it", "the session %q is replaced already", old)
	}
	s.Metadata = row.WithMeta(s.Metadata, row.ReplacedBy, by)
	if was := s.Status; was.Live() {
		s.Status = row.SessionStopped
		w.stop(s)
		w.event(row.SessionUpdated, old, fmt.Sprintf("%s → %s", was, s.Status), fromTo{string(was), string(s.Status)})
	}
	for i := range w.g.Nodes {
		if n := &w.g.Nodes[i]; n.AssignedSessionID == old {
			freed, n.AssignedSessionID, n.Status = n.ID, "", row.NodePlanned
		}
	}
	return freed, nil
}

// stop sets or clears StoppedAt by the status.
func (w *work) stop(s *row.Session) {
	switch {
	case s.Status.Live():
		s.StoppedAt = 0
	case s.StoppedAt == 0:
		s.StoppedAt = row.At(w.now)
	}
}

// claim assigns a node to a session. It fails with wrong_state if the node is a goal, is not
// ready, or belongs to a live session.
func (w *work) claim(id string, s row.Session) error {
	n, err := w.node(id)
	if err != nil {
		return err
	}
	if n.AssignedSessionID == "" {
		settleNodes(&w.g) // a freed node may be ready now
	}
	holder, err := w.session(n.AssignedSessionID)
	switch {
	case n.AssignedSessionID != "" && err != nil:
		return err
	case n.AssignedSessionID != "" && holder.Status.Live():
		return wrongState("stop that session, or replace it", "the node %q is worked at by the session %q", id, n.AssignedSessionID)
	case n.Kind == row.GoalNode:
		return wrongState("claim one of its parts", "the node %q is the goal of the thread", id)
	case n.AssignedSessionID == "" && n.Status != row.NodeReady:
		return wrongState("wait for what it depends on", "the node %q is %s", id, n.Status)
	}
	n.AssignedSessionID, n.AgentType = s.SessionID, s.Framework
	if s.Label != "" {
		n.AssignedLabel = s.Label
	}
	w.g.Claims = append(w.g.Claims, row.Claim{
		ID: row.NewID("clm"), ThreadID: s.ThreadID, NodeID: id, SessionID: s.SessionID, ClaimType: row.ClaimExecution, Status: row.ClaimActive,
		ClaimedAt: w.now,
	})
	return nil
}

// owned returns the keys of a session's metadata that an update cannot change.
func owned() []string { return []string{row.ReplacedBy, row.Gateway} }

// UpdateSession changes a session with f. f may be called more than once, and must replace
// documents instead of modifying them. Changes of ids, registration, counts of decisions and owned
// metadata are undone. A change of status, delivery or summary writes an event. It fails with
// wrong_state if a replaced session would become live, and with not_found.
func (r *Registry) UpdateSession(ctx context.Context, session string, f func(*row.Session)) (Moved, error) {
	return r.changeOf(ctx, session, func(w *work, s *row.Session) error {
		was := *s
		f(s)
		s.ID, s.ThreadID, s.AgentID, s.SessionID, s.RegisteredAt, s.CreatedAt = was.ID, was.ThreadID, was.AgentID, was.SessionID,
			was.RegisteredAt, was.CreatedAt
		s.DecisionCount, s.AutoResolvedCount = was.DecisionCount, was.AutoResolvedCount
		for _, key := range owned() {
			if kept := row.Meta(was.Metadata, key); kept != row.Meta(s.Metadata, key) {
				s.Metadata = row.WithMeta(s.Metadata, key, kept)
			}
		}
		if replaced(*s) && s.Status.Live() {
			return wrongState("use the session that goes on for it", "the session %q was replaced and has ended", session)
		}
		w.stop(s)
		switch {
		case s.Status == row.SessionInterrupted && was.Status != s.Status:
			w.event(row.SessionInterrupt, session, "", fromTo{string(was.Status), string(s.Status)})
		case s.Status != was.Status:
			w.event(row.SessionUpdated, session, fmt.Sprintf("%s → %s", was.Status, s.Status), fromTo{string(was.Status), string(s.Status)})
		case s.TaskDelivered != was.TaskDelivered:
			w.event(row.SessionUpdated, session, "the task was delivered", nil)
		case s.CompletionSummary != was.CompletionSummary:
			w.event(row.SessionUpdated, session, "the summary has changed", nil)
		}
		return nil
	})
}

const metaUsage = "usage" // of a session: its programs.Usage

// Spend stores the usage of a session so far. It fails with not_found.
func (r *Registry) Spend(ctx context.Context, session string, u programs.Usage) error {
	var failed error
	_, err := r.UpdateSession(ctx, session, func(s *row.Session) {
		var meta json.RawMessage
		if meta, failed = row.WithMember(s.Metadata, metaUsage, u); failed == nil {
			s.Metadata = meta
		}
	})
	return cmp.Or(err, failed)
}

// UsageOf returns the usage in the metadata of a session, or nil.
func UsageOf(metadata json.RawMessage) *programs.Usage {
	var m struct {
		Usage *programs.Usage `json:"usage"`
	}
	if len(metadata) == 0 || jsonx.Unmarshal(metadata, &m) != nil {
		return nil
	}
	return m.Usage
}

// RefusalsOf returns the list of refused tool calls in the metadata of a session, or nil.
func RefusalsOf(metadata json.RawMessage) json.RawMessage {
	var m struct {
		Refusals json.RawMessage `json:"refusals"`
	}
	if len(metadata) == 0 || jsonx.Unmarshal(metadata, &m) != nil {
		return nil
	}
	return m.Refusals
}

// UpdateThread changes the title, kind, summary, criteria, plan, owner, turn times and metadata of
// a thread with f. Changes of other columns are undone, as in [Registry.UpdateSession].
func (r *Registry) UpdateThread(ctx context.Context, thread string, f func(*row.Thread)) (Moved, error) {
	return r.change(ctx, thread, func(w *work) error {
		t, was := &w.g.Thread, w.g.Thread
		f(t)
		t.ID, t.AgentID, t.Status, t.OriginalRequest = was.ID, was.AgentID, was.Status, was.OriginalRequest
		t.CreatedAt, t.ClosedAt, t.ArchivedAt, t.UpdatedAt = was.CreatedAt, was.ClosedAt, was.ArchivedAt, was.UpdatedAt
		if kept := row.Meta(was.Metadata, row.ControlState); kept != row.Meta(t.Metadata, row.ControlState) {
			t.Metadata = row.WithMeta(t.Metadata, row.ControlState, kept)
		}
		if t.Summary != was.Summary {
			w.event(row.SummaryUpdated, "", "", nil)
		}
		return nil
	})
}

// Tell stores the message about a thread's end and writes the event swarm_complete. first is false
// if the thread has not ended or this end was stored before, so that of several concurrent callers
// exactly one reports the end.
func (r *Registry) Tell(ctx context.Context, thread, text string) (m Moved, first bool, err error) {
	m, err = r.change(ctx, thread, func(w *work) error {
		first = false
		t := &w.g.Thread
		if Told(*t, len(w.g.Sessions)) || !t.Status.Closed() {
			return nil
		}
		first = true
		t.Metadata, t.Summary = row.WithMeta(t.Metadata, row.ToldEnd, endOf(*t, len(w.g.Sessions))), text
		w.event(row.SwarmComplete, "", text, nil)
		return nil
	})
	return m, first && err == nil, err
}

// Told reports whether the current end of a thread has been stored by Tell.
func Told(t row.Thread, sessions int) bool {
	return row.Meta(t.Metadata, row.ToldEnd) == endOf(t, sessions)
}

// endOf returns the id of a thread's current end, because a thread may continue and end again.
func endOf(t row.Thread, sessions int) string {
	return strconv.FormatInt(t.ClosedAt.UnixMilli(), 10) + "/" + strconv.Itoa(sessions)
}

// SetNode sets the status of a part without session: running or completed if its work is done
// without a session, failed, canceled, or planned. Nodes that depend on it are updated. It fails
// with wrong_state for a goal or a node with a session.
func (r *Registry) SetNode(ctx context.Context, thread, node string, status row.NodeStatus) (Moved, error) {
	return r.change(ctx, thread, func(w *work) error {
		n, err := w.node(node)
		if err != nil {
			return err
		}
		allowed := []row.NodeStatus{
			row.NodePlanned, row.NodeRunning, row.NodeVerifying, row.NodeWaiting, row.NodeCompleted, row.NodeFailed,
			row.NodeCanceled,
		}
		if n.AssignedSessionID != "" || n.Kind == row.GoalNode || !slices.Contains(allowed, status) {
			return wrongState("set the status of its session", "the node %q cannot be set to %s: it follows from what it is part of", node, status)
		}
		if was := n.Status; was != status {
			n.Status = status
			w.event(row.NodeChanged, "", fmt.Sprintf("%s: %s → %s", n.Title, was, status), struct {
				Node string `json:"nodeId"`
				fromTo
			}{node, fromTo{string(was), string(status)}})
		}
		return nil
	})
}
