package taskagents

import (
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/internal/taskagents/agentserve"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// agentConsole adapts live sessions to what the console asks for. Those without a terminal
// are shown as text.
type agentConsole struct{ *sessions.Manager }

// Hear implements agentserve.Console.
func (c agentConsole) Hear() agentserve.Hearer { return hearing{c.Subscribe()} }

type hearing struct{ *sessions.Subscription }

// Next implements agentserve.Hearer.
func (h hearing) Next(ctx context.Context) (agentserve.News, bool) {
	e, ok, err := h.Subscription.Next(ctx)
	if !ok || err != nil {
		return agentserve.News{}, false
	}
	n := agentserve.News{Session: e.Session, Output: e.Data, Offset: e.Offset}
	if e.Type != sessions.Output {
		if n.Status, err = json.Marshal(e); err != nil {
			return agentserve.News{}, false
		}
	}
	return n, true
}

// Snapshot implements agentserve.Console.
func (c agentConsole) Snapshot(session string) (agentserve.Snapshot, error) {
	s, err := c.Get(session)
	if err != nil {
		return agentserve.Snapshot{}, err
	}
	return agentserve.Snapshot(s.Snapshot()), nil
}

// terminal finds a session that somebody wants to type into. One without a terminal is
// only shown, and can be sent whole messages.
func (c agentConsole) terminal(session string) (*sessions.Session, error) {
	s, err := c.Get(session)
	if err != nil {
		return nil, err
	}
	return sessions.InTerminal(s)
}

// Type implements agentserve.Console.
func (c agentConsole) Type(ctx context.Context, session, who string, data []byte) error {
	s, err := c.terminal(session)
	if err != nil {
		return err
	}
	return s.Raw(ctx, who, data)
}

// Keys implements agentserve.Console.
func (c agentConsole) Keys(ctx context.Context, session string, names []string) error {
	s, err := c.Get(session)
	if err != nil {
		return err
	}
	return s.Keys(ctx, names)
}

// Say implements agentserve.Console.
func (c agentConsole) Say(ctx context.Context, session, text string) (string, error) {
	s, err := c.Get(session)
	if err != nil {
		return "", err
	}
	outcome, err := s.Send(ctx, text, false)
	return string(outcome), err
}

// Resize implements agentserve.Console.
func (c agentConsole) Resize(session, who string, cols, rows int) error {
	s, err := c.terminal(session)
	if err != nil {
		return err
	}
	return s.Resize(who, cols, rows)
}

// Control implements agentserve.Console.
func (c agentConsole) Control(session, who string, take bool) error {
	s, err := c.terminal(session)
	if err != nil {
		return err
	}
	return s.Control(who, take)
}

// Stop implements agentserve.Console.
func (c agentConsole) Stop(session string) error {
	s, err := c.Get(session)
	if err == nil {
		s.Stop(false)
	}
	return err
}
