package clis

import (
	"strings"
	"testing"
	"time"
)

// structured allows one request and refuses one, checks that only the preset's rules
// refuse a file elsewhere, and resumes the conversation.
func (r *run) structured(t *testing.T) {
	if r.noStructured != "" {
		t.Skip(r.noStructured)
	}
	dir, elsewhere := r.workspace(t, "told"), r.workspace(t, "elsewhere")
	began := time.Now()
	s := r.spawnIn(t, "structured", "standard", dir, "Ask me. "+playTold, "")
	r.answered(t, s.ID, "allow", "yes")
	s = r.completed(t, s.ID, 1)
	t.Logf("FIGURES %s: a task with a question is done %s after the start, structured", r.name, time.Since(began).Round(time.Millisecond))
	holds(t, dir, "told.txt")
	s = r.until(t, s.ID, "its decision is noted", func(s session) bool { return len(s.Decisions) > 0 })
	if len(s.Decisions) != 1 || !strings.HasPrefix(s.Decisions[0], "the greeting is in hello.txt") {
		t.Errorf("decisions: %q, want the one of the task\nthe session: %+v\n%s", s.Decisions, s, r.picture(t, s.ID))
	}
	r.until(t, s.ID, "its usage is known", func(s session) bool { return s.Usage.InputTokens >= 1 && s.Usage.OutputTokens >= 1 })
	r.post(t, s.ID, "send", map[string]any{"input": playRefused})
	r.answered(t, s.ID, "deny", "reject", "no")
	r.until(t, s.ID, "it goes on or waits", func(s session) bool { return s.Status == "ready" })
	holds(t, dir, "told.txt")
	r.post(t, s.ID, "send", map[string]any{"input": playElse})
	r.until(t, s.ID, "it goes on without it", func(s session) bool { return s.Status == "ready" || s.Status == "blocked" })
	holds(t, elsewhere)
	r.stop(t, s.ID)
	token := r.shown(t, s.ID).ResumeToken
	if token == "" {
		t.Fatalf(`it has no token to be resumed by; got token = %q; want token other than ""`, token)
	}
	if r.noLoading != "" {
		t.Log("not taken up again: " + r.noLoading)
		return
	}
	earlier := r.shown(t, s.ID).Usage
	s = r.spawnIn(t, "structured", "autonomous", dir, "Do you remember? "+playBackWith, token)
	s = r.completed(t, s.ID, 1)
	if s.Usage.InputTokens >= earlier.InputTokens || s.Usage.InputTokens == 0 {
		t.Errorf("usage after one answer in the resumed conversation = %+v, want less than the %+v before", s.Usage, earlier)
	}
	if asked := r.fake.Asked(playBackWith); len(asked) != 1 || !strings.Contains(asked[0].Text, "Ask me. "+playTold) ||
		!strings.Contains(asked[0].Text, decision) {
		t.Errorf(`the model was told: %+v; want len(asked) = 1, asked[0].Text with "Ask me. " + playTold, asked[0].Text with %v`,
			asked, decision)
	}
	r.stop(t, s.ID)
}

// answered waits for a question, and chooses the shortest option that begins with a word:
// the longer ones are for the rest of the session.
func (r *run) answered(t *testing.T, id string, words ...string) {
	t.Helper()
	s := r.until(t, id, "it asks", func(s session) bool {
		if s.Status == "error" || strings.HasPrefix(s.Phase, "failed:") {
			t.Fatalf("it failed: %+v\n%s\nwant s.Status other than \"error\", s.Phase not beginning with \"failed:\"",
				s, r.picture(t, id))
		}
		return s.Status == "blocked" && len(s.Blocker.Options) > 0
	})
	best := ""
	for _, option := range s.Blocker.Options {
		for _, word := range words {
			if strings.HasPrefix(strings.ToLower(option), word) && (best == "" || len(option) < len(best)) {
				best = option
			}
		}
	}
	if best == "" {
		t.Fatalf(`no option begins with %q: %+v; want best other than ""`, words, *s.Blocker)
	}
	r.post(t, id, "choose", map[string]any{"label": best})
}
