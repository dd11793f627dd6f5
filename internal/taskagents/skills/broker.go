package skills

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/secret"
)

// useTimeout bounds one use of a skill.
const useTimeout = 2 * time.Minute

// Sessions types texts to agents.
type Sessions interface {
	// Send types a text to a session's program and returns when that took it.
	Send(ctx context.Context, session, text string) error
}

// Grant is what a session may use, and as whom.
type Grant struct {
	By    capability.Principal // whose rights a use has: the session's own
	Task  string               // what its uses are counted for, such as its thread
	Slugs []string
}

// Broker uses skills for agents that ask for it. It is safe for concurrent use; uses of
// one session come one after the other.
type Broker struct {
	source Source
	send   Sessions

	mu     sync.Mutex
	grants map[string]*grant // by session
	used   map[string]int    // by task
}

type grant struct {
	Grant
	turn int        // the last that was read
	one  sync.Mutex // held while a skill is used
}

// NewBroker makes a broker.
func NewBroker(source Source, send Sessions) *Broker {
	return &Broker{source: source, send: send, grants: make(map[string]*grant), used: make(map[string]int)}
}

// Allow states what a session may use, in place of what was said before. Who was allowed
// nothing may use nothing.
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

// Forget ends what a session may use; the count of a task goes with its last session.
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

// Turn reads what an agent ended a turn with, whatever the turn's end was noticed by, and
// uses the skill that it asks for. turn counts the session's turns from 1, so that one that
// is told twice is read once; 0 is not known. asked reports that there was a directive and
// that the agent was answered, and so goes on: the turn is not the end of its task. The
// error is of typing the answer.
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
		return false, nil // it has been told
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

// alone is what the questions of a session that was allowed nothing are counted for.
func alone(session string) string { return "session:" + session }

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
