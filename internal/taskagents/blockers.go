package taskagents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

const (
	reasonAnswerRequired = "answer_required"
	reasonNotShown       = "not_shown"
	reasonOtherGateway   = "blocker_elsewhere"
)

// blockers stores what programs wait for as approvals, and passes answers to the programs. An
// approval has the id of its blocker, and ends when the program goes on.
type blockers struct {
	approvals Approvals
	agents    *agents.Agents
	sessions  *sessions.Manager
	denied    func(ctx context.Context, session string) // of the coordinator
	module    string                                    // of the approvals of this gateway
	logger    *slog.Logger

	mu   sync.Mutex
	open map[string]string // the approval that a session waits for
	busy map[string]int    // approvals that are being answered
}

// openBlockers returns the blockers of the sessions. Approvals of an earlier server process end,
// because its programs have ended.
func (s *Service) openBlockers(ctx context.Context, t *taskAgents) (*blockers, error) {
	b := &blockers{
		approvals: s.cfg.Approvals, agents: t.Agents, sessions: t.sessions, denied: t.threads.coordinator.Denied,
		module: "agents:" + s.cfg.Gateway, logger: s.logger, open: make(map[string]string), busy: make(map[string]int),
	}
	return b, b.approvals.EndBlockers(ctx, b.module)
}

// run stores the blockers of all sessions until ctx ends.
func (b *blockers) run(ctx context.Context) error {
	for ctx.Err() == nil {
		b.follow(ctx)
	}
	return nil
}

// follow stores blockers until ctx or its subscription ends. First it stores those that an earlier
// subscription has missed.
func (b *blockers) follow(ctx context.Context) {
	events := b.sessions.Subscribe()
	defer events.Close()
	for _, s := range b.sessions.List() {
		b.settle(ctx, s.ID())
		b.store(ctx, s)
	}
	for {
		e, ok, err := events.Next(ctx)
		if err != nil || !ok {
			return
		}
		switch e.Type {
		case sessions.State, sessions.Ended, sessions.Failed:
			b.settle(ctx, e.Session)
		case sessions.BlockedNow:
			if e.Answered != "" {
				continue
			}
			if s, err := b.sessions.Get(e.Session); err == nil {
				b.settle(ctx, e.Session)
				b.store(ctx, s)
			}
		}
	}
}

// waiting returns the open blocker of a session, or nil.
func waiting(s sessions.Live) *detect.Blocker {
	if i := s.Info(); i.Status == detect.Blocked && i.Blocker != nil && i.Blocker.ID != "" {
		return i.Blocker
	}
	return nil
}

// store stores the open blocker of a session, if there is one.
func (b *blockers) store(ctx context.Context, s sessions.Live) {
	open := waiting(s)
	if open == nil {
		return
	}
	b.mu.Lock()
	known := b.open[s.ID()] == open.ID
	b.open[s.ID()] = open.ID
	b.mu.Unlock()
	if known {
		return
	}
	owner := ""
	if i, _, err := b.agents.Get(s.ID()); err == nil {
		owner = i.Owner
	}
	err := b.approvals.OpenBlocker(ctx, approvalOf(open, s.Info(), owner, b.module))
	if err != nil && capability.CodeOf(err) != capability.CodeConflict && ctx.Err() == nil { // conflict: it is answered already
		b.logger.Error("a question of an agent is not listed as an approval", "session", s.ID(), "approval", open.ID, "err", err)
	}
}

// settle ends the approval of a session that does not wait for it any more, unless it is being
// answered.
func (b *blockers) settle(ctx context.Context, session string) {
	now := ""
	if s, err := b.sessions.Get(session); err == nil {
		if open := waiting(s); open != nil {
			now = open.ID
		}
	}
	b.mu.Lock()
	id := b.open[session]
	over := id != "" && id != now && b.busy[id] == 0
	if over {
		delete(b.open, session)
	}
	b.mu.Unlock()
	if over {
		b.decide(ctx, capability.Principal{}, id, "")
	}
}

// decide stores how an approval was answered; d is "" if the program went on without an answer.
func (b *blockers) decide(ctx context.Context, by capability.Principal, id string, d policy.Decision) {
	if err := b.approvals.SettleBlocker(context.WithoutCancel(ctx), by, b.module, id, d); err != nil {
		b.logger.Error("the answer to a question of an agent is not stored", "approval", id, "decision", string(d), "err", err)
	}
}

// answer answers the open blocker of a session and stores the decision. maxSeen is the number of
// bytes of the tool's input that the user could see. Errors: those of [sessions.Live.Answer], and
// invalid_input (not_shown) for an input that is longer and would be allowed.
func (b *blockers) answer(ctx context.Context, by capability.Principal, s sessions.Live, r detect.Reply, maxSeen int) error {
	open := waiting(s)
	if open == nil {
		return detect.Ended()
	}
	meant, err := open.Read(r)
	if err != nil {
		return err
	}
	effect := open.Effect(meant)
	if effect != detect.Denies && len(open.Input) > maxSeen {
		return capability.Errorf(capability.CodeInvalidInput, "tasks.answer",
			"the question did not show the whole input, so it cannot be allowed there").With(reasonNotShown,
			"look at it with: junctor tasks show "+s.ID()+"; then: junctor tasks answer "+s.ID())
	}
	b.store(ctx, s)
	r.Blocker = open.ID
	b.hold(open.ID, 1)
	if effect == detect.Denies && open.Source != "protocol" {
		b.denied(ctx, s.ID())
	}
	err = s.Answer(ctx, r)
	b.hold(open.ID, -1)
	if err != nil {
		b.settle(ctx, s.ID())
		return err
	}
	b.mu.Lock()
	mine := b.open[s.ID()] == open.ID
	if mine {
		delete(b.open, s.ID())
	}
	b.mu.Unlock()
	if mine {
		b.decide(ctx, by, open.ID, decisionOf(effect))
	}
	return nil
}

func (b *blockers) hold(id string, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy[id] += by; b.busy[id] <= 0 {
		delete(b.busy, id)
	}
}

func decisionOf(e detect.Effect) policy.Decision {
	switch e {
	case detect.Denies:
		return policy.DecideDeny
	case detect.InSession:
		return policy.DecideSession
	case detect.Always:
		return policy.DecideAlways
	}
	return policy.DecideOnce
}

// Answer implements agentserve.Agents.
func (t *taskAgents) Answer(ctx context.Context, by capability.Principal, s sessions.Live, r detect.Reply) error {
	const all = 1 << 30 // the view of a session has the whole input
	return t.blockers.answer(ctx, by, s, r, all)
}

// AnswerApproval implements policy.Programs. A decision selects the one option that has its effect.
// Errors: conflict (blocker_ended), unavailable (blocker_elsewhere), invalid_input (answer_required,
// not_shown), and those of the answer.
func (s *Service) AnswerApproval(ctx context.Context, by capability.Principal, a policy.Approval, r policy.Reply) error {
	const op = "approvals.decide"
	b := s.workers.blockers
	if a.Module != b.module {
		return capability.Errorf(capability.CodeUnavailable, op, "the program that waits runs at another gateway").With(reasonOtherGateway,
			"answer it at the gateway of "+strings.TrimPrefix(a.Module, "agents:"))
	}
	session, err := b.sessions.Get(a.Session)
	var open *detect.Blocker
	if err == nil {
		open = waiting(session)
	}
	if open == nil || open.ID != a.ID {
		b.settle(ctx, a.Session)
		return detect.Ended()
	}
	reply := detect.Reply{Text: r.Text, Free: r.Free, Values: r.Values}
	if r.Text == "" && len(r.Values) == 0 {
		effect, ok := map[policy.Decision]detect.Effect{
			policy.DecideOnce: detect.Once, policy.DecideSession: detect.InSession,
			policy.DecideAlways: detect.Always, policy.DecideDeny: detect.Denies,
		}[r.Decision]
		if ok {
			reply, ok = open.ReplyFor(effect)
		}
		if !ok {
			return capability.Errorf(capability.CodeInvalidInput, op, "the program offers no single answer that means %s", r.Decision).
				With(reasonAnswerRequired, "choose one of its answers: junctor approvals show "+a.ID+"; then: junctor approvals approve "+
					a.ID+" --answer N")
		}
	}
	reply.Blocker = a.ID
	return b.answer(ctx, by, session, reply, maxKept)
}

// approvalOf returns the approval of a blocker.
func approvalOf(b *detect.Blocker, i sessions.Info, owner, module string) policy.Approval {
	a := policy.Approval{
		ID: b.ID, Kind: policy.KindTerminal, Module: module, Session: i.ID, Effect: capability.EffectExternal, Asked: b.Asked.UTC(),
		Binding: policy.Binding{Principal: owner},
		Summary: text.Visible(text.ClipBytes(summary(b, i), maxSummary)),
	}
	if b.Type == "question" || b.Type == "plan" {
		a.Kind, a.Effect = policy.KindQuestion, capability.EffectRead
	}
	details, _ := jsonx.Marshal(details(b, i)) // texts always encode
	sum := sha256.Sum256(b.Input)
	if len(b.Input) <= maxKept {
		a.Input = b.Input
	}
	if len(b.Input) > 0 {
		a.InputDigest = hex.EncodeToString(sum[:])
	}
	view, err := policy.Show(nil, details, a.Input)
	if err != nil || len(b.Input) > maxKept {
		view, _ = policy.Show(nil, details, nil)
		view.Members = []policy.ShownValue{{Name: "input", Bytes: len(b.Input), SHA256: a.InputDigest}}
	}
	if len(b.Questions) < 2 {
		view.Choices = shownChoices(b.Offered())
	}
	for _, q := range b.Questions {
		view.Questions = append(view.Questions, policy.ShownQuestion{
			ID: q.ID, Text: text.Visible(q.Text), Choices: shownChoices(q.Options), Multiple: q.Multiple, FreeText: q.FreeText, Secret: q.Secret,
		})
	}
	a.Shown = view
	return a
}

func summary(b *detect.Blocker, i sessions.Info) string {
	prompt := strings.Join(strings.Fields(b.Prompt), " ")
	if prompt == "" {
		prompt = "an answer"
	}
	if b.Tool != "" {
		prompt = b.Tool + ": " + prompt
	}
	return fmt.Sprintf("%s waits for a %s: %s", first(i.Name, i.AgentType, i.ID), b.Type, prompt)
}

func details(b *detect.Blocker, i sessions.Info) map[string]string {
	out := map[string]string{"kind": b.Type, "source": b.Source}
	for name, v := range map[string]string{
		"tool": b.Tool, "folder": first(b.Cwd, i.Workdir), "prompt": b.Prompt, "in the words of the model": b.Reason, "thread": i.ThreadID,
	} {
		if v != "" {
			out[name] = v
		}
	}
	return out
}

func shownChoices(list []detect.Choice) (out []policy.ShownChoice) {
	for _, c := range list {
		out = append(out, policy.ShownChoice{
			N: c.N, Label: text.Visible(c.Label), Description: text.Visible(c.Description), Effect: string(c.Effect),
		})
	}
	return out
}
