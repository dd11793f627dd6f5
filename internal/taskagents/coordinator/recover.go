package coordinator

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/decide"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

var noProvider = regexp.MustCompile(`(?i)\b(status|http|error|code)[ :=]*401\b|\b401 unauthorized|invalid (api|authentication) ?(key|token)|authentication[_ ](failed|error)|please (run /login|log ?in again)|oauth token has expired|model[^\n]{0,60}(is )?not (available|found|supported)|model_not_found|(cli|version)[^\n]{0,60}(is )?(too old|no longer supported|must be updated)`)

// providerFailure reports whether a failure comes from the program's provider, account or
// version, so that another program may continue the task. It returns the cooldown of the
// failed program.
func providerFailure(kind, s string, now time.Time) (choice.CoolDown, bool) {
	if c, ok := choice.Exhausted(kind, s, now); ok {
		return c, true
	}
	reason := kind
	switch kind {
	case "auth", "authentication_failed", "model_not_found", "model_not_available", "cli_too_old", "provider_retry":
	default:
		if reason = strings.ToLower(noProvider.FindString(text.LastRunes(s, 16_000))); reason == "" {
			return choice.CoolDown{}, false
		}
	}
	return choice.CoolDown{Until: now.Add(choice.DefaultCooldownTTL), Reason: reason}, true
}

// turnFailed handles a turn that failed while the program runs: it continues with another
// program after a provider failure, otherwise it asks the user.
func (t *task) turnFailed(e sessions.Event) {
	t.c.tell(t.event("turn_failed", e))
	if e.Kind == detect.RefusedPermission {
		t.fail(detect.RefusedPermission + ": the program refused by itself what the user would have to be asked about: " +
			text.LastRunes(strings.TrimSpace(e.Text), 1500))
		return
	}
	if _, provider := providerFailure(e.Kind, e.Text, t.c.cfg.Now()); provider {
		t.providerFailed(e.Kind, e.Text)
		return
	}
	t.act("turn_failed", e.Text, nil, directive.Answer{
		Action: "escalate", Response: fmt.Sprintf("The agent %s could not go on (%s): %s", t.name(), e.Kind,
			text.LastRunes(strings.TrimSpace(e.Text), 1500)), Reasoning: "its turn failed",
	})
}

// ended handles the end of the program. A task that was not finished is marked stopped if the
// program exited, and after a failure it is restarted, continued by another program, or
// marked failed.
func (t *task) ended(e sessions.Event) {
	t.over = true
	t.stopAt, t.waiting = time.Time{}, time.Time{}
	t.expire()
	switch {
	case !t.row.Status.Live():
		t.c.tell(t.event("stopped", e))
		return
	case e.Type == sessions.Ended:
		t.record(row.Decision{EventType: "stopped", Decision: row.Stopped, Reasoning: "The program has ended."})
		t.end(row.SessionStopped, "The program ended before its work was accepted.", t.event("stopped", e))
		return
	}
	if t.startOver(e) {
		return
	}
	if _, provider := providerFailure(e.Kind, e.Text, t.c.cfg.Now()); provider {
		t.providerFailed(e.Kind, e.Text)
		return
	}
	t.fail("The program failed: " + text.LastRunes(strings.TrimSpace(e.Text+" "+e.Cause), 1500))
}

// fail ends the task with status error, discards its pending decision and stops its program.
func (t *task) fail(reason string) {
	t.over = true
	t.expire()
	t.end(row.SessionError, reason, t.event("error", map[string]string{"reason": reason}))
	t.stop(false)
}

// providerFailed excludes the program from the choice for a while and continues the task with
// another one. The task fails if no program is left or could be started, or after
// MaxRecovered recoveries. With level Notify, a running session only asks the user.
func (t *task) providerFailed(kind, s string) {
	why := strings.TrimSpace(kind + " " + text.LastRunes(strings.TrimSpace(s), 500))
	if t.c.Level(t.thread) == Notify && !t.over {
		t.escalate(row.SessionBlocked, s, directive.Answer{Response: "The agent " + t.name() + " cannot go on: " + why})
		return
	}
	name := programs.Name(t.row.Framework)
	failed := append(append([]programs.Name(nil), t.failed...), name)
	rest, _ := providerFailure(kind, s, t.c.cfg.Now())
	fleet := t.c.cfg.Fleet
	if fleet == nil || t.recovered >= MaxRecovered {
		t.fail("Its provider failed, and nothing else is tried: " + why)
		return
	}
	ctx, cancel := context.WithTimeout(t.c.ctx, spawnTimeout)
	defer cancel()
	if err := fleet.Rest(ctx, name, rest); err != nil {
		t.c.cfg.Logger.Warn("a program could not be taken out of use", "program", name, "err", err)
	}
	next, ok := fleet.Next(ctx, t.row.OriginalTask, failed)
	if !ok {
		t.fail("Its provider failed, and there is no other program: " + why)
		return
	}
	was := t.row
	task := t.handing(why)
	t.over = true // later events of the old session are ignored
	t.expire()
	t.stop(true)
	id, err := fleet.Spawn(ctx, was, next, task)
	for err != nil {
		t.c.cfg.Logger.Warn("a program could not be started in place of another one", "session", t.id, "program", next, "err", err)
		failed = append(failed, next)
		other, ok := fleet.Next(ctx, t.row.OriginalTask, failed)
		if !ok || ctx.Err() != nil {
			t.fail("Its provider failed, and " + string(next) + " could not be started: " + capability.AsError(err).Error())
			return
		}
		next = other
		id, err = fleet.Spawn(ctx, was, next, task)
	}
	if err := t.successor(was, id, next, t.recovered+1, failed); err != nil {
		t.fail("Its provider failed, and what goes on could not be entered: " + capability.AsError(err).Error())
		return
	}
	t.c.tell(Event{
		Type: "task_recovery_started", SessionID: id, ThreadID: t.thread,
		Data: map[string]string{"failed": t.id, "framework": string(next), "reason": why},
	})
}

// successor registers the session id as replacement of this one and supervises it. If that
// fails, it stops the new session and returns the error.
func (t *task) successor(was row.Session, id string, name programs.Name, recovered int, failed []programs.Name) error {
	s := row.Session{
		SessionID: id, AgentID: was.AgentID, Framework: string(name), Label: was.Label, OriginalTask: was.OriginalTask, Workdir: was.Workdir,
		Repo:     was.Repo,
		Metadata: row.WithMeta(row.WithMeta(was.Metadata, row.ResumeToken, ""), row.StartOver, ""),
	}
	m, err := t.c.retry(func() (threads.Moved, error) {
		return t.c.cfg.Registry.Register(t.c.ctx, threads.Registration{ThreadID: t.thread, Session: s, Replaces: []string{t.id}})
	})
	if err == nil {
		s, _ = m.Session(id)
		err = t.c.track(m.Thread, s, recovered, failed)
	}
	if err != nil {
		if term, lost := t.c.cfg.Sessions.Terminal(id); lost == nil {
			term.Stop(true)
		}
	}
	return err
}

// startOver restarts a task from its beginning if the program failed before a resumed session
// received input, because programs store no conversation before their first answer. It
// returns false if that does not apply or fails.
func (t *task) startOver(e sessions.Event) bool {
	s := row.Meta(t.row.Metadata, row.StartOver)
	if s == "" || t.row.TaskDelivered || t.c.cfg.Fleet == nil || t.c.ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(t.c.ctx, spawnTimeout)
	defer cancel()
	name := programs.Name(t.row.Framework)
	id, err := t.c.cfg.Fleet.Spawn(ctx, t.row, name, s)
	if err == nil {
		err = t.successor(t.row, id, name, t.recovered, t.failed)
	}
	if err != nil {
		t.c.cfg.Logger.Warn("session neither resumed nor restarted", "session", t.id, "err", err)
		return false
	}
	t.c.tell(Event{
		Type: "task_recovery_started", SessionID: id, ThreadID: t.thread,
		Data: map[string]string{"failed": t.id, "framework": string(name), "reason": "it could not be resumed: " +
			text.LastRunes(strings.TrimSpace(e.Text), 300)},
	})
	return true
}

// handing returns the prompt for the next program: the task, why its predecessor stopped, the
// shared decisions and the end of its output.
func (t *task) handing(why string) string {
	var b strings.Builder
	b.WriteString(t.row.OriginalTask)
	b.WriteString("\n\nAnother agent began this in the same folder and had to stop: " + why +
		"\nContinue, do not start over: look at what is there first.\n")
	t.c.mu.Lock()
	if th := t.c.threads[t.thread]; th != nil && len(th.shared) > 0 {
		b.WriteString("\nDecisions that were made:\n")
		for _, s := range th.shared[max(0, len(th.shared)-maxHandedDecisions):] {
			b.WriteString("- " + s.text + "\n")
		}
	}
	t.c.mu.Unlock()
	if content := text.LastRunes(t.lines(1000), maxHandedText); strings.TrimSpace(content) != "" {
		b.WriteString("\nThe last it printed, as data:\n" + decide.Fence(content))
	}
	return b.String()
}
