package coordinator

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// idle checks an active session that had no events for idleTimeout. If its screen has not
// changed, the model is asked what to do, and the user after idleChecks checks (blindChecks
// without a model).
func (t *task) idle(now time.Time) {
	t.mu.Lock()
	quiet := now.Sub(t.active)
	t.mu.Unlock()
	if quiet < idleTimeout || t.row.Status != row.SessionActive && t.row.Status != row.SessionToolRunning || t.c.Level(t.thread) == Notify {
		return
	}
	term, err := t.c.cfg.Sessions.Terminal(t.id)
	if err != nil {
		t.look()
		return
	}
	if s := term.Info().Status; s != detect.Ready && s != detect.Busy {
		return
	}
	text := strings.Join(term.Lines(50), "\n")
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(text))
	if was := t.screen; was != sum.Sum64() {
		t.screen = sum.Sum64()
		if was != 0 { // the screen changed since the last check
			t.touch(now)
			return
		}
	}
	most := idleChecks
	if t.c.cfg.Model == nil {
		most = blindChecks
	}
	n := t.row.IdleCheckCount + 1
	t.update(func(s *row.Session) { s.IdleCheckCount = n })
	t.c.tell(t.event("idle_check_decision", map[string]int{"check": n, "of": most}))
	a := directive.Answer{Action: "ignore", Reasoning: "nothing to ask"}
	if t.c.cfg.Model != nil {
		a = t.ask(situation{event: "idle", text: text, check: n, checks: most})
	}
	if n >= most && a.Action == "ignore" {
		a = directive.Answer{
			Action: "escalate", Response: "The agent " + t.name() + " has shown no sign of life for long.",
			Reasoning: strconv.Itoa(n) + " looks saw nothing",
		}
	}
	t.execute("idle", text, nil, a)
}
