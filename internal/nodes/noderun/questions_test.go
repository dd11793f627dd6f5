package noderun

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/internal/nodes/skill"
)

func about(skill string, wait time.Duration) device.Question {
	return device.Question{RequestID: "cnf_" + skill, SkillName: skill, SHA256: "x", ExpiresAt: time.Now().Add(wait)}
}

func TestWithNobodyThereTheAnswerIsForTheNextTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newQuestions(false)
		q := about("a", skill.AskTimeout)
		if _, err := s.Ask(t.Context(), q); !errors.Is(err, skill.ErrNobody) {
			t.Fatalf("%v; want err is skill.ErrNobody", err)
		}
		again := q
		again.RequestID = "cnf_again"
		if _, err := s.Ask(t.Context(), again); !errors.Is(err, skill.ErrNobody) {
			t.Fatalf("%v; want err is skill.ErrNobody", err)
		}
		if list := s.list(); len(list) != 1 || list[0].RequestID != "cnf_a" {
			t.Errorf(`%+v; want len(list) = 1, list[0].RequestID = "cnf_a"`, list)
		}
		if err := s.answer("cnf_again", device.Grant, "owner"); err != nil {
			t.Fatal(err)
		}
		if err := s.answer("cnf_a", device.Deny, "owner"); capability.CodeOf(err) != capability.CodeNotFound {
			t.Errorf("a second answer counts: %v; want capability.CodeOf(err) = capability.CodeNotFound", err)
		}
		if a, err := s.Ask(t.Context(), q); err != nil || a != (device.Answer{Decision: device.Grant, By: "owner"}) {
			t.Errorf("s.Ask(t.Context(), q): err = %v, want nil; a = %+v, want %+v", err, a, (device.Answer{Decision: device.Grant, By: "owner"}))
		}
		// It counted once.
		if _, err := s.Ask(t.Context(), q); !errors.Is(err, skill.ErrNobody) {
			t.Errorf("%v; want err is skill.ErrNobody", err)
		}
		time.Sleep(questionTTL + time.Second)
		if list := s.list(); len(list) != 0 {
			t.Errorf("%+v; want len(list) = 0", list)
		}
	})
}

func TestWhoSaysHowLongWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newQuestions(false)
		done := make(chan string, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		go func() {
			a, err := s.Ask(ctx, about("a", 30*time.Second))
			done <- fmt.Sprint(a.Decision, err)
		}()
		synctest.Wait()
		if err := s.answer("cnf_a", "perhaps", "owner"); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
		}
		if err := s.answer("cnf_a", device.GrantOnce, "owner"); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got != "grant_once<nil>" {
			t.Errorf(`got = %q, want "grant_once<nil>"`, got)
		}
		if _, err := s.Ask(ctx, about("b", 30*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v; want err is context.DeadlineExceeded", err)
		}
	})
}

func TestAtATerminalEveryQuestionIsShownOnceAndEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newQuestions(true)
		ctx, cancel := context.WithCancel(t.Context())
		shown := make(chan string, 10)
		go s.each(ctx, func(q device.Question) { shown <- q.SkillName })
		asking, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		for _, skill := range []string{"a", "b"} {
			go func() { _, _ = s.Ask(asking, about(skill, time.Minute)) }()
			synctest.Wait()
		}
		if one, two := <-shown, <-shown; one != "a" || two != "b" || len(shown) != 0 {
			t.Errorf(`one = %q, want "a"; two = %q, want "b"; len(shown) = %v, want 0`, one, two, len(shown))
		}
		time.Sleep(2 * time.Minute)
		if list := s.list(); len(list) != 0 {
			t.Errorf("%+v; want len(list) = 0", list)
		}
		cancel()
		synctest.Wait()
	})
}

func TestQuestionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newQuestions(false)
	for i := range maxQuestions {
		if _, err := s.Ask(t.Context(), about(fmt.Sprint(i), skill.AskTimeout)); !errors.Is(err, skill.ErrNobody) {
			t.Fatalf("%v; want err is skill.ErrNobody", err)
		}
	}
	if _, err := s.Ask(t.Context(), about("more", skill.AskTimeout)); capability.CodeOf(err) != capability.CodeOverloaded {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeOverloaded", err)
	}
}
