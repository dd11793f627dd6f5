package decide

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Done is the result of one task of a finished thread.
type Done struct {
	SessionID         string            `json:"sessionId"`
	Label             string            `json:"label"`
	AgentType         string            `json:"agentType"`
	OriginalTask      string            `json:"originalTask"`
	Status            row.SessionStatus `json:"status"`
	CompletionSummary string            `json:"completionSummary"`
	Workdir           string            `json:"workdir"`
	RoomID            string            `json:"roomId"`
}

// Swarm is the result of a finished thread.
type Swarm struct {
	ThreadID  string `json:"threadId"`
	Title     string `json:"title"`
	Tasks     []Done `json:"tasks"`
	Total     int    `json:"total"`
	Completed int    `json:"completed"`
	Stopped   int    `json:"stopped"`
	Errored   int    `json:"errored"`
	// NotBegun lists the labels of parts that were not started. Total counts all parts.
	NotBegun []string `json:"notBegun,omitempty"`
}

// Over summarizes a finished thread. Sessions that were replaced by another one are not
// counted. A task that neither completed nor failed counts as stopped.
func Over(t row.Thread, sessions []row.Session, nodes []row.Node) Swarm {
	s := Swarm{ThreadID: t.ID, Title: t.Title, Tasks: []Done{}}
	for _, one := range sessions {
		if row.Meta(one.Metadata, row.ReplacedBy) != "" {
			continue
		}
		s.Tasks = append(s.Tasks, Done{
			one.SessionID, one.Label, one.Framework, one.OriginalTask, one.Status, one.CompletionSummary, one.Workdir,
			t.RoomID,
		})
		s.Total++
		switch one.Status {
		case row.SessionCompleted:
			s.Completed++
		case row.SessionError:
			s.Errored++
		default:
			s.Stopped++
		}
	}
	for _, n := range nodes {
		if n.Kind == row.ExecutionNode && n.AssignedSessionID == "" && n.Status != row.NodeCompleted {
			s.NotBegun = append(s.NotBegun, cmp.Or(n.AssignedLabel, n.Title))
			s.Total++
		}
	}
	return s
}

// Synthesis returns the message about a finished swarm for the case that no model writes one:
// the counts, then a line for each task.
func Synthesis(s Swarm) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d of %d done", one(s.Title), s.Completed, s.Total)
	if s.Errored > 0 {
		fmt.Fprintf(&b, ", %d failed", s.Errored)
	}
	if s.Stopped > 0 {
		fmt.Fprintf(&b, ", %d stopped", s.Stopped)
	}
	if len(s.NotBegun) > 0 {
		fmt.Fprintf(&b, ", %d not begun", len(s.NotBegun))
	}
	b.WriteString(".\n")
	for _, t := range s.Tasks {
		name := t.Label
		if name == "" {
			name = t.SessionID
		}
		summary := text.ShortenRunes(strings.TrimSpace(t.CompletionSummary), 1000)
		if summary == "" {
			summary = "no result was told"
		}
		fmt.Fprintf(&b, "- %s (%s): %s\n", one(name), t.Status, text.OneLine(summary))
	}
	for _, label := range s.NotBegun {
		fmt.Fprintf(&b, "- %s (not begun)\n", one(label))
	}
	return b.String()
}
