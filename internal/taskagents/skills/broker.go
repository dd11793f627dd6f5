package skills

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/secret"
)

// Sessions sends texts to agents.
type Sessions interface {
	// Send types a text to a session's program and returns when the program accepted it.
	Send(ctx context.Context, session, text string) error
}

// Grant lists the skills that a session may use, and the principal of their calls.
type Grant struct {
	By    capability.Principal // principal of the calls: the session's own
	Task  string               // id that calls are counted by, such as the thread
	Slugs []string
}

// Broker runs skills that agents request. It is safe for concurrent use; the calls of one
// session run one after the other.
type Broker struct {
	source Source
	send   Sessions

	mu     sync.Mutex
	grants map[string]*grant // by session
	used   map[string]int    // by task
}

type grant struct {
	Grant
	turn int        // last turn that was read
	one  sync.Mutex // held while a skill runs
}

// NewBroker returns a broker without grants.
func NewBroker(source Source, send Sessions) *Broker {
	return &Broker{source: source, send: send, grants: make(map[string]*grant), used: make(map[string]int)}
}

// Allow replaces the grant of a session. A session without grant may use no skills.
func (b *Broker) Allow(session string, g Grant) {
	g.Slugs = slices.Clone(g.Slugs)
	b.mu.Lock()
	defer b.mu.Unlock()
	turn := 0
	if old := b.grants[session]; old != nil {
		turn = old.turn
	}
	b.grants[session] = &grant{Grant: g, turn: turn}
}

// Forget removes the grant of a session, and the count of its task if no other session of the
// task has a grant.
func (b *Broker) Forget(session string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.used, alone(session))
	g := b.grants[session]
	if g == nil {
		return
	}
	delete(b.grants, session)
	for _, other := range b.grants {
		if other.Task == g.Task {
			return
		}
	}
	delete(b.used, g.Task)
}

// Turn runs the skill that the text of a turn requests, and sends the result or a refusal to
// the session. turn is the number of the session's turn from 1, so that a turn that is reported
// twice is read once; 0 means unknown. asked reports that the text has a directive and an
// answer was sent, so that the turn does not end the task. Directives after the refusal of the
// first excess one are ignored. The error is that of sending.
func (b *Broker) Turn(ctx context.Context, session string, turn int, text directive.Text) (asked bool, err error) {
	call, ok := directive.ReadSkill(text)
	if !ok {
		return false, nil
	}
	b.mu.Lock()
	g := b.grants[session]
	task, refused := alone(session), ""
	if g != nil {
		if turn > 0 && turn <= g.turn {
			b.mu.Unlock()
			return false, nil
		}
		g.turn, task = max(g.turn, turn), g.Task
	}
	switch n := b.used[task]; {
	case g == nil:
		refused = "this session may use no skills"
	case n > directive.MaxSkillCalls:
		b.mu.Unlock()
		return false, nil // the agent was already refused
	case n == directive.MaxSkillCalls:
		b.used[task]++
		refused = "the task has used up its skills; finish without them"
	default:
		b.used[task]++
		if !slices.Contains(g.Slugs, call.Slug) {
			refused = "this skill is not among yours"
			if len(g.Slugs) > 0 {
				refused += ", which are: " + strings.Join(g.Slugs, ", ")
			}
		}
	}
	b.mu.Unlock()
	result := refused
	if refused == "" {
		result, ok = b.use(ctx, g, call)
	} else {
		ok = false
	}
	return true, b.send.Send(ctx, session, directive.SkillResult(call.Slug, ok, secret.MaskTokens(result)))
}

// alone returns the id by which requests of a session without grant are counted.
func alone(session string) string { return "session:" + session }

// use runs a skill for at most useTimeout, after other calls of the session. If it fails, ok is
// false and text is the error's message and hint.
func (b *Broker) use(ctx context.Context, g *grant, call directive.SkillCall) (text string, ok bool) {
	g.one.Lock()
	defer g.one.Unlock()
	ctx, cancel := context.WithTimeout(ctx, useTimeout)
	defer cancel()
	text, err := b.source.Use(ctx, g.By, call.Slug, call.Input, call.Words)
	if err != nil {
		e := capability.AsError(err)
		return strings.TrimSpace(e.Message + ". " + e.Hint), false
	}
	if strings.TrimSpace(text) == "" {
		text = "(it said nothing)"
	}
	return text, true
}
