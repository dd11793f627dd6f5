package coordinator_test

import (
	"context"
	"errors"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/coordinator"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// skilled answers what asks for a skill.
type skilled struct {
	err   error
	asked []string
}

// Turn implements coordinator.Skills.
func (s *skilled) Turn(_ context.Context, session string, _ int, text directive.Text) (bool, error) {
	call, ok := directive.ReadSkill(text)
	if ok {
		s.asked = append(s.asked, session+" "+call.Slug)
	}
	return ok, s.err
}

// TestATurnThatAsksForASkillIsNoEnd: neither a model nor a rule decides about it.
func TestATurnThatAsksForASkillIsNoEnd(t *testing.T) {
	t.Parallel()
	s := &skilled{}
	play(t, func(r *rig) { r.cfg.Skills = s }, func(r *rig) {
		r.start("a", func(x *row.Session) { x.Repo = "acme/widget" })
		r.turn("a", "Successfully created PR: https://github.com/acme/widget/pull/7\nUSE_SKILL weather Lisbon")
		r.status("a", row.SessionActive)
		r.count(0, "coordination_decision")
		r.turn("a", "It is warm there, and done.")
		r.status("a", row.SessionCompleted)
		if len(s.asked) != 1 || s.asked[0] != "a weather" {
			t.Errorf(`%q; want len(s.asked) = 1, s.asked[0] = "a weather"`, s.asked)
		}
	})
}

// TestWhatASkillSaysDoesNotArrive: the user is asked, and the task is not taken for done.
func TestWhatASkillSaysDoesNotArrive(t *testing.T) {
	t.Parallel()
	s := &skilled{err: errors.New("it did not take the text")}
	play(t, func(r *rig) { r.cfg.Skills = s }, func(r *rig) {
		r.start("a", nil)
		r.turn("a", "USE_SKILL weather Lisbon")
		r.status("a", row.SessionBlocked)
		r.count(1, "escalation")
	})
}

// TestNobodyActsForAnAgentThatIsOnlyWatched: level notify does not use skills either.
func TestNobodyActsForAnAgentThatIsOnlyWatched(t *testing.T) {
	t.Parallel()
	s := &skilled{}
	play(t, func(r *rig) { r.cfg.Skills, r.cfg.Level = s, coordinator.Notify }, func(r *rig) {
		r.start("a", nil)
		r.turn("a", "USE_SKILL weather Lisbon")
		if len(s.asked) != 0 {
			t.Errorf("%q; want len(s.asked) = 0", s.asked)
		}
	})
}
