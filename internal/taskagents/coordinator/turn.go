package coordinator

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/decide"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// situation is the event that requires a decision.
type situation struct {
	event         string // blocked, turn_complete or idle
	text          string
	blocker       *detect.Blocker
	check, checks int
}

// blocked handles a dialog: it records one that a rule has answered, otherwise it decides and
// executes an answer. A dialog is handled once. With level Notify it is only reported.
func (t *task) blocked(e sessions.Event) {
	b := &detect.Blocker{Selected: -1}
	if e.To != nil && e.To.Blocker != nil {
		b = e.To.Blocker
	}
	if t.pending != "" && t.pending != b.Fingerprint {
		t.expire()
	}
	if e.Answered != "" {
		t.record(row.Decision{
			EventType: "blocked", PromptText: b.Prompt, Decision: row.AutoResolved, Response: e.Answered,
			Reasoning: "A rule answers it.",
		})
		t.c.tell(t.event("blocked_auto_resolved", e))
		return
	}
	if b.Fingerprint != "" && b.Fingerprint == t.handled {
		return
	}
	t.handled = b.Fingerprint
	if !t.row.Status.Live() {
		return
	}
	if t.row.Status != row.SessionBlocked {
		t.update(func(s *row.Session) { s.Status = row.SessionBlocked })
	}
	t.c.tell(t.event("blocked", e))
	if t.c.Level(t.thread) == Notify {
		return
	}
	text := b.Prompt
	if strings.TrimSpace(text) == "" {
		text = t.lines(30)
	}
	if b.Type == "question" || b.Type == "plan" {
		t.execute("blocked", text, b, directive.Answer{
			Action: "escalate", Response: text, Reasoning: "Only the user answers questions and plans.",
		})
		t.waiting = time.Time{} // without a limit
		return
	}
	t.execute("blocked", text, b, t.ask(situation{event: "blocked", text: text, blocker: b}))
}

// turn handles a completed turn: it shares the decisions in its text, runs the skill that it
// requests, and otherwise decides whether the task continues, is complete, or needs the user.
func (t *task) turn(e sessions.Event) {
	if !t.row.Status.Live() { // the task is over, and no new turn has started
		return
	}
	content := directive.Text{Body: e.Text}
	if e.Source == "signal" {
		content.Columns = sessions.Cols
	}
	t.answers = 0
	if t.pending != "" { // of the turn before, or of a dialog that is gone
		t.expire()
	}
	stuck := ""
	for _, d := range t.ledger.Take(content, t.row.OriginalTask, t.brief()) {
		t.share(d, e.Source)
		if d.CannotContinue {
			stuck = d.Text
		}
	}
	switch {
	case strings.TrimSpace(e.Text) == "" && t.shell():
		e.Text = "It printed nothing."
	case strings.TrimSpace(e.Text) == "":
		e.Text = t.lines(50) // use the screen's text
	case decide.Animated(e.Text):
		return
	}
	t.result = e.Text
	t.update(func(s *row.Session) {
		s.TaskDelivered, s.IdleCheckCount, s.LastActivityAt = true, 0, row.At(t.c.cfg.Now())
		if s.Status == row.SessionToolRunning || s.Status == row.SessionBlocked {
			s.Status = row.SessionActive
		}
	})
	t.c.tell(t.event("turn_complete", map[string]string{"source": e.Source, "text": text.CutRunes(e.Text, 4000)}))
	switch {
	case t.c.Level(t.thread) == Notify, t.skill(e, content):
		return
	case stuck != "":
		t.c.tell(t.event("turn_failed", map[string]string{"kind": "cannot_continue", "text": stuck}))
		t.execute("turn_failed", e.Text, nil, directive.Answer{Action: "escalate", Response: "The agent " + t.name() + " cannot continue: " +
			stuck, Reasoning: "it says so"})
		return
	case t.row.Repo != "" && decide.Proposed(e.Text):
		t.execute("turn_complete", e.Text, nil, directive.Answer{Action: "complete", Reasoning: "The pull request is there."})
		return
	}
	a := t.ask(situation{event: "turn_complete", text: e.Text})
	t.c.tell(t.event("turn_assessment", a))
	t.execute("turn_complete", e.Text, nil, a)
}

// skill runs the skill that a turn requests. It reports whether one was requested, in which
// case the turn does not end the task.
func (t *task) skill(e sessions.Event, text directive.Text) bool {
	if t.c.cfg.Skills == nil || t.shell() {
		return false
	}
	turn := 0
	if term, err := t.c.cfg.Sessions.Terminal(t.id); err == nil {
		turn = term.Info().Completed
	}
	asked, err := t.c.cfg.Skills.Turn(t.c.ctx, t.id, turn, text)
	switch {
	case err != nil:
		t.unanswered(e.Text, err)
	case asked:
		t.sent(t.row.LastSeenDecisionIndex)
	}
	return asked
}

// ask returns a decision. The small model decides routine questions and the parent the others;
// the model decides if the parent is missing or its answer malformed. If none of them
// decides, the answer escalates to the user. Without model and parent, a completed turn that
// asks nothing completes the task.
func (t *task) ask(s situation) directive.Answer {
	tier := decide.OfTurn(s.text)
	dialog := ""
	var choices []string
	if s.blocker != nil {
		tier, dialog, choices = decide.OfDialog(s.blocker.Type, s.text), s.text, s.blocker.Options
	}
	model := t.c.cfg.Model
	if tier == decide.Undecided {
		tier = decide.Creative
		if model != nil {
			if text, err := t.model(true, decide.TierPrompt(t.row.OriginalTask, dialog, s.text)); err == nil {
				tier = decide.ReadTier(text)
			}
		}
	}
	prompt := decide.Prompt(t.situation(s, choices))
	if tier == decide.Creative && t.c.cfg.Parent != nil {
		ctx, cancel := context.WithTimeout(t.c.ctx, parentTimeout)
		text, err := t.c.cfg.Parent.Decide(ctx, Question{t.thread, t.id, t.room(), s.event, prompt})
		cancel()
		if a, ok := directive.ReadAnswer(text); ok && err == nil {
			return a
		}
		t.c.cfg.Logger.Warn("the parent did not decide", "session", t.id, "err", err)
	}
	if model != nil {
		text, err := t.model(tier == decide.Routine, prompt)
		if a, ok := directive.ReadAnswer(text); ok && err == nil {
			return a
		}
		t.c.cfg.Logger.Warn("the model did not decide", "session", t.id, "err", err)
		return directive.Answer{Action: "escalate", Response: question(s.text), Reasoning: "The model's answer could not be read."}
	}
	if s.event == "turn_complete" && t.c.cfg.Parent == nil && !decide.AsksUser(s.text) && !strings.HasSuffix(strings.TrimSpace(s.text), "?") {
		return directive.Answer{Action: "complete", Reasoning: "The turn is done, it asks nothing, and there is no model."}
	}
	return directive.Answer{Action: "escalate", Response: question(s.text), Reasoning: "Only a person can decide this."}
}

func (t *task) model(small bool, prompt string) (string, error) {
	ctx, cancel := context.WithTimeout(t.c.ctx, modelTimeout)
	defer cancel()
	return t.c.cfg.Model.Ask(ctx, small, prompt)
}

// question returns the default question to the user about s.
func question(s string) string {
	return "An agent needs you: " + text.LastRunes(strings.TrimSpace(s), 1500)
}

// situation returns the facts about the task for a prompt: its past decisions, its siblings
// and the decisions that they shared.
func (t *task) situation(s situation, choices []string) decide.Situation {
	out := decide.Situation{
		Event: s.event, AgentType: t.row.Framework, Label: t.name(), Task: t.row.OriginalTask, Workdir: t.row.Workdir, Repo: t.row.Repo,
		Brief: t.brief(),
		Text:  s.text, Choices: choices, Check: s.check, Checks: s.checks,
	}
	d, err := t.c.cfg.Registry.Detail(t.c.ctx, t.thread, threads.Selection{Fields: []threads.Field{
		threads.FieldSessions,
		threads.FieldDecisions,
	}})
	if err != nil {
		t.c.cfg.Logger.Warn("a thread could not be read", "thread", t.thread, "err", err)
	}
	for _, one := range d.Decisions[max(0, len(d.Decisions)-200):] {
		if one.SessionID == t.id && one.Decision != row.AutoResolved {
			out.Past = append(out.Past, decide.Past{
				Event: one.EventType, Decision: string(one.Decision), Response: one.Response,
				Reason: one.Reasoning,
			})
		}
	}
	latest := make(map[string]string)
	t.c.mu.Lock()
	if th := t.c.threads[t.thread]; th != nil {
		for _, sh := range th.shared {
			latest[sh.session] = sh.text
			if sh.session != t.id {
				out.Shared = append(out.Shared, sh.text)
			}
		}
	}
	t.c.mu.Unlock()
	for _, one := range d.Sessions {
		if one.SessionID == t.id || row.Meta(one.Metadata, row.ReplacedBy) != "" {
			continue
		}
		said := one.CompletionSummary
		if said == "" {
			said = latest[one.SessionID]
		}
		out.Siblings = append(out.Siblings, decide.Sibling{Label: one.Label, Status: string(one.Status), Result: said})
	}
	return out
}

// share records and publishes a decision and adds it to the thread's shared decisions, which
// other sessions get with their next input.
func (t *task) share(d directive.Decision, source string) {
	confidence := "text"
	if d.Screen {
		confidence = "screen"
	}
	data := map[string]string{"label": t.name(), "text": d.Shared, "source": source, "confidence": confidence}
	if err := t.c.cfg.Registry.Record(t.c.ctx, row.Event{
		ThreadID: t.thread, SessionID: t.id, EventType: row.DecisionShared, Summary: d.Shared,
		Data: document(data),
	}); err != nil {
		t.c.cfg.Logger.Warn("a shared decision could not be kept", "session", t.id, "err", err)
	}
	t.c.mu.Lock()
	if th := t.c.threads[t.thread]; th != nil {
		th.shared = append(th.shared, shared{t.id, d.Shared})
		if n := len(th.shared) - maxShared; n > 0 {
			th.shared, th.from = th.shared[n:], th.from+n
		}
	}
	t.c.mu.Unlock()
	t.c.tell(t.event(row.DecisionShared, data))
}

// unseen returns the last ten shared decisions of other sessions that this session has not
// received, and the index after the newest.
func (t *task) unseen() (list []string, next int) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	th := t.c.threads[t.thread]
	if th == nil {
		return nil, t.row.LastSeenDecisionIndex
	}
	for i, sh := range th.shared {
		if th.from+i >= t.row.LastSeenDecisionIndex && sh.session != t.id {
			list = append(list, sh.text)
		}
	}
	return list[max(0, len(list)-10):], th.from + len(th.shared)
}

func (t *task) brief() string {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if th := t.c.threads[t.thread]; th != nil {
		return row.Meta(th.row.Metadata, metaBrief)
	}
	return ""
}

func (t *task) room() string {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if th := t.c.threads[t.thread]; th != nil {
		return th.row.RoomID
	}
	return ""
}

// lines returns the last n lines of the program's screen, or "" if the session is gone.
func (t *task) lines(n int) string {
	term, err := t.c.cfg.Sessions.Terminal(t.id)
	if err != nil {
		return ""
	}
	return strings.Join(term.Lines(n), "\n")
}

var telling = regexp.MustCompile(`https?://\S+|\b[0-9a-f]{7,40}\b`)

// summary returns the text of the last turn or, if it is empty, the URLs, commits and last
// lines of the screen.
func (t *task) summary() string {
	if s := strings.TrimSpace(t.result); s != "" {
		return text.LastRunes(s, 8000)
	}
	s := t.lines(50)
	return text.LastRunes(strings.Join(telling.FindAllString(s, 20), " ")+"\n"+text.LastRunes(s, 2000), 8000)
}

// record stores a decision about the session, with its texts cut. A failure is logged.
func (t *task) record(d row.Decision) {
	d.SessionID, d.PromptText, d.Response, d.Reasoning = t.id, text.LastRunes(d.PromptText, 4000),
		text.CutRunes(d.Response, directive.MaxResponse), text.CutRunes(d.Reasoning, directive.MaxStored)
	m, err := t.c.retry(func() (threads.Moved, error) { return t.c.cfg.Registry.Decide(t.c.ctx, d) })
	if err != nil {
		t.c.cfg.Logger.Warn("a decision could not be kept", "session", t.id, "err", err)
		return
	}
	t.took(m)
}
