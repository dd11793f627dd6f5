package taskagents

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

// chooser states which program does a task, and learns from what becomes of it.
type chooser struct {
	book     *choice.Book
	settings *choice.Settings
	programs func(context.Context) []preflight.Result // cached by the prober of the machine
	info     func(session string) (sessions.Info, error)
	logger   *slog.Logger
}

// State is the choice for a task, now.
func (c *chooser) State(ctx context.Context, task choice.Task) choice.State {
	v := c.settings.Now()
	in := choice.Input{
		Task: task, Book: c.book.Snapshot(), Now: time.Now(), Default: v.DefaultType, Fixed: !v.Ranked,
		Subscription: v.Subscription,
	}
	for _, p := range c.programs(ctx) {
		ready := p.Auth.Status == preflight.Authenticated
		in.Candidates = append(in.Candidates, choice.Candidate{
			Name: p.Adapter, Installed: p.Installed, AuthReady: ready, SubscriptionReady: ready && subscription(p.Auth.Method),
		})
	}
	return choice.Choose(in)
}

// subscription reports whether a login is one that is paid by the month: as the programs and
// preflight call them.
func subscription(method string) bool {
	switch strings.ToLower(method) {
	case "subscription", "claude.ai", "oauth_token", "chatgpt":
		return true
	}
	return false
}

// Fixed is the program that does every task while it can; "" where each is given to the one
// that fits it.
func (c *chooser) Fixed() programs.Name {
	if v := c.settings.Now(); !v.Ranked {
		return v.DefaultType
	}
	return ""
}

// pick returns the program for a task whose caller named none. A shell is never chosen but as
// the default: it does what it is told, not what is meant.
func (c *chooser) pick(ctx context.Context, task choice.Task) (programs.Name, error) {
	if c.Fixed() == programs.Shell {
		return programs.Shell, nil
	}
	state := c.State(ctx, task)
	for _, f := range state.Frameworks {
		if f.ID == state.Preferred.ID && f.Installed {
			return f.ID, nil
		}
	}
	if ctx.Err() != nil {
		return "", capability.AsError(ctx.Err())
	}
	return "", capability.Errorf(capability.CodeUnavailable, "tasks.spawn", "%s", state.Preferred.Reason).
		With("agent_not_installed", "GET /api/coding-agents/preflight says how each is installed; or name an agentType, such as shell")
}

// Record counts an event. What cannot be written down is counted all the same.
func (c *chooser) Record(ctx context.Context, name programs.Name, e choice.Event) {
	if err := c.book.Record(ctx, name, e); err != nil {
		c.logger.Error("what became of a task agent is not kept", "framework", string(name), "err", err)
	}
}

// Rest takes a program out of use for a while.
func (c *chooser) Rest(ctx context.Context, name programs.Name, d choice.CoolDown) error {
	return c.book.Rest(ctx, name, d)
}

// countEvents counts what happens to sessions until ctx ends.
func (c *chooser) countEvents(ctx context.Context, subscribe func() *sessions.Subscription) {
	turns := make(map[string]*turn)
	for ctx.Err() == nil {
		sub := subscribe()
		for {
			e, ok, err := sub.Next(ctx)
			if !ok {
				sub.Close()
				if err == nil {
					return
				}
				c.logger.Error("what happened to sessions was not counted", "err", err)
				break
			}
			c.count(context.WithoutCancel(ctx), turns, e)
		}
	}
}

// turn is a session whose work is measured.
type turn struct {
	name  programs.Name
	began time.Time      // zero between turns
	spent sessions.Usage // what was counted already
}

// cost adds to an event what a session has spent since the last time, where its program
// tells.
func (t *turn) cost(now *sessions.Usage, e *choice.Event) {
	if now == nil {
		return
	}
	e.TokensIn, e.TokensOut, e.CostUSD = now.In-t.spent.In, now.Out-t.spent.Out, now.USD-t.spent.USD
	t.spent = *now
}

// count enters an event of a session.
func (c *chooser) count(ctx context.Context, turns map[string]*turn, e sessions.Event) {
	t := turns[e.Session]
	if t == nil {
		if e.Type == sessions.Output {
			return
		}
		i, err := c.info(e.Session)
		if err != nil {
			return // it has ended, and is not shown any more
		}
		t = &turn{name: i.AdapterType}
		if e.Type != sessions.Started && i.Usage != nil {
			t.spent = *i.Usage // before a subscriber listened
		}
		turns[e.Session] = t
	}
	var spent choice.Event
	switch e.Type {
	case sessions.TaskComplete, sessions.TurnFailed, sessions.Failed, sessions.Ended:
		if i, err := c.info(e.Session); err == nil {
			t.cost(i.Usage, &spent)
		}
	}
	switch e.Type {
	case sessions.Started:
		c.Record(ctx, t.name, choice.Event{Spawned: true})
	case sessions.BusyNow:
		if t.began.IsZero() {
			t.began = e.At
		}
	case sessions.TaskComplete:
		done := spent
		done.Completed, done.Via = true, choice.FastPath
		if e.Source == "signal" { // no hook and no protocol said so: the screen did
			done.Via = choice.OutputReconcile
		}
		if !t.began.IsZero() {
			done.Took = e.At.Sub(t.began)
		}
		t.began = time.Time{}
		c.Record(ctx, t.name, done)
	case sessions.Stall:
		c.Record(ctx, t.name, choice.Event{Stalled: true})
	case sessions.TurnFailed, sessions.Failed:
		t.began = time.Time{}
		rest, used := choice.Exhausted(e.Kind, e.Text, e.At)
		spent.Failed, spent.ProviderError = true, used || providerError(e.Kind)
		c.Record(ctx, t.name, spent)
		if used {
			if err := c.Rest(ctx, t.name, rest); err != nil {
				c.logger.Error("a program whose account is used up may be used again too soon", "framework", string(t.name), "err", err)
			}
		}
	}
	if e.Type == sessions.Ended && spent != (choice.Event{}) { // after its last turn
		c.Record(ctx, t.name, spent)
	}
	if e.Type == sessions.Failed || e.Type == sessions.Ended {
		delete(turns, e.Session)
	}
}

// providerError reports whether a failure is the account's or the service's, in the words of
// states and of programs.
func providerError(kind string) bool {
	switch kind {
	case "auth", "authentication_failed", "server", "server_error", "api_error", "overloaded", "overloaded_error", "network",
		"model_not_found":
		return true
	}
	return false
}
