package verbs

import (
	"slices"
	"sync"
)

const maxTalks = 1000

// Talk is what was made last in a conversation; "" is nothing.
type Talk struct {
	SessionID   string
	ThreadID    string
	WorkspaceID string
	Workdir     string
	Repo        string
}

// Talks remembers the last thousand conversations of this process: what "it" means. It
// is a default and no right: what it names may be gone.
type Talks struct {
	mu    sync.Mutex
	known map[string]*Talk
	order []string // the one used longest ago first
}

func (c Call) key() string {
	if c.Session == "" && c.RoomID == "" {
		return ""
	}
	return c.By.ID + "\x00" + c.Session + "\x00" + c.RoomID
}

// Last is what was made last in the call's conversation.
func (t *Talks) Last(c Call) Talk {
	t.mu.Lock()
	defer t.mu.Unlock()
	if talk := t.known[c.key()]; talk != nil {
		return *talk
	}
	return Talk{}
}

// Remember changes what is known of the call's conversation; a call without one leaves
// nothing.
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
