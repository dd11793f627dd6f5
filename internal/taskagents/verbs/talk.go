package verbs

import (
	"slices"
	"sync"
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
