package structured

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/structured/dialect"
)

// do queues the messages of a step and handles its events. The caller holds mu.
func (s *Session) do(step dialect.Step) {
	s.put(step.Out)
	for _, t := range step.Told {
		s.told(t)
	}
}

// told handles one event of the dialect. The caller holds mu.
func (s *Session) told(t dialect.Told) {
	switch t.Kind {
	case dialect.Opened:
		s.opened = true
		s.named(t.Token)
		s.move(detect.Status{State: detect.Ready}, "opened", "")
	case dialect.Named:
		s.named(t.Token)
	case dialect.Refused:
		s.fail("refused", "the program does not begin the conversation: "+t.Text)
	case dialect.SignIn:
		s.print("! " + t.Text)
		s.move(detect.Status{State: detect.Authenticating}, "sign in", t.Text)
	case dialect.Began:
		if s.opened && !s.begun {
			s.begun = true
			s.turns++
			s.move(detect.Status{State: detect.Busy}, "turn", "")
		}
	case dialect.Taken:
		s.taken++
	case dialect.Words:
		s.say(t.Text, t.More)
	case dialect.Tool:
		s.print("* " + strings.TrimSpace(t.Tool+" "+t.Text))
		s.works(detect.PhaseTool + ":" + t.Tool)
	case dialect.Phase:
		s.works(t.Phase)
	case dialect.Asked:
		s.question(t.Question)
	case dialect.Withdrawn:
		s.withdraw(t.Text)
	case dialect.Elsewhere:
		s.info.Elsewhere = true
		s.print("! answered elsewhere: " + t.Tool + " ran without an answer of junctor")
		s.emit(sessions.Event{Type: sessions.Elsewhere, Tool: t.Tool})
	case dialect.Ended:
		s.turnEnded(t)
	case dialect.Declined:
		s.declined = refusal{s.declined.times + 1, t.Text}
	case dialect.Denied:
		if len(s.denied.calls) < maxDenied {
			s.denied.calls = append(s.denied.calls, t)
		}
	case dialect.Spent:
		s.spent(t.Usage)
	case dialect.Wanted:
		s.file(t.File)
	case dialect.Warned:
		s.print("! " + t.Text)
	case dialect.Unknown:
		s.counts.Unknown++
		s.cfg.Logger.Debug("a program said what we do not know", "session", s.spec.ID, "what", t.Text)
	}
}

func (s *Session) named(token string) {
	if token != "" {
		s.info.ResumeToken = token
	}
}

func (s *Session) spent(u dialect.Usage) {
	now := u.Max(programs.Usage{})
	if was := s.info.Usage; !u.Total && was != nil {
		now = was.Plus(now)
	}
	if e, more := s.info.Spend(now); more {
		s.emit(e)
	}
}

// works sets the phase of the turn, unless it waits for the user.
func (s *Session) works(phase string) {
	if s.status.State == detect.Busy {
		s.move(detect.Status{State: detect.Busy, Phase: phase}, "turn", "")
	}
}

// turnEnded reports the end of a turn. Its open questions are withdrawn.
func (s *Session) turnEnded(t dialect.Told) {
	s.open = slices.DeleteFunc(s.open, func(*pending) bool { return true })
	if !s.opened {
		return
	}
	if !s.begun { // the turn ended before its start was reported
		s.turns++
		s.move(detect.Status{State: detect.Busy}, "turn", "")
	}
	s.begun = false
	s.view.end()
	if refused := s.unasked(t.Phase); t.Phase == detect.PhaseDone && refused != "" {
		t.Phase, t.Text = "failed:"+detect.RefusedPermission, strings.TrimSpace(refused+"\n"+t.Text)
	}
	if strings.HasPrefix(t.Phase, "failed:") {
		s.print("! " + t.Text)
	}
	s.move(detect.Status{State: detect.Ready, Phase: t.Phase}, "turn ended", t.Text)
}

// Refuse reports a tool call that a hook refused by the preset's rules. call is the program's id of it, by
// which the program may report it too; or "".
func (s *Session) Refuse(tool, call string, input []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused(tool, call, input, sessions.ByPreset)
}

// refused reports a refused tool call, and remembers it for the rest of the turn.
func (s *Session) refused(tool, call string, input []byte, by sessions.By) {
	if call != "" && len(s.denied.known) < maxDenied {
		if s.denied.known == nil {
			s.denied.known = make(map[string]bool)
		}
		s.denied.known[call] = true
	}
	r := sessions.Refusal{Tool: tool, What: dialect.Brief(input), By: by}
	if by == sessions.Unasked && len(s.denied.asking) < maxDenied {
		s.denied.asking = append(s.denied.asking, r)
	}
	s.emit(s.info.Refuse(r))
}

// unasked reports the tool calls that the program has refused in the turn that ended with phase. It
// returns a text about those that the user should have been asked about, or "".
func (s *Session) unasked(phase string) string {
	for _, d := range s.denied.calls {
		if s.denied.known[d.Call] || phase == detect.PhaseInterrupted {
			continue
		}
		by := sessions.ByProgram
		if s.spec.Rules != nil {
			switch j := s.spec.Rules(d.Tool, d.Input); {
			case j.Category == programs.UserInteraction: // a question or plan
				continue
			case j.Effect == permit.Deny:
				by = sessions.ByPreset
			case j.Effect == permit.Ask:
				by = sessions.Unasked
			}
		}
		s.refused(d.Tool, d.Call, d.Input, by)
	}
	var out strings.Builder
	for i, r := range s.denied.asking {
		if i == 0 {
			out.WriteString("refused without asking the user:")
		}
		out.WriteString(strings.TrimRight("\n- "+r.Tool+" "+text.ShortenBytes(r.What, 200), " "))
	}
	s.denied = denied{}
	return out.String()
}

// move changes the state and reports it. content is the result of the turn or the cause.
func (s *Session) move(to detect.Status, cause, content string) {
	from := s.status
	if !detect.Allowed(from.State, to.State) || from.State == to.State && from.Phase == to.Phase && from.Blocker == to.Blocker {
		return
	}
	s.status = to
	s.info.Status, s.info.Phase, s.info.Blocker = to.State, to.Phase, to.Blocker
	s.moved = time.Now()
	s.why = sessions.Event{
		Type: sessions.State, From: &from, To: &to, Cause: cause,
		Evidence: []detect.Evidence{{Class: 1, Source: "structured", Text: text.ClipBytes(content, 200)}},
	}
	s.emit(s.why)
	switch to.State {
	case detect.Busy:
		e := sessions.Event{Type: sessions.BusyNow, To: &to}
		if tool, ok := strings.CutPrefix(to.Phase, detect.PhaseTool+":"); ok {
			e.Type, e.Tool = sessions.ToolRunning, tool
		}
		s.emit(e)
	case detect.Blocked:
		s.emit(sessions.Event{Type: sessions.BlockedNow, To: &to})
	case detect.Authenticating:
		s.emit(sessions.Event{Type: sessions.LoginRequired, To: &to, Text: content})
	case detect.Ready:
		if s.info.ReadyAt.IsZero() {
			s.info.ReadyAt = time.Now()
		}
		e := sessions.Event{Type: sessions.ReadyAgain, To: &to}
		if kind, failed := strings.CutPrefix(to.Phase, "failed:"); failed {
			e.Type, e.Kind, e.Text, e.Source = sessions.TurnFailed, kind, content, "structured"
		} else if to.Phase == detect.PhaseDone {
			e.Type, e.Text, e.Source = sessions.TaskComplete, content, "structured"
			s.info.Completed++
		}
		s.emit(e)
	}
	s.x.Notify()
}

// emit numbers, masks and reports an event. The caller holds mu, so that events are in order.
func (s *Session) emit(e sessions.Event) {
	s.info.Seq++
	e.Seq, e.Session, e.At = s.info.Seq, s.spec.ID, time.Now()
	if s.cfg.Tell != nil {
		s.cfg.Tell(s.spec.Mask.Event(e))
	}
}

// question handles a question of the program: Judge decides in a goroutine, or the user is asked.
func (s *Session) question(q *dialect.Question) {
	if len(s.open) >= maxOpen || slices.ContainsFunc(s.open, func(p *pending) bool { return p.ID == q.ID }) {
		s.refuse(q, "too much is asked at once")
		return
	}
	p := &pending{Question: q}
	s.open = append(s.open, p)
	if q.Type != "permission" || s.spec.Judge == nil { // only a user answers questions and plans
		s.show(p)
		return
	}
	s.group.Go(func() {
		d := s.judge(Ask{q.Tool, q.Input, q.Prompt, false})
		s.mu.Lock()
		defer s.mu.Unlock()
		if !slices.Contains(s.open, p) {
			return // the question was withdrawn
		}
		option := -1
		switch {
		case d.Effect == permit.Allow && !q.Refusable:
			option = q.Find("allow_once")
		case d.Effect == permit.Deny:
			option = q.Find("reject_once", "reject_always")
		}
		if option < 0 {
			s.show(p)
			return
		}
		if d.Effect == permit.Deny {
			s.refused(p.Tool, p.Call, p.Input, sessions.ByPreset)
		}
		s.answer(p, option, d.Reason)
	})
}

// judge calls Spec.Judge with a timeout of judgeTimeout.
func (s *Session) judge(a Ask) permit.Decision {
	ctx, cancel := context.WithTimeout(s.ctx, judgeTimeout)
	defer cancel()
	said := make(chan permit.Decision, 1)
	go func() { said <- s.spec.Judge(ctx, a) }()
	select {
	case d := <-said:
		return d
	case <-ctx.Done():
		return permit.Decision{Effect: permit.Ask}
	}
}

// refuse rejects a question without asking the user.
func (s *Session) refuse(q *dialect.Question, why string) {
	if option := q.Find("reject_once", "reject_always"); option >= 0 {
		if q.Type == "permission" {
			s.refused(q.Tool, q.Call, q.Input, sessions.Unasked)
		}
		s.do(s.talk.Answer(q, option, why))
		return
	}
	s.fail("protocol", why)
}

// show leaves a question to the user, as a blocker.
func (s *Session) show(p *pending) {
	p.shown = true
	s.print("? " + p.Prompt + " [" + strings.Join(p.Labels(), " | ") + "]")
	s.blocker()
}

// blocker derives the state from the questions to the user; the oldest one is the open dialog.
func (s *Session) blocker() {
	i := slices.IndexFunc(s.open, func(p *pending) bool { return p.shown })
	if i < 0 {
		if s.status.State == detect.Blocked {
			s.move(detect.Status{State: detect.Busy}, "answered", "")
		}
		return
	}
	q := s.open[i]
	mark := detect.Fingerprint(q.Type, q.Prompt, q.Labels())
	if b := s.status.Blocker; b != nil && s.status.State == detect.Blocked && b.Fingerprint == mark {
		return
	}
	s.move(detect.Status{State: detect.Blocked, Blocker: &detect.Blocker{
		ID: policy.NewApprovalID(time.Now()), Type: q.Type, Prompt: q.Prompt, Options: q.Labels(), Selected: -1,
		Fingerprint: mark, Source: "protocol", Tool: q.Tool, Input: q.Input, Cwd: q.Cwd, Reason: q.Reason, Choices: q.Choices(), Questions: q.Form, Asked: time.Now(),
	}}, "question", q.Prompt)
}

// fill sends the values of a form and continues with the remaining questions.
func (s *Session) fill(p *pending, values map[string][]string) {
	s.open = slices.DeleteFunc(s.open, func(o *pending) bool { return o == p })
	for _, q := range p.Form {
		said := strings.Join(values[q.ID], ", ")
		if q.Secret {
			said = "(not shown)"
		}
		s.print("= " + q.Text + " " + said)
	}
	s.do(s.talk.Fill(p.Question, values))
	s.reopen(p.shown)
}

// answer sends the answer to a question and continues with the remaining ones.
func (s *Session) answer(p *pending, option int, why string) {
	s.open = slices.DeleteFunc(s.open, func(o *pending) bool { return o == p })
	s.print("= " + p.Tool + ": " + p.Options[option].Label)
	s.do(s.talk.Answer(p.Question, option, why))
	s.reopen(p.shown)
}

func (s *Session) withdraw(id string) {
	shown := slices.ContainsFunc(s.open, func(p *pending) bool { return p.ID == id && p.shown })
	s.open = slices.DeleteFunc(s.open, func(p *pending) bool { return p.ID == id })
	s.reopen(shown)
}

// reopen updates the state after a question was removed. An equal next question is reported as
// another dialog.
func (s *Session) reopen(shown bool) {
	if shown && s.status.State == detect.Blocked {
		s.move(detect.Status{State: detect.Busy}, "answered", "")
	}
	s.blocker()
}

// file reads or writes a file for the program in a goroutine, within its folder and as far as the
// preset allows it.
func (s *Session) file(f *dialect.File) {
	if s.filing >= maxOpen {
		s.do(s.talk.Filed(f, "", errTooMany))
		return
	}
	s.filing++
	s.group.Go(func() {
		text, err := s.filed(f)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.filing--
		s.do(s.talk.Filed(f, text, err))
	})
}
