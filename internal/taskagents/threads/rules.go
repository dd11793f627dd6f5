package threads

import (
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Status derives the status of a thread from its sessions, without replaced ones, and from the
// parts without session: one that is ready will be started, so that the thread has not ended yet.
func Status(t row.Thread, sessions []row.Session, nodes []row.Node) row.ThreadStatus {
	if t.Status == row.ThreadArchived {
		return t.Status
	}
	var active, waiting, blocked, cut, ready, failed, any bool
	for _, n := range nodes {
		if n.Kind == row.ExecutionNode && n.AssignedSessionID == "" {
			ready = ready || n.Status == row.NodeReady
			failed = failed || n.Status == row.NodeFailed
		}
	}
	for _, s := range sessions {
		if replaced(s) {
			continue
		}
		any = true
		switch s.Status {
		case row.SessionActive, row.SessionToolRunning:
			active = true
		case row.SessionWaiting:
			waiting = true
		case row.SessionBlocked:
			blocked = true
		case row.SessionInterrupted, row.SessionStopped:
			cut = true
		case row.SessionError:
			failed = true
		}
	}
	control := row.Meta(t.Metadata, row.ControlState)
	switch {
	case control == row.Paused && !active && !blocked:
		return row.ThreadWaiting
	case control == row.Halted && !active && !blocked && !waiting:
		return row.ThreadInterrupted
	case !any:
		return row.ThreadOpen
	case active:
		return row.ThreadActive
	case waiting:
		return row.ThreadWaiting
	case blocked:
		return row.ThreadBlocked
	case cut:
		return row.ThreadInterrupted
	case ready:
		return row.ThreadActive
	case failed:
		return row.ThreadFailed
	}
	return row.ThreadDone
}

func replaced(s row.Session) bool { return row.Meta(s.Metadata, row.ReplacedBy) != "" }

// TaskState returns the state of the Task that represents a thread. It cannot distinguish a
// required login from another question to the user. ok is false for an archived thread, whose Task
// keeps its state.
func TaskState(t row.Thread) (state tasks.State, ok bool) {
	switch t.Status {
	case row.ThreadOpen:
		return tasks.Submitted, true
	case row.ThreadActive, row.ThreadValidating:
		return tasks.Working, true
	case row.ThreadWaiting, row.ThreadBlocked:
		return tasks.InputRequired, true
	case row.ThreadDone:
		return tasks.Completed, true
	case row.ThreadFailed:
		return tasks.Failed, true
	case row.ThreadInterrupted:
		if row.Meta(t.Metadata, row.ControlState) == row.Halted {
			return tasks.Cancelled, true
		}
		return tasks.Interrupted, true
	}
	return "", false
}

// nodeOf returns the status of the node that a session works on.
func nodeOf(s row.Session, verifying bool) row.NodeStatus {
	switch s.Status {
	case row.SessionActive, row.SessionToolRunning:
		switch {
		case verifying:
			return row.NodeVerifying
		case s.TaskDelivered || s.Status == row.SessionToolRunning:
			return row.NodeRunning
		}
		return row.NodeClaimed
	case row.SessionBlocked:
		return row.NodeBlocked
	case row.SessionWaiting:
		return row.NodeWaiting
	case row.SessionCompleted:
		return row.NodeCompleted
	case row.SessionError:
		return row.NodeFailed
	}
	return row.NodeInterrupted
}

// claimOf returns the status of the claim of a node's session.
func claimOf(s row.Session) row.ClaimStatus {
	if s.Status.Live() {
		return row.ClaimActive
	}
	switch s.Status {
	case row.SessionCompleted:
		return row.ClaimCompleted
	case row.SessionError:
		return row.ClaimFailed
	case row.SessionStopped:
		return row.ClaimReleased
	}
	return row.ClaimInterrupted
}

// settleNodes derives the status of every node: that of a node with a session from the session,
// and that of a waiting node from its dependencies (ready if all are satisfied, blocked if one
// has failed or was canceled). A goal ends with its thread, when its dependencies are completed.
// Other statuses that a user has set stay.
func settleNodes(g *Graph) {
	sessions := make(map[string]row.Session, len(g.Sessions))
	for _, s := range g.Sessions {
		sessions[s.SessionID] = s
	}
	verifying := make(map[string]bool)
	for _, j := range g.Jobs {
		verifying[j.NodeID] = verifying[j.NodeID] || j.Status == row.JobRunning
	}
	status := make(map[string]row.NodeStatus, len(g.Nodes))
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if s, ok := sessions[n.AssignedSessionID]; ok {
			n.Status = nodeOf(s, verifying[n.ID])
		}
		status[n.ID] = n.Status
	}
	for range len(g.Nodes) + 1 { // a node may depend on a goal
		changed := false
		for i := range g.Nodes {
			n := &g.Nodes[i]
			if n.AssignedSessionID != "" || n.Kind != row.GoalNode && !waits(n.Status) {
				continue
			}
			next := row.NodeReady
			for _, d := range g.Dependencies {
				switch from := status[d.FromNodeID]; {
				case d.ToNodeID != n.ID || from == d.RequiredStatus:
				case from == row.NodeFailed || from == row.NodeCanceled:
					next = row.NodeBlocked
				case next == row.NodeReady:
					next = row.NodePlanned
				}
			}
			if n.Kind == row.GoalNode {
				next = goalOf(n.Status, next, g.Thread.Status)
			}
			changed = changed || next != n.Status
			n.Status, status[n.ID] = next, next
		}
		if !changed {
			return
		}
	}
}

// waits reports whether a node's status is derived from its dependencies.
func waits(s row.NodeStatus) bool {
	return s == row.NodePlanned || s == row.NodeReady || s == row.NodeBlocked
}

func goalOf(was, follows row.NodeStatus, thread row.ThreadStatus) row.NodeStatus {
	switch {
	case thread == row.ThreadArchived && was.Over(): // derived before the thread was archived
		return was
	case thread == row.ThreadFailed:
		return row.NodeFailed
	case thread == row.ThreadDone && follows == row.NodeReady:
		return row.NodeCompleted
	}
	return follows
}

// searchText returns the text for search: title, request, summary, and the texts and numbers in
// the metadata, in lower case.
func searchText(t row.Thread) string {
	var b strings.Builder
	for _, s := range []string{t.Title, t.OriginalRequest, t.Summary} {
		b.WriteString(s)
		b.WriteByte('\n')
	}
	eachText(t.Metadata, func(s string) {
		b.WriteString(s)
		b.WriteByte('\n')
	})
	return strings.ToLower(b.String())
}

// eachText calls visit with the texts and numbers in JSON, at any depth.
func eachText(raw json.RawMessage, visit func(string)) {
	if s, ok := jsonx.Text(raw); ok {
		visit(s)
		return
	}
	switch {
	case jsonx.Members(raw, func(_ string, value []byte) { eachText(value, visit) }) == nil:
	case jsonx.Elements(raw, func(value []byte) error { eachText(value, visit); return nil }) == nil:
	case len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9'):
		visit(string(raw))
	}
}
