package verbs

import (
	"slices"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Talk holds the last session, thread, workspace, folder and repository of a conversation.
type Talk struct {
	SessionID   string
	ThreadID    string
	WorkspaceID string
	Workdir     string
	Repo        string
}

// Talks stores the last maxTalks conversations of this process in memory, to resolve texts such
// as "it". The entries are defaults and grant no rights; what they name may not exist any more.
type Talks struct {
	mu    sync.Mutex
	known map[string]*Talk
	order []string // least recently changed first
}

func (c Call) key() string {
	if c.Session == "" && c.RoomID == "" {
		return ""
	}
	return c.By.ID + "\x00" + c.Session + "\x00" + c.RoomID
}

// Last returns the entry of the call's conversation, or a zero Talk.
func (t *Talks) Last(c Call) Talk {
	t.mu.Lock()
	defer t.mu.Unlock()
	if talk := t.known[c.key()]; talk != nil {
		return *talk
	}
	return Talk{}
}

// Remember calls f to change the entry of the call's conversation. A call without session and
// room changes nothing.
func (t *Talks) Remember(c Call, f func(*Talk)) {
	key := c.key()
	if key == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	talk := t.known[key]
	if talk == nil {
		if t.known == nil {
			t.known = make(map[string]*Talk)
		}
		if len(t.order) >= maxTalks {
			delete(t.known, t.order[0])
			t.order = t.order[1:]
		}
		talk = new(Talk)
		t.known[key] = talk
	} else {
		t.order = slices.DeleteFunc(t.order, func(k string) bool { return k == key })
	}
	t.order = append(t.order, key)
	f(talk)
}

// preview returns what an approval of a call is for besides its input: what it has of its conversation, and what
// that used last, which is meant where the call names no target. For a message or stop that is an agent.
func (s *Service) preview(c Call, name Name) (capability.Preview, error) {
	last := s.talks.Last(c)
	if v := s.of(c.By); v.cfg.Agents != nil && (name == SendToAgent || name == StopAgent) {
		if live, err := v.session(c, ""); err == nil {
			last.SessionID = live.ID()
		}
	}
	details := make(map[string]any)
	for key, value := range map[string]string{
		"message": c.Message, "user_role": c.UserRole, "connector": c.Connector, "room_id": c.RoomID, "world_id": c.WorldID, "user_id": c.UserID,
		"last_agent": last.SessionID, "last_task": last.ThreadID, "last_workspace": last.WorkspaceID, "last_folder": last.Workdir,
		"last_repository": last.Repo,
	} {
		if value != "" {
			details[key] = value
		}
	}
	if len(c.Recent) > 0 {
		details["messages"] = c.Recent
	}
	if c.Zone != nil {
		details["time_zone"] = c.Zone.String()
	}
	data, err := jsonx.Marshal(details)
	return capability.Preview{Details: details, Binds: string(data), Metadata: true}, err
}
