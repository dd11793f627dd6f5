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
	"github.com/junctor-run/junctor/internal/taskagents/structured"
	"github.com/junctor-run/junctor/internal/taskagents/structured/dialect"
)

// notFound is the answer to the hook of an unknown session. It is not an error, because hooks
// must not break programs.
const notFound = `{"status":"ignored","reason":"session_not_found"}`

// Hook handles a report of a session's program and returns the answer for it. session comes
// from the caller's token; a body that names another session is ignored. Its errors are those
// of [ReadReport].
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
	if told, ok := s.(*structured.Session); ok && verdict.Deny { // not every program reports what a hook refused
		told.Refuse(r.Tool, r.Call, r.Input)
	}
	t, _ := s.(*sessions.Session)
	if t == nil { // its protocol reports its state
		return r.Reply(verdict), nil
	}
	if verdict.Deny {
		t.Refuse(sessions.Refusal{Tool: r.Tool, What: dialect.Brief(r.Input), By: verdict.By})
	}
	switch {
	case r.Kind == Permission && !verdict.Allow && !verdict.Deny:
		t.Requested(programs.DecisionOf(g.framework, r.Tool), r.Tool, r.Input)
	case r.Kind == Activity:
		t.Granted()
	}
	if r.Kind == Complete && programs.Of(g.framework).StrayTurns && len(r.Prompts) > 0 && !t.Asked(r.Prompts) {
		return r.Reply(verdict), nil // a turn that the program started by itself, for example to find a title
	}
	if r.Transcript != "" {
		g.mu.Lock()
		g.record = r.Transcript
		g.mu.Unlock()
	}
	if !a.named(g, r.Token) {
		r.Token = ""
	}
	if r.Fact != nil {
		t.Fact(*r.Fact, r.Response, r.Token)
	}
	return r.Reply(verdict), nil
}

// judge decides whether a tool may be used. The coordinator or user is asked only for a
// Permission report, and not in structured mode, whose protocol has its own requests.
func (a *Agents) judge(ctx context.Context, session string, g *agent, r Report) Verdict {
	d := a.permitted(ctx, session, g, r.Tool, r.Input, r.Kind == Permission && !g.structured)
	v := Verdict{Allow: d.Effect == permit.Allow, Deny: d.Effect == permit.Deny, Reason: d.Reason, By: sessions.ByPreset}
	v.Ask = d.Effect == permit.Ask && d.Rule == permit.BySettings &&
		(g.framework == programs.Claude || g.framework == programs.Gemini) // others have no such reply
	if d.Rule == permit.ByCoordinator {
		v.By = sessions.ByAnswer
	}
	return v
}

// permitted returns the decision of the preset and the rules about the use of a tool. If they
// require a question and asks is set, Config.Ask decides, if it does so in time. Refusals are
// recorded, and with asks all decisions.
func (a *Agents) permitted(ctx context.Context, session string, g *agent, tool string, input json.RawMessage, asks bool) permit.Decision {
	d := a.rules(g, tool, input)
	if asks && d.Effect == permit.Ask && d.Category != programs.UserInteraction && a.cfg.Ask != nil { // only a user answers questions
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

// rules returns the decision of the preset and the rules about the use of a tool.
func (a *Agents) rules(g *agent, tool string, input json.RawMessage) permit.Decision {
	return permit.Judge(permit.Request{
		Framework: g.framework, Preset: g.preset, Tool: tool, Input: input, Workdir: g.workdir, Home: a.cfg.Home, Own: a.cfg.Own,
	})
}

// find returns a listed session and its agent, or nil for both.
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

// handleEvents handles the events of sessions until Close ends the subscription. work ends the
// skills that it starts.
func (a *Agents) handleEvents(work context.Context) {
	ctx := context.Background() // Close ends the subscription
	for {
		e, ok, err := a.heard.Next(ctx)
		if err != nil {
			a.cfg.Logger.Error("events of sessions were lost", "err", err)
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
		case sessions.ReadyAgain, sessions.TaskComplete, sessions.TurnFailed:
			select {
			case g.turned <- struct{}{}:
			default:
			}
		}
		switch e.Type {
		case sessions.Elsewhere:
			a.cfg.Recorder.Permission(ctx, e.Session, e.Tool, permit.Decision{
				Effect: permit.Allow, Category: programs.CategoryOf(g.framework, e.Tool), Rule: "answered elsewhere",
			})
		case sessions.Refused:
			if r := e.Refusal; r.By == sessions.Unasked || r.By == sessions.ByProgram {
				a.cfg.Recorder.Permission(ctx, e.Session, r.Tool, permit.Decision{
					Effect: permit.Deny, Category: programs.CategoryOf(g.framework, r.Tool), Rule: string(r.By), Reason: r.What,
				})
			}
		case sessions.TaskComplete:
			a.completed(work, g, e)
		case sessions.Message, sessions.Controlled: // a client continues the session
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

// forget marks g as ended, and drops the data of ended sessions that are not listed any more.
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

// completed adds the decisions of a turn. If the turn requests a skill, it runs the skill in a
// goroutine; otherwise, or if no answer was sent, it schedules the stop of the session.
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

// stopSoon stops the session after autoStopDelay, unless a client continues it before, it is
// kept, or only its screen indicates that the turn is complete.
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

// decided appends decisions and keeps the last shownDecisions. The caller holds mu.
func (g *agent) decided(list ...directive.Decision) {
	g.decisions = append(g.decisions, list...)
	g.decisions = g.decisions[max(0, len(g.decisions)-shownDecisions):]
}

// goOn cancels a scheduled stop.
func (g *agent) goOn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stop != nil {
		g.stop.Stop()
		g.stop = nil
	}
}
