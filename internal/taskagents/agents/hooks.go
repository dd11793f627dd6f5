package agents

import (
	"context"
	"encoding/json"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// notFound is the answer to a program whose session is not one of ours: hooks must not break
// programs.
const notFound = `{"status":"ignored","reason":"session_not_found"}`

// Hook takes what a session's program tells and returns what it is answered. The session
// is that of the caller's token, never one that the body names. Its errors are those of
// [ReadReport].
func (a *Agents) Hook(ctx context.Context, session string, body []byte) (json.RawMessage, error) {
	r, err := ReadReport(body)
	if err != nil {
		return nil, err
	}
	s, g := a.find(session)
	if g == nil || r.Session != "" && r.Session != session {
		return json.RawMessage(notFound), nil
	}
	var verdict Verdict
	switch r.Kind {
	case ToolStart, Permission:
		verdict = a.judge(ctx, session, g, r)
	case Decision:
		g.mu.Lock()
		d, ok := g.ledger.Post(g.mask.Text(r.Text))
		if ok {
			g.decided(d)
		}
		g.mu.Unlock()
		if ok && a.cfg.Decided != nil {
			a.cfg.Decided(session, d.Text)
		}
	}
	t, _ := s.(*sessions.Session)
	if t == nil { // its protocol tells what happens to it
		return r.Reply(verdict), nil
	}
	if r.Kind == Complete && programs.Of(g.framework).StrayTurns && len(r.Prompts) > 0 && !t.Asked(r.Prompts) {
		return r.Reply(verdict), nil // a turn of its own, such as one that finds a title
	}
	if !a.named(g, r.Token) {
		r.Token = ""
	}
	if r.Fact != nil {
		t.Fact(*r.Fact, r.Response, r.Token)
	}
	return r.Reply(verdict), nil
}

// judge reports whether a tool may be used. A use that is about to begin is refused or left
// alone: a program that is unsure asks. Where one in structured mode asks, it is answered
// there.
func (a *Agents) judge(ctx context.Context, session string, g *agent, r Report) Verdict {
	d := a.permitted(ctx, session, g, r.Tool, r.Input, r.Kind == Permission && !g.structured)
	return Verdict{Allow: d.Effect == permit.Allow, Deny: d.Effect == permit.Deny, Reason: d.Reason}
}

// permitted states what the preset and the rules do about the use of a tool, and, where they
// say to ask, independent of who decides. Every refusal is recorded, and every answer to a program
// that asks.
func (a *Agents) permitted(ctx context.Context, session string, g *agent, tool string, input json.RawMessage, asks bool) permit.Decision {
	d := permit.Judge(permit.Request{
		Framework: g.framework, Preset: g.preset, Tool: tool, Input: input, Workdir: g.workdir, Home: a.cfg.Home, Own: a.cfg.Own,
	})
	if asks && d.Effect == permit.Ask && a.cfg.Ask != nil {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		if by, ok := a.cfg.Ask(asking, session, tool, input, d); ok && asking.Err() == nil {
			by.Category = d.Category
			d = by
		}
		cancel()
	}
	if asks || d.Effect == permit.Deny {
		a.cfg.Recorder.Permission(ctx, session, tool, d)
	}
	return d
}

// find is a session of ours that is shown.
func (a *Agents) find(id string) (sessions.Live, *agent) {
	a.mu.Lock()
	g := a.running[id]
	a.mu.Unlock()
	if g == nil {
		return nil, nil
	}
	s, err := a.cfg.Sessions.Get(id)
	if err != nil {
		return nil, nil
	}
	return s, g
}

// handleEvents handles the events of sessions.
func (a *Agents) handleEvents(work context.Context) {
	ctx := context.Background() // Close ends the subscription
	for {
		e, ok, err := a.heard.Next(ctx)
		if err != nil {
			a.cfg.Logger.Error("what happened to sessions was not heard", "err", err)
		}
		if !ok {
			return
		}
		a.mu.Lock()
		g := a.running[e.Session]
		a.mu.Unlock()
		if g == nil {
			continue
		}
		if e.Type == sessions.State && g.structured {
			if s, err := a.cfg.Sessions.Get(e.Session); err == nil {
				a.named(g, s.Info().ResumeToken)
			}
		}
		switch e.Type {
		case sessions.TaskComplete:
			a.completed(work, g, e)
		case sessions.Message, sessions.Controlled: // a client goes on with it
			g.goOn()
		case sessions.Ended, sessions.Failed:
			g.goOn()
			a.disarm(e.Session)
			a.forget(g)
			if s, err := a.cfg.Sessions.Get(e.Session); err == nil {
				a.cfg.Recorder.Session(ctx, capability.Principal{}, s.Info(), string(e.Type))
			}
		}
	}
}

// forget drops what is known of sessions that have ended and are not shown any more; g is
// one that has ended now.
func (a *Agents) forget(g *agent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g.over = true
	for id, g := range a.running {
		if _, err := a.cfg.Sessions.Get(id); err != nil && g.over {
			delete(a.running, id)
		}
	}
}

// completed enters the decisions of a turn, has the skill used that the program asks for,
// and otherwise stops a session that no client continues.
func (a *Agents) completed(work context.Context, g *agent, e sessions.Event) {
	text := directive.Text{Body: e.Text}
	if e.Source == "signal" {
		text.Columns = sessions.Cols
	}
	g.mu.Lock()
	g.decided(g.ledger.Take(text, g.task, g.memory)...)
	g.mu.Unlock()
	if _, asks := directive.ReadSkill(text); !asks || a.cfg.Skills == nil {
		g.stopSoon(a, e)
		return
	}
	turn := 0
	if s, _ := a.find(e.Session); s != nil {
		turn = s.Info().Completed
	}
	a.group.Go(func() {
		if !a.cfg.Skills.Turn(work, e.Session, turn, text) && work.Err() == nil {
			g.stopSoon(a, e)
		}
	})
}

// stopSoon stops a session that no client continues: only a program that said
// itself that it is done.
func (g *agent) stopSoon(a *Agents, e sessions.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.Source == "signal" || g.keep || g.stop != nil {
		return
	}
	g.stop = time.AfterFunc(autoStopDelay, func() {
		if s, _ := a.find(e.Session); s != nil && s.Info().Status == detect.Ready {
			s.Stop(false)
		}
	})
}

// decided keeps decisions: the last ones that are shown. The caller holds mu.
func (g *agent) decided(list ...directive.Decision) {
	g.decisions = append(g.decisions, list...)
	g.decisions = g.decisions[max(0, len(g.decisions)-shownDecisions):]
}

// goOn keeps a session from being stopped.
func (g *agent) goOn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stop != nil {
		g.stop.Stop()
		g.stop = nil
	}
}
