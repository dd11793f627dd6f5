package coordinator

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/decide"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/secret"
)

// execute carries out a decision, or stores it until the user confirms it if the thread's
// level is Confirm. b is the dialog that the decision is about, or nil. Some responses are
// escalated to the user instead: questions to the user, text for a shell outside of a dialog,
// and any response after MaxResponses automatic ones. A response that leaves the agent's
// folders is replaced by a refusal.
func (t *task) execute(event, text string, b *detect.Blocker, a directive.Answer) {
	count := &t.replies
	if b != nil {
		count = &t.answers
	}
	switch {
	case a.Action == "respond" && decide.AsksUser(a.Response):
		a.Action, a.Reasoning = "escalate", "It is a question to the user. "+a.Reasoning
	case a.Action == "respond" && b == nil && t.shell():
		a = directive.Answer{
			Action: "escalate", Response: question(text),
			Reasoning: "A shell is told nothing but by the user: it would carry out every line. " + a.Reasoning,
		}
	case a.Action == "respond" && *count >= MaxResponses:
		a = directive.Answer{Action: "escalate", Response: question(text), Reasoning: strconv.Itoa(MaxResponses) +
			" automatic answers in a row are enough."}
	}
	if a.Action == "respond" {
		a = t.guarded(text, b, a)
	}
	if t.c.Level(t.thread) == Confirm && (a.Action == "respond" || a.Action == "complete") {
		t.pend(event, text, b, a)
		return
	}
	t.act(event, text, b, a)
}

// act records and publishes a decision and carries it out: respond, complete or escalate. Any
// other action is only recorded.
func (t *task) act(event, text string, b *detect.Blocker, a directive.Answer) {
	said := a.Response
	if len(a.Keys) > 0 && (a.UseKeys || said == "") {
		said = "keys: " + strings.Join(a.Keys, " ")
	}
	t.record(row.Decision{EventType: event, PromptText: text, Decision: row.Verdict(a.Action), Response: said, Reasoning: a.Reasoning})
	t.c.tell(t.event("coordination_decision", map[string]any{"event": event, "decision": a}))
	if a.KeyDecision != "" {
		t.share(directive.Decision{Text: a.KeyDecision, Shared: a.KeyDecision}, "coordinator")
	}
	switch a.Action {
	case "respond":
		if err := t.respond(b, a); err != nil {
			t.unanswered(text, err)
			return
		}
		if b != nil {
			t.answers++
		} else {
			t.replies++
		}
	case "complete":
		t.complete()
	case "escalate":
		t.escalate(row.SessionBlocked, text, a)
	}
}

// unanswered handles an answer that could not be delivered: it escalates to the user, unless
// the dialog or the session has ended or the coordinator closes.
func (t *task) unanswered(text string, err error) {
	said := capability.AsError(err)
	switch {
	case said.Reason == sessions.ReasonNoDialog || said.Reason == sessions.ReasonEnded || t.c.ctx.Err() != nil:
		t.handled = "" // the next event has the new state
	default:
		t.escalate(row.SessionBlocked, text, directive.Answer{Response: question(text), Reasoning: "The answer did not arrive: " + said.Error()})
	}
}

// guarded returns a, or a refusal in its place if the dialog or the answer names a path
// outside of the session's folders.
func (t *task) guarded(text string, b *detect.Blocker, a directive.Answer) directive.Answer {
	var choices []string
	dialog := ""
	if b != nil {
		choices, dialog = b.Options, text
	}
	said := a.Response
	if a.UseKeys || said == "" {
		said = strings.Join(a.Keys, " ")
	} else if i := option(choices, said); i >= 0 {
		said = choices[i]
	}
	if instead, ok := decide.Guarded(dialog, said, choices, append([]string{t.row.Workdir}, t.c.cfg.Roots...)); ok {
		a.Response, a.UseKeys, a.Keys, a.Reasoning = instead, false, nil, "It would have led outside of the working directory. "+a.Reasoning
	}
	return a
}

// option returns the index of the choice that an answer names by its number or by the
// beginning of its label; -1 if it does not name exactly one.
func option(choices []string, answer string) int {
	b := detect.Blocker{Type: "permission", Options: choices}
	return chosen(&b, answer)
}

// chosen returns the index of the option of a dialog that an answer names, or -1.
func chosen(b *detect.Blocker, answer string) int {
	a, err := b.Read(detect.Reply{Text: answer})
	if err != nil {
		return -1
	}
	return a.Option
}

// respond sends a to the session: its keys, the choice of dialog b that it names, or its text,
// to which unseen decisions of other sessions are appended. A shell gets only the first line.
// Errors: conflict, reason session_gone or sessions.ReasonNoDialog; invalid_input, reason
// no_such_option; failed, reason submit_failed; and those of the session.
func (t *task) respond(b *detect.Blocker, a directive.Answer) error {
	term, err := t.c.cfg.Sessions.Terminal(t.id)
	if err != nil {
		return gone(t.id)
	}
	ctx, cancel := context.WithTimeout(t.c.ctx, sendTimeout)
	defer cancel()
	text, next := a.Response, t.row.LastSeenDecisionIndex
	switch {
	case b != nil && !t.open(term, b):
		return capability.Errorf(capability.CodeConflict, "task.coordinate", "that dialog is not open any more").With(sessions.ReasonNoDialog,
			"look at the screen again")
	case a.UseKeys || text == "":
		err = term.Keys(ctx, a.Keys)
	case b != nil && len(b.Options) > 0:
		i := chosen(b, text)
		if i < 0 {
			return capability.Errorf(capability.CodeInvalidInput, "task.coordinate", "the answer %.80q fits none of the dialog's choices",
				text).With("no_such_option", "")
		}
		err = term.Choose(ctx, cmp.Or(b.ID, b.Fingerprint), b.Options[i])
	default:
		if t.shell() { // a program in the shell reads one line; further lines would be commands
			text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
		} else if utf8.RuneCountInString(text) >= 20 {
			var list []string
			if list, next = t.unseen(); len(list) > 0 {
				text += "\n\nDecisions of other agents:\n- " + strings.Join(list, "\n- ")
			}
		}
		var outcome sessions.Outcome
		outcome, err = term.Send(ctx, text, false)
		if err == nil && outcome == sessions.NotSent {
			err = capability.Errorf(capability.CodeFailed, "task.coordinate", "the program did not take the text").With("submit_failed",
				"look at its screen")
		}
	}
	if err != nil {
		return err
	}
	t.sent(next)
	return nil
}

// sent records that the session received input. next is the index of the first decision of
// other sessions that it has not received.
func (t *task) sent(next int) {
	now := t.c.cfg.Now()
	t.mu.Lock()
	t.lastInput, t.active = now, now
	t.mu.Unlock()
	t.waiting, t.stopAt = time.Time{}, time.Time{}
	t.update(func(s *row.Session) {
		s.LastInputSentAt, s.LastSeenDecisionIndex = row.At(now), next
		if s.Status.Live() {
			s.Status = row.SessionActive
		}
	})
}

// open reports whether term is still blocked by the dialog b.
func (t *task) open(term Terminal, b *detect.Blocker) bool {
	i := term.Info()
	return i.Status == detect.Blocked &&
		(i.Blocker == nil || b.Fingerprint == "" || i.Blocker.Fingerprint == b.Fingerprint && (b.ID == "" || i.Blocker.ID == b.ID))
}

// escalate sends the question of a, or one made from content, to the user and sets a live
// session's status. The session itself gets no input.
func (t *task) escalate(status row.SessionStatus, content string, a directive.Answer) {
	t.waiting = t.c.cfg.Now()
	t.update(func(s *row.Session) {
		if s.Status.Live() {
			s.Status = status
		}
	})
	ask := a.Response
	if strings.TrimSpace(ask) == "" {
		ask = question(content)
	}
	t.c.tell(t.event("escalation", map[string]string{"question": ask, "reasoning": a.Reasoning, "text": text.LastRunes(content, 3000)}))
	t.c.tell(t.event("swarm_attention_required", map[string]string{"question": ask}))
	t.say(ask)
}

// Permit decides instead of the user about a tool call for which a preset requires a question.
// ok is false if the program has to ask the user: the session has no live task, its thread is
// not supervised autonomously, there is neither model nor parent, or they did not decide. ctx
// limits the wait for the session's current decision.
func (c *Coordinator) Permit(ctx context.Context, session, tool string, input []byte) (allow bool, reason string, ok bool) {
	c.mu.Lock()
	t := c.tasks[session]
	c.mu.Unlock()
	if t == nil || c.cfg.Model == nil && c.cfg.Parent == nil || c.Level(t.thread) != Autonomous {
		return false, "", false
	}
	s := "The agent wants to use " + tool + ": " + text.CutRunes(secret.MaskTokens(string(input)), maxInput) + "\nMay it?"
	err := t.do(ctx, func() error {
		b := &detect.Blocker{Type: "permission", Prompt: s, Options: []string{"Allow", "Deny"}, Selected: -1}
		if t.answers >= MaxResponses || ctx.Err() != nil || !t.row.Status.Live() {
			return nil
		}
		a := t.ask(situation{event: "blocked", text: s, blocker: b})
		if a.Action != "respond" {
			return nil
		}
		a = t.guarded(s, b, a)
		i := chosen(b, a.Response)
		if i < 0 {
			return nil
		}
		t.answers++
		t.record(row.Decision{
			EventType: "permission", PromptText: s, Decision: row.Verdict(a.Action), Response: b.Options[i],
			Reasoning: a.Reasoning,
		})
		t.c.tell(t.event("coordination_decision", map[string]any{"event": "permission", "decision": a}))
		allow, reason, ok = i == 0, a.Reasoning, true
		return nil
	})
	return allow && err == nil, reason, ok && err == nil
}
