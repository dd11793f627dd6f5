package noderun

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/nodes/skill"
)

// questions asks the owner of this machine, who answers at the terminal or through
// the socket. If no user is at the terminal, a caller that said how long it would
// wait waits; any other is told at once to come again, and the question stays.
type questions struct {
	interactive bool
	now         func() time.Time

	mu      sync.Mutex
	open    []*question
	changed chan struct{} // closed and replaced when one comes
}

type question struct {
	device.Question
	ids    []string // it was asked under, the newest last
	until  time.Time
	waits  int
	answer *device.Answer
	done   chan struct{} // closed with the answer
}

func newQuestions(interactive bool) *questions {
	return &questions{interactive: interactive, now: time.Now, changed: make(chan struct{})}
}

// same reports whether one answer would do for both questions.
func (q *question) same(other device.Question) bool {
	return q.SkillName == other.SkillName && q.SHA256 == other.SHA256 && q.Call == other.Call &&
		slices.Equal(aliases(q.Question), aliases(other)) && q.Caller == other.Caller && bytes.Equal(q.Arguments, other.Arguments)
}

func aliases(q device.Question) []string {
	var out []string
	for i := range q.Capabilities {
		out = append(out, q.Capabilities[i].Alias)
	}
	slices.Sort(out)
	return out
}

// Interactive implements device.Owner.
func (s *questions) Interactive() bool { return s.interactive }

// Ask implements device.Owner.
func (s *questions) Ask(ctx context.Context, asked device.Question) (device.Answer, error) {
	q, err := s.put(asked)
	if err != nil {
		return device.Answer{}, err
	}
	wait := s.interactive || asked.ExpiresAt.Before(s.now().Add(skill.AskTimeout-time.Second))
	if !wait {
		select {
		case <-q.done:
			return s.taken(q), nil
		default:
			s.left(q)
			return device.Answer{}, skill.ErrNobody
		}
	}
	select {
	case <-q.done:
		return s.taken(q), nil
	case <-ctx.Done():
		s.left(q)
		return device.Answer{}, ctx.Err()
	}
}

// put finds the same question, or adds it. An answer about a call is for one call, so only one that was asked again
// takes it, and not one that is asked meanwhile.
func (s *questions) put(asked device.Question) (*question, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tidy()
	for _, q := range s.open {
		if q.same(asked) && (!asked.Call || q.waits == 0) {
			q.waits++
			if q.ids = append(q.ids, asked.RequestID); len(q.ids) > maxNames {
				q.ids = q.ids[1:]
			}
			return q, nil
		}
	}
	if len(s.open) >= maxQuestions {
		return nil, capability.Errorf(capability.CodeOverloaded, "node.consent",
			"%d questions wait for this machine's owner, which is the limit", maxQuestions)
	}
	q := &question{Question: asked, ids: []string{asked.RequestID}, until: s.now().Add(questionTTL), waits: 1, done: make(chan struct{})}
	s.open = append(s.open, q)
	close(s.changed)
	s.changed = make(chan struct{})
	return q, nil
}

// tidy must be called with the lock held.
func (s *questions) tidy() {
	now := s.now()
	s.open = slices.DeleteFunc(s.open, func(q *question) bool { return q.waits == 0 && now.After(q.until) })
}

// taken hands out an answer; a later request asks again.
func (s *questions) taken(q *question) device.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	q.waits--
	s.open = slices.DeleteFunc(s.open, func(o *question) bool { return o == q })
	return *q.answer
}

// left is that a caller does not wait any more. At a terminal the question is over
// then; else it may still be answered, for the next time.
func (s *questions) left(q *question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.waits--; q.waits == 0 && s.interactive {
		s.open = slices.DeleteFunc(s.open, func(o *question) bool { return o == q })
	}
}

func notAsked(id string) error {
	return capability.Errorf(capability.CodeNotFound, "node.consent", "no question %.100q waits for an answer", id).With("",
		"junctor node consent list")
}

// answer gives the first answer.
func (s *questions) answer(id, decision, by string) error {
	if !slices.Contains([]string{device.Grant, device.GrantOnce, device.Deny}, decision) {
		return capability.Errorf(capability.CodeInvalidInput, "node.consent", "%.40q is not one of grant, grant_once and deny", decision)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tidy()
	for _, q := range s.open {
		if (q.RequestID == id || slices.Contains(q.ids, id)) && q.answer == nil {
			q.answer, q.until = &device.Answer{Decision: decision, By: by}, s.now().Add(questionTTL)
			close(q.done)
			return nil
		}
	}
	return notAsked(id)
}

// list is what waits for an answer, the oldest first.
func (s *questions) list() []device.Question {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tidy()
	out := []device.Question{}
	for _, q := range s.open {
		if q.answer == nil {
			out = append(out, q.Question)
		}
	}
	return out
}

// each shows every question once.
func (s *questions) each(ctx context.Context, show func(device.Question)) {
	shown := make(map[string]bool)
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		for _, q := range s.list() {
			if !shown[q.RequestID] {
				shown[q.RequestID] = true
				show(q)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Text is a question for people. What others chose stays on its line, so that it cannot forge another. Only
// the arguments of a call are shown whole, because the owner answers for them.
func Text(q device.Question) string {
	var b strings.Builder
	short := func(s string) string { return text.Visible(text.ShortenRunes(s, maxShown)) }
	what := "wants to be installed"
	if q.Call {
		what = "is called"
	}
	b.WriteString("The skill " + short(q.SkillName) + " " + what + " on " + short(q.NodeID) + ".\n")
	if q.SignedBy != "" {
		b.WriteString("  signed by " + short(q.SignedBy) + "\n")
	} else if q.Publisher != "" {
		b.WriteString("  says it is from " + short(q.Publisher) + " (not verified)\n")
	}
	for i := range q.Capabilities {
		c := &q.Capabilities[i]
		b.WriteString("  " + short(c.Alias) + ": " + short(c.FunctionName) + " (" + short(c.Effect) + ")\n")
	}
	if q.Call {
		b.WriteString("  called by " + short(q.Caller) + " with " + text.Visible(string(q.Arguments)) + "\n")
	}
	for _, c := range q.Code {
		b.WriteString("  brings code: " + short(c.ModuleID) + ", " + short(c.Language) + ", sha256 " + short(c.SHA256) + "\n")
	}
	for _, p := range q.Permissions {
		b.WriteString("  asks for " + short(p) + "\n")
	}
	return b.String()
}
