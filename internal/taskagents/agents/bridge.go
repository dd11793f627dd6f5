package agents

import (
	"encoding/json"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// Character describes the agent that task agents work for.
type Character struct {
	Name   string   `json:"name"`
	Bio    []string `json:"bio"`
	Topics []string `json:"topics"`
}

// Room is the conversation in which a task was given.
type Room struct {
	ID       string `json:"id"`
	ThreadID string `json:"thread_id"`
}

// ParentContext is the information that a session's program gets about its task and its
// peers. The caller sets Room and Character; they stay null if the task has none.
type ParentContext struct {
	SessionID    string        `json:"session_id"`
	Label        string        `json:"agent_label"`
	Workdir      string        `json:"workdir"`
	Repo         string        `json:"repo,omitempty"`
	AgentType    programs.Name `json:"agent_type"`
	Character    *Character    `json:"character"`
	Room         *Room         `json:"room"`
	OriginalTask string        `json:"original_task"`
	Swarm        struct {
		Siblings  []Peer         `json:"siblings"`
		Decisions []PeerDecision `json:"decisions"`
	} `json:"swarm"`
	Constraints struct {
		Preset       programs.Preset `json:"preset"`
		AllowedRoots []string        `json:"allowed_roots"`
	} `json:"constraints"`

	// Creator is the id of the principal that started the session. ThreadID and RoomID come
	// from the session and its metadata.
	Creator  string `json:"-"`
	ThreadID string `json:"-"`
	RoomID   string `json:"-"`
}

// Peer is another live session.
type Peer struct {
	SessionID string        `json:"session_id"`
	Label     string        `json:"label"`
	AgentType programs.Name `json:"agent_type"`
	Workdir   string        `json:"workdir"`
	Repo      string        `json:"repo,omitempty"`
}

// PeerDecision is a decision that another session of the same thread shared.
type PeerDecision struct {
	SessionID string `json:"session_id"`
	Text      string `json:"text"`
}

// Parent returns the information for a session's program, with the sessions of its thread and
// their last shared decisions. ok is false if the session has ended or is unknown.
func (a *Agents) Parent(id string) (c ParentContext, ok bool) {
	s, g := a.find(id)
	if g == nil || !s.Info().Live() {
		return c, false
	}
	i := s.Info()
	m := metaOf(i.Metadata)
	c = ParentContext{
		SessionID: id, Label: i.Name, Workdir: g.workdir, Repo: m.Repo, AgentType: g.framework, OriginalTask: g.task, Creator: g.owner,
		ThreadID: i.ThreadID, RoomID: m.RoomID,
	}
	c.Constraints.Preset, c.Constraints.AllowedRoots = g.preset, []string{g.workdir}
	c.Swarm.Siblings, c.Swarm.Decisions = []Peer{}, []PeerDecision{}
	for _, other := range a.cfg.Sessions.List() {
		o := other.Info()
		if o.ID == id || i.ThreadID == "" || o.ThreadID != i.ThreadID {
			continue
		}
		c.Swarm.Siblings = append(c.Swarm.Siblings, peer(o.ID, o.Name, o.AdapterType, o.Workdir, o.Metadata))
		for _, text := range a.info(o).Decisions {
			c.Swarm.Decisions = append(c.Swarm.Decisions, PeerDecision{o.ID, text})
		}
	}
	c.Swarm.Decisions = c.Swarm.Decisions[max(0, len(c.Swarm.Decisions)-shownDecisions):]
	return c, true
}

// Peers returns the other sessions of the same owner that are busy, blocked or starting, of any thread.
// ok is false if the session has ended or is unknown.
func (a *Agents) Peers(id string) (list []Peer, ok bool) {
	s, g := a.find(id)
	if g == nil || !s.Info().Live() {
		return nil, false
	}
	list = []Peer{}
	for _, other := range a.cfg.Sessions.List() {
		_, og := a.find(other.ID())
		if og == nil || og.owner != g.owner {
			continue
		}
		if o := other.Info(); o.ID != id && (o.Status == detect.Busy || o.Status == detect.Blocked || o.Status == detect.Starting) {
			list = append(list, peer(o.ID, o.Name, o.AdapterType, o.Workdir, o.Metadata))
		}
	}
	return list, true
}

func peer(id, label string, name programs.Name, workdir string, metadata json.RawMessage) Peer {
	return Peer{SessionID: id, Label: label, AgentType: name, Workdir: workdir, Repo: metaOf(metadata).Repo}
}

func metaOf(metadata json.RawMessage) (m meta) {
	_ = json.Unmarshal(metadata, &m) // it was validated when the session was started
	return m
}
