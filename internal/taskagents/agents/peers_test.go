package agents

import (
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// busy is a session that works.
type busy struct {
	live
	id string
}

func (b busy) ID() string { return b.id }
func (b busy) Info() sessions.Info {
	return sessions.Info{ID: b.id, Status: detect.Busy}
}

func TestAProgramSeesOnlySessionsOfItsOwner(t *testing.T) {
	a, _ := service(t, programs.Standard, false, Config{})
	a.cfg.Sessions, a.running = sessions.New(sessions.Config{}), map[string]*agent{}
	for id, owner := range map[string]string{"pty-1-01": "ann", "pty-1-02": "ann", "pty-1-03": "bob"} {
		if _, err := a.cfg.Sessions.Run(id, func(func(sessions.Event)) (sessions.Live, error) { return busy{id: id}, nil }); err != nil {
			t.Fatal(err)
		}
		a.running[id] = &agent{owner: owner}
	}
	list, ok := a.Peers("pty-1-01")
	if !ok || len(list) != 1 || list[0].SessionID != "pty-1-02" {
		t.Errorf("Peers = %+v, %v; want pty-1-02 alone", list, ok)
	}
}
