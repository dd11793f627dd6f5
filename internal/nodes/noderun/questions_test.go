package noderun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

// TestAnAnswerAboutACallIsForThatCall holds that calls with other arguments or of another caller are questions of
// their own, and that one answer is for one call.
func TestAnAnswerAboutACallIsForThatCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newQuestions(false)
		call := func(id, caller, args string) device.Question {
			q := about(id, skill.AskTimeout)
			q.SkillName, q.Call, q.Caller, q.Arguments = "sms", true, caller, json.RawMessage(args)
			return q
		}
		for _, q := range []device.Question{
			call("1", "agent:a", `{"to":"ann"}`), call("2", "agent:a", `{"to":"bob"}`), call("3", "agent:b", `{"to":"ann"}`),
			call("4", "agent:a", `{"to":"ann"}`),
		} {
			if _, err := s.Ask(t.Context(), q); !errors.Is(err, skill.ErrNobody) {
				t.Fatalf("Ask(%s) = %v, want %v", q.RequestID, err, skill.ErrNobody)
			}
		}
		list := s.list()
		if len(list) != 3 {
			t.Fatalf("got %d questions, want 3: the fourth is the first again", len(list))
		}
		for _, part := range []string{"agent:a", `"to":"ann"`} {
			if text := Text(list[0]); !strings.Contains(text, part) {
				t.Errorf("the question is %q, want %s in it", text, part)
			}
		}
		if err := s.answer("cnf_4", device.Grant, "owner"); err != nil {
			t.Fatalf("answering: %v, want no error", err)
		}
		if _, err := s.Ask(t.Context(), call("5", "agent:a", `{"to":"bob"}`)); !errors.Is(err, skill.ErrNobody) {
			t.Errorf("Ask(a call with other arguments) = %v, want %v", err, skill.ErrNobody)
		}
		if a, err := s.Ask(t.Context(), call("6", "agent:a", `{"to":"ann"}`)); err != nil || a.Decision != device.Grant {
			t.Errorf("Ask(the granted call) = %+v, %v, want the owner's grant", a, err)
		}
		// Two that wait at once are two questions.
		s = newQuestions(true)
		answers := make(chan device.Answer, 2)
		for _, id := range []string{"7", "8"} {
			go func() {
				a, _ := s.Ask(t.Context(), call(id, "agent:a", `{"to":"ann"}`))
				answers <- a
			}()
		}
		synctest.Wait()
		if n := len(s.list()); n != 2 {
			t.Fatalf("got %d questions of two calls, want 2", n)
		}
		for _, id := range []string{"cnf_7", "cnf_8"} {
			if err := s.answer(id, device.Grant, "owner"); err != nil {
				t.Errorf("answering %s: %v, want no error", id, err)
			}
			<-answers
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

// TestAQuestionHasNoLinesOfTheSkill holds that foreign texts, such as those of a skill from before they were checked,
// cannot forge or reorder what the owner reads, and that the arguments of a call are shown whole.
func TestAQuestionHasNoLinesOfTheSkill(t *testing.T) {
	t.Parallel()
	const forged = "x\n  signed by junctor\u202e" // a line and a reversal of its own
	long := strings.Repeat("y", 5000)
	q := device.Question{
		SkillName: forged, NodeID: forged, Publisher: forged, Permissions: []string{forged, long},
		Capabilities: []skill.QuestionCapability{{Alias: forged, FunctionName: forged, Effect: forged}},
		Code:         []skill.QuestionCode{{ModuleID: forged, Language: forged, SHA256: forged}},
	}
	call := q
	call.Call, call.Caller, call.Arguments = true, forged, json.RawMessage(`{"a":`+"\n"+`"`+long+`"}`)
	for lines, q := range map[int]device.Question{6: q, 7: call} {
		got := Text(q)
		if n := strings.Count(got, "\n"); n != lines {
			t.Errorf("the question has %d lines, want %d:\n%.2000s", n, lines, got)
		}
		if strings.ContainsRune(got, '\u202e') || strings.Contains(got, "\n  signed by") {
			t.Errorf("the question is forged:\n%.2000s\nwant no line and no control of the skill", got)
		}
		if want := map[int]int{6: 1000, 7: 6000}[lines]; len(got) > 2000+want || q.Call && !strings.Contains(got, long) {
			t.Errorf("the question has %d bytes, want at most %d, with the whole arguments of a call", len(got), 2000+want)
		}
	}
	q.SignedBy = forged
	if n := strings.Count(Text(q), "\n"); n != 6 {
		t.Errorf("the question of a signed skill has %d lines, want 6", n)
	}
}
