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

// chooser selects the coding CLI for a task by the settings and by recorded results of
// earlier sessions.
type chooser struct {
	book     *choice.Book
	settings *choice.Settings
	programs func(context.Context) []preflight.Result // cached by the prober of the machine
	info     func(session string) (sessions.Info, error)
	logger   *slog.Logger
}

// State ranks the installed programs for a task with the settings, logins and records of now.
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

// subscription reports whether a login method, as preflight names it, uses a monthly
// subscription instead of an API key.
func subscription(method string) bool {
	switch strings.ToLower(method) {
	case "subscription", "claude.ai", "oauth_token", "chatgpt":
		return true
	}
	return false
}

// Fixed returns the default program if the settings assign every task to it, and "" if
// programs are ranked for each task.
func (c *chooser) Fixed() programs.Name {
	if v := c.settings.Now(); !v.Ranked {
		return v.DefaultType
	}
	return ""
}

// pick returns the program for a task whose caller named none. It selects a shell only if
// that is the fixed default, because a shell cannot interpret a task. If the preferred program
// is not installed, pick fails with unavailable, reason agent_not_installed.
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

// Record counts an event of a program. If it cannot be stored, it is counted in memory only
// and the failure is logged.
func (c *chooser) Record(ctx context.Context, name programs.Name, e choice.Event) {
	if err := c.book.Record(ctx, name, e); err != nil {
		c.logger.Error("what became of a task agent is not kept", "framework", string(name), "err", err)
	}
}

// Rest excludes a program from the choice until its cooldown ends.
func (c *chooser) Rest(ctx context.Context, name programs.Name, d choice.CoolDown) error {
	return c.book.Rest(ctx, name, d)
}

// countEvents records the events of all sessions until ctx or the manager ends. If it was too
// slow and lost events, it logs that and subscribes again.
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

// turn holds the program of one live session and when its turn began.
type turn struct {
	name  programs.Name
	began time.Time // zero between turns
}

// count records one session event: starts, stalls, usage, and completed and failed turns with
// their duration. It also excludes a program for a while if its account is used up.
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
		if e.Type != sessions.Used { // which also comes after the end
			turns[e.Session] = t
		}
	}
	switch e.Type {
	case sessions.Started:
		c.Record(ctx, t.name, choice.Event{Spawned: true})
	case sessions.BusyNow:
		if t.began.IsZero() {
			t.began = e.At
		}
	case sessions.Used:
		c.Record(ctx, t.name, choice.Event{TokensIn: e.More.In, TokensOut: e.More.Out, CostUSD: e.More.USD})
	case sessions.TaskComplete:
		done := choice.Event{Completed: true, Via: choice.FastPath}
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
		c.Record(ctx, t.name, choice.Event{Failed: true, ProviderError: used || providerError(e.Kind)})
		if used {
			if err := c.Rest(ctx, t.name, rest); err != nil {
				c.logger.Error("a program whose account is used up may be used again too soon", "framework", string(t.name), "err", err)
			}
		}
	}
	if e.Type == sessions.Failed || e.Type == sessions.Ended {
		delete(turns, e.Session)
	}
}

// providerError reports whether a failure kind, as programs and screen states name it, was
// caused by the account or the provider's service instead of the task.
func providerError(kind string) bool {
	switch kind {
	case "auth", "authentication_failed", "server", "server_error", "api_error", "overloaded", "overloaded_error", "network",
		"model_not_found":
		return true
	}
	return false
}
