package choice_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

func everything() (list []choice.Candidate) {
	for _, n := range []programs.Name{programs.Claude, programs.Codex, programs.Gemini, programs.Aider, programs.Pi, programs.OpenCode} {
		list = append(list, choice.Candidate{Name: n, Installed: true, AuthReady: true})
	}
	return list
}

func now() time.Time { return time.Date(2026, 11, 22, 14, 30, 0, 0, time.UTC) }

func scores(s choice.State) map[programs.Name]int {
	out := make(map[programs.Name]int)
	for _, f := range s.Frameworks {
		out[f.ID] = f.Score
	}
	return out
}

// TestScores compares with sums made by hand from the table of weights. "Fix the flaky test
// in the repo", with a repository, is: implementation .7+.15+.4 cut to 1, research .1,
// planning .1, ops .05, verification .8, coordination .05, repo .7+.25, fast .75+.1. So
// Codex fits 18 + 1.28 + 1.05 + .51 + 11.2 + .63 + 9.5 + 8.075 = 50.245.
func TestScores(t *testing.T) {
	t.Parallel()
	const fix = "Fix the flaky test in the repo"
	for name, tt := range map[string]struct {
		in   choice.Input
		want map[programs.Name]int // of some
		best programs.Name
	}{
		"no word of any list": { // claude: 18.92, codex: 19.745
			choice.Input{Task: choice.Task{Text: "hello"}, Candidates: everything()},
			map[programs.Name]int{programs.Claude: 77, programs.Codex: 78},
			programs.Codex,
		},
		"a fix in a repository": { // 45.645, 50.245, 35.285, 45.29
			choice.Input{Task: choice.Task{Text: fix, Repo: true}, Candidates: everything()},
			map[programs.Name]int{programs.Claude: 104, programs.Codex: 108, programs.Gemini: 93, programs.Aider: 103},
			programs.Codex,
		},
		// Implementation .2, research .7+.4 cut to 1, planning .1, ops .05, verification .15,
		// coordination .05, repo .1, fast .15. claude: 3.42 + 15.2 + 1.4 + .48 + 1.785 + .7 + .9 +
		// 1.125 = 25.01; gemini: 2.52 + 16 + 1.33 + .42 + 1.26 + .49 + .65 + 1.05 = 23.72.
		"research": {
			choice.Input{Task: choice.Task{Text: "Investigate the market"}, Candidates: everything()},
			map[programs.Name]int{programs.Claude: 83, programs.Gemini: 82},
			programs.Claude,
		},
		"a subscription that works": {
			choice.Input{
				Task: choice.Task{Text: "hello"}, Subscription: "anthropic-subscription",
				Candidates: []choice.Candidate{{Name: programs.Claude, Installed: true, AuthReady: true, SubscriptionReady: true}},
			},
			map[programs.Name]int{programs.Claude: 77 + 8 + 18, programs.Codex: -100 - 25 + 20},
			programs.Claude,
		},
		"a subscription that does not": {
			choice.Input{Task: choice.Task{Text: "hello"}, Subscription: "openai-codex", Candidates: everything()},
			map[programs.Name]int{programs.Claude: 77, programs.Codex: 78 + 6},
			programs.Codex,
		},
		"a default": {
			choice.Input{Task: choice.Task{Text: "hello"}, Default: programs.Pi, Candidates: everything()},
			map[programs.Name]int{programs.Codex: 78, programs.Pi: 58 + 11 + 40},
			programs.Pi, // .6*.55*18 + .1*.5*16 + .1*.55*14 + .05*.5*12 + .15*.5*14 + .05*.35*14 + .1*.5*10 + .25*.5*10 = 10.855
		},
		"what it did before": { // .75*14 - .25*12 + .5*(4+1) = 10, for fast is .25
			choice.Input{
				Task: choice.Task{Text: "hello"}, Candidates: everything(),
				Book: choice.Snapshot{Metrics: map[programs.Name]choice.Metrics{programs.Claude: {
					Spawned: 4, Completed: 3, StallCount: 1,
					AvgCompletionMs: 60_000,
				}}},
			},
			map[programs.Name]int{programs.Claude: 87, programs.Codex: 78},
			programs.Claude,
		},
		"slow, at most 8 less": { // 14 - 8
			choice.Input{
				Task: choice.Task{Text: "hello"}, Candidates: everything(),
				Book: choice.Snapshot{Metrics: map[programs.Name]choice.Metrics{
					programs.Claude: {Spawned: 1, Completed: 1, AvgCompletionMs: 1e9},
					programs.Codex:  {StallCount: 5},
				}},
			},
			map[programs.Name]int{programs.Claude: 77 + 6, programs.Codex: 78},
			programs.Claude,
		},
		"never completed": { // -2*12, and no speed
			choice.Input{
				Task: choice.Task{Text: "hello"}, Candidates: everything(),
				Book: choice.Snapshot{Metrics: map[programs.Name]choice.Metrics{programs.Codex: {Spawned: 1, StallCount: 2}}},
			},
			map[programs.Name]int{programs.Claude: 77, programs.Codex: 78 - 24},
			programs.Claude,
		},
		"out of use": {
			choice.Input{
				Task: choice.Task{Text: fix, Repo: true}, Candidates: everything(), Default: programs.Codex, Fixed: true, Now: now(),
				Book: choice.Snapshot{CoolDowns: map[programs.Name]choice.CoolDown{programs.Codex: {
					Until:  now().Add(time.Second),
					Reason: "credit balance",
				}}},
			},
			map[programs.Name]int{programs.Codex: 108 - 80},
			programs.Claude,
		},
		"in use again": {
			choice.Input{
				Task: choice.Task{Text: fix, Repo: true}, Candidates: everything(), Now: now(),
				Book: choice.Snapshot{CoolDowns: map[programs.Name]choice.CoolDown{programs.Codex: {Until: now()}}},
			},
			map[programs.Name]int{programs.Codex: 108},
			programs.Codex,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := choice.Choose(tt.in)
			if diff := cmp.Diff(tt.want, scores(got), cmpopts.IgnoreMapEntries(func(n programs.Name, _ int) bool {
				_,
					asked := tt.want[n]
				return !asked
			})); diff != "" {
				t.Errorf(`diff = %q, want ""`, diff)
			}
			if got.Preferred.ID != tt.best || got.Preferred.Reason == "" {
				t.Errorf(`%+v; want got.Preferred.ID = %v, got.Preferred.Reason other than ""`, got.Preferred, tt.best)
			}
			for _, f := range got.Frameworks {
				if f.Recommended != (f.ID == tt.best) || f.Label == "" || f.Reason == "" {
					t.Errorf(`%+v; want f.Recommended = (f.ID == tt.best), f.Label other than "", f.Reason other than ""`, f)
				}
			}
		})
	}
}

func TestWhoIsPreferred(t *testing.T) {
	t.Parallel()
	only := func(c ...choice.Candidate) choice.Input {
		return choice.Input{Task: choice.Task{Text: "hello"}, Candidates: c}
	}
	loggedOut := choice.Candidate{Name: programs.Codex, Installed: true}
	pi := choice.Candidate{Name: programs.Pi, Installed: true, AuthReady: true}
	fixed := func(in choice.Input, name programs.Name) choice.Input { in.Fixed, in.Default = true, name; return in }
	for name, tt := range map[string]struct {
		in     choice.Input
		want   programs.Name
		reason string
	}{
		"fixed, though another fits better": {fixed(choice.Input{Task: choice.Task{Text: "hello"}, Candidates: everything()},
			programs.Gemini), programs.Gemini, "default"},
		"fixed, and not usable":                    {fixed(only(loggedOut, pi), programs.Codex), programs.Pi, "fits best"},
		"fixed without a default":                  {fixed(only(pi), ""), programs.Pi, "fits best"},
		"a usable one before one that is not":      {only(loggedOut, pi), programs.Pi, "fits best"},
		"an installed one where nothing is usable": {only(loggedOut), programs.Codex, "not logged in"},
		"nothing installed":                        {only(), programs.Codex, "no agent's program is installed"},
		"a program that takes no tasks": {
			only(choice.Candidate{Name: programs.Shell, Installed: true, AuthReady: true}, pi),
			programs.Pi, "fits best",
		},
		"equals": {choice.Input{
			Task: choice.Task{Text: "hello"}, Candidates: everything(),
			Book: choice.Snapshot{Metrics: map[programs.Name]choice.Metrics{
				programs.Claude: {Spawned: 14, Completed: 1, AvgCompletionMs: 120_000}, // one more, as many as Codex
			}},
		}, programs.Claude, "fits best"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := choice.Choose(tt.in).Preferred; got.ID != tt.want || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("%+v; want got.ID = %v, got.Reason with %v", got, tt.want, tt.reason)
			}
		})
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		task choice.Task
		want choice.Signals
	}{
		"whole words only": {
			choice.Task{Text: "encoded prefixes, testing, deployment, planner"},
			choice.Signals{.6, .1, .1, .05, .15, .05, .1, .25},
		},
		"in any case":         {choice.Task{Text: "DEPLOY"}, choice.Signals{.2, .1, .1, 1, .15, .05, .1, .15}},
		"ops before planning": {choice.Task{Text: "plan the ci/cd"}, choice.Signals{.2, .1, .75, 1, .15, .05, .1, .15}},
		"planning":            {choice.Task{Text: "a roadmap to implement"}, choice.Signals{.7, .1, 1, .05, .15, .05, .1, .15}},
		"both is coding":      {choice.Task{Text: "research and implement"}, choice.Signals{1, .7, .1, .05, .15, .05, .1, .25}},
		"words in two parts":  {choice.Task{Text: "look\n into the pull request"}, choice.Signals{.2, 1, .1, .05, .15, .05, .7, .15}},
		"what it has": {
			choice.Task{Text: "x", Workdir: true, Criteria: true, Subtasks: 2},
			choice.Signals{.75, .1, .1, .05, .3, .3, .1, .25},
		},
		"mixed, as it is told": {choice.Task{Text: "x", Kind: "mixed"}, choice.Signals{.45, .35, .35, .3, .15, .05, .1, .15}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, tt.task.Signals(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("diff (-want +got):\n%s", diff)
			}
		})
	}
}

// memory is a store that can be made to fail.
type memory struct {
	data []byte
	err  error
}

func (m *memory) Load(context.Context) ([]byte, error) { return m.data, m.err }

func (m *memory) Save(_ context.Context, data []byte) error {
	if m.err == nil {
		m.data = data
	}
	return m.err
}

func TestABookRemembers(t *testing.T) {
	t.Parallel()
	var store memory
	book, err := choice.OpenBook(t.Context(), &store)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []choice.Event{
		{Spawned: true},
		{Spawned: true},
		{Completed: true, Took: time.Second, Via: choice.FastPath, TokensIn: 5, TokensOut: 2, CostUSD: .5, Retries: 3},
		{Completed: true, Took: 3 * time.Second, Via: choice.Classifier},
		{Completed: true, Took: -time.Second, Via: choice.OutputReconcile, TokensIn: -1, CostUSD: math.Inf(-1)},
		{Stalled: true, ProviderError: true},
		{Failed: true},
	} {
		if err := book.Record(t.Context(), programs.Codex, e); err != nil {
			t.Fatal(err)
		}
	}
	rest := choice.CoolDown{Until: now(), Reason: "why"}
	for _, c := range []choice.CoolDown{rest, {Until: now().Add(-time.Hour), Reason: "shorter"}} {
		if err := book.Rest(t.Context(), programs.Claude, c); err != nil {
			t.Fatal(err)
		}
	}
	again, err := choice.OpenBook(t.Context(), &store)
	if err != nil {
		t.Fatal(err)
	}
	want := choice.Snapshot{
		Metrics: map[programs.Name]choice.Metrics{programs.Codex: {
			Spawned: 2, Completed: 3, ViaFastPath: 1, ViaClassifier: 1, ViaOutputReconcile: 1, StallCount: 1,
			AvgCompletionMs: 4000. / 3, Failed: 1, ProviderErrors: 1, Retries: 3, TokensIn: 5, TokensOut: 2, CostUSD: .5,
		}},
		CoolDowns: map[programs.Name]choice.CoolDown{programs.Claude: rest},
	}
	if diff := cmp.Diff(want, again.Snapshot(), cmpopts.EquateApprox(0, 1e-6)); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if err := again.Record(t.Context(), programs.Claude, choice.Event{Completed: true}); err != nil || len(again.Snapshot().CoolDowns) != 0 {
		t.Errorf("a success does not end the rest: %v; want no error, len(again.Snapshot().CoolDowns) = 0", err)
	}
}

func TestABookThatCannotBeKept(t *testing.T) {
	t.Parallel()
	if _, err := choice.OpenBook(t.Context(), &memory{err: errors.New("no disk")}); capability.CodeOf(err) != capability.CodeFailed {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeFailed", err)
	}
	if _, err := choice.OpenBook(t.Context(), &memory{data: []byte(`{"metrics":`)}); capability.AsError(err).Reason != "choice_damaged" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "choice_damaged"`, err)
	}
	var store memory
	book, err := choice.OpenBook(t.Context(), &store)
	if err != nil {
		t.Fatal(err)
	}
	store.err = errors.New("no disk")
	if err := book.Record(t.Context(), programs.Pi, choice.Event{Spawned: true}); capability.CodeOf(err) != capability.CodeFailed ||
		book.Snapshot().Metrics[programs.Pi].Spawned != 1 {
		t.Errorf("%v %+v; want capability.CodeOf(err) = capability.CodeFailed, book.Snapshot().Metrics[programs.Pi].Spawned = 1",
			err, book.Snapshot())
	}
}

func TestExhaustion(t *testing.T) {
	t.Parallel()
	half := now().Add(choice.DefaultCooldownTTL)
	at := func(y int, m time.Month, d, hour, minute int) time.Time {
		return time.Date(y, m, d, hour, minute, 0, 0, time.UTC)
	}
	for name, tt := range map[string]struct {
		kind, text string
		until      time.Time // zero: it is not
	}{
		"insufficient credits":   {"", "Error: Insufficient credits.", half},
		"insufficient_quota":     {"", `{"code":"insufficient_quota"}`, half},
		"out of credits":         {"", "You are out of credits", half},
		"credit balance":         {"", "Credit balance is too low", half},
		"usage limit":            {"", "Usage limit reached", half},
		"quota exceeded":         {"", "Quota exceeded for metric", half},
		"exceeded your quota":    {"", "You exceeded your current quota, please check your plan", half},
		"payment required":       {"", "402 Payment Required", half},
		"status 402":             {"", "unexpected status 402", half},
		"402 of something":       {"", "402 files changed in line 402", time.Time{}},
		"by its kind":            {"billing_error", "", half},
		"a rate limit by kind":   {"rate_limit", "try again in 90s", now().Add(90 * time.Second)},
		"another kind":           {"authentication_failed", "Not logged in", time.Time{}},
		"an ordinary failure":    {"", "the tests failed: retry in 5 minutes", time.Time{}},
		"a limit of something":   {"", "limit the rate", time.Time{}},
		"a second of the epoch":  {"", "Claude AI usage limit reached|1795362600", time.Unix(1795362600, 0)},
		"this afternoon":         {"", "You've hit your session limit · resets 3pm", at(2026, 11, 22, 15, 0)},
		"tomorrow":               {"", "5-hour limit reached ∙ resets 2:30pm", at(2026, 11, 23, 14, 30)},
		"in a zone":              {"", "You've hit your usage limit · resets 11am (America/New_York)", at(2026, 11, 22, 16, 0)},
		"in a zone that is none": {"", "You've hit your usage limit · resets 11am (Nowhere/Here)", half},
		"midnight":               {"", "weekly limit reached, resets 12am", at(2026, 11, 23, 0, 0)},
		"days and hours": {
			"", "You've hit your usage limit. Upgrade, or try again in 3 days 4 hours 12 minutes.",
			now().Add(76*time.Hour + 12*time.Minute),
		},
		"written closely": {
			"", "Quota exceeded. Your quota will reset after 12h3m4s.",
			now().Add(12*time.Hour + 3*time.Minute + 4*time.Second),
		},
		"a date":                    {"", "You've hit your usage limit. Try again at Nov 25th, 2026 3:14 PM.", at(2026, 11, 25, 15, 14)},
		"a date that is too far":    {"", "usage limit reached, resets Jan 2, 9am", half},
		"an instant":                {"", "quota exceeded, resets at 2026-11-22T18:00:00Z", at(2026, 11, 22, 18, 0)},
		"a time that has been":      {"", "quota exceeded, resets at 2020-11-22T18:00:00Z", half},
		"more than is believed":     {"", "usage limit reached, try again in 400 days", half},
		"no time at all":            {"", "usage limit reached, try again 5 times", half},
		"an hour that there is not": {"", "usage limit reached, resets 25:00", half},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := choice.Exhausted(tt.kind, tt.text, now())
			if ok == tt.until.IsZero() || !got.Until.Equal(tt.until) || ok && got.Reason == "" {
				t.Errorf("%v %v %q, want %v", ok, got.Until, got.Reason, tt.until)
			}
		})
	}
}

func FuzzExhausted(f *testing.F) {
	f.Add("rate_limit", "resets Feb 31 11:59 pm (Europe/Berlin)")
	f.Add("", "usage limit reached, try again in 1d 2h 3.5m")
	f.Fuzz(func(t *testing.T, kind, text string) {
		got, ok := choice.Exhausted(kind, text, now())
		if ok && (got.Reason == "" || !got.Until.After(now()) || got.Until.After(now().Add(8*24*time.Hour))) {
			t.Fatalf("%+v", got)
		}
		choice.Task{Text: text}.Signals()
	})
}
