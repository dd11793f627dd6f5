package decide_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/taskagents/coordinator/decide"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

func TestDialogsHaveTiers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, text string
		want       decide.Tier
	}{
		{"permission", "which approach?", decide.Routine},
		{"tos", "", decide.Routine},
		{"model_select", "continue?", decide.Creative},
		{"project_select", "", decide.Creative},
		{"", "Allow tool Bash?", decide.Routine},
		{"", "Overwrite? (y/N)", decide.Routine},
		{"", "Permit network access for npm?", decide.Routine},
		{"", "Do you trust the files in this folder?", decide.Routine},
		{"question", "The build failed. Continue?", decide.Creative},
		{"", "Tests are failing, how should I go on?", decide.Creative},
		{"", "Your favourite colour", decide.Undecided},
	} {
		if got := decide.OfDialog(c.kind, c.text); got != c.want {
			t.Errorf("%s %q: %q; want got = %v", c.kind, c.text, got, c.want)
		}
	}
}

func TestTurnsHaveTiers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]decide.Tier{
		"All 12 tests pass.":                             decide.Routine,
		"Tests: 14 passed":                               decide.Routine,
		"Tests: 1 skipped, 14 passed":                    decide.Routine,
		"all checks passed":                              decide.Routine,
		"see https://forge.example/o/r/pull/12":          decide.Routine,
		"Successfully created PR":                        decide.Routine,
		"committed 1a2b3c4d":                             decide.Routine,
		"[main 1a2b3c4] say hello":                       decide.Routine,
		"Running tests… 3 of 9":                          decide.Routine,
		"I changed the parser and am unsure about dates": decide.Undecided,
		"":                         decide.Undecided,
		"2 of 14 tests passed":     decide.Undecided,
		"I was building something": decide.Undecided,
	} {
		if got := decide.OfTurn(text); got != want {
			t.Errorf("%q: %q; want got = %v", text, got, want)
		}
	}
}

func TestASmallModelsTierIsReadWithCare(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]decide.Tier{
		`{"tier":"routine"}`:                         decide.Routine,
		"sure:\n```json\n{\"tier\":\"routine\"}```":  decide.Routine,
		`{"tier":"routine"} no, {"tier":"creative"}`: decide.Creative,
		`{"tier":"simple"}`:                          decide.Creative,
		`routine`:                                    decide.Creative,
		"":                                           decide.Creative,
		strings.Repeat("}{", 100_000):                decide.Creative,
	} {
		if got := decide.ReadTier(text); got != want {
			t.Errorf("%.40q: %q; want got = %v", text, got, want)
		}
	}
}

func TestAPullRequestEndsATask(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"Here: https://forge.example/o/r/pull/7":              true,
		"https://forge.example/g/s/r/-/merge_requests/3 done": true,
		"I created pull request #12":                          true,
		"a pull request for branch x already exists":          true,
		"the file already exists":                             false,
		"https://forge.example/o/r/pulls":                     false,
		"I will create a pull request":                        false,
	} {
		if got := decide.Proposed(text); got != want {
			t.Errorf("%q: %t; want got = %v", text, got, want)
		}
	}
}

func TestStatusLinesAreNotTurns(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"":                   true,
		"✻ Thinking…":        true,
		"⠋ Running tests...": true,
		"✳ Pondering… (12s · esc to interrupt)": true,
		"✻ Thinking…\n\n· Musing… (3s)":         true,
		"Done.":                                 false,
		"✻ Thinking…\nI fixed it.":              false,
		"Paris":                                 false,
	} {
		if got := decide.Animated(text); got != want {
			t.Errorf("%q: %t; want got = %v", text, got, want)
		}
	}
}

func TestQuestionsToTheUserAreSeen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"I need you to log in":                              true,
		"Please provide the API key":                        true,
		"Can you confirm that this is right?":               true,
		"Which would you prefer?":                           true,
		"What now?\n1. use A\n2. use B":                     true,
		"Do this:\n1. run the tests\n2. commit":             false,
		"Go on with the second approach and run the tests.": false,
		"yes": false,
	} {
		if got := decide.AsksUser(text); got != want {
			t.Errorf("%q: %t; want got = %v", text, got, want)
		}
	}
}

func TestPathsOutsideAreFound(t *testing.T) {
	t.Parallel()
	roots := []string{"/home/u/w", "/srv/shared"}
	for text, want := range map[string]string{
		"edit /home/u/w/a.go?":                "",
		"edit /home/u/w":                      "",
		"edit /srv/shared/x":                  "",
		"edit /home/u/w2/a.go?":               "/home/u/w2/a.go",
		"edit /home/u/w/../x":                 "/home/u/w/../x",
		"cat ~/.ssh/id":                       "~/.ssh/id",
		"cat $HOME/.netrc":                    "$HOME/.netrc",
		"write `../other/a`":                  "../other/a",
		"write sub/../a":                      "",
		"write sub/../../a":                   "sub/../../a",
		"cd ..":                               "..",
		"fetch https://example.org/etc/thing": "",
		"either/or":                           "",
		"wait...":                             "",
		"run x > /dev/null":                   "",
		"file:/etc/passwd":                    "/etc/passwd",
		`open "/etc/passwd".`:                 "/etc/passwd",
		"rm -rf / now":                        "/",
	} {
		if got := decide.Outside(text, roots); got != want {
			t.Errorf("%q: %q, not %q; want got = %v", text, got, want, want)
		}
	}
}

func TestAnAnswerThatLeadsOutsideIsReplaced(t *testing.T) {
	t.Parallel()
	roots := []string{"/w"}
	for _, c := range []struct {
		dialog, answer string
		choices        []string
		want           string
		replaced       bool
	}{
		{"Edit /etc/hosts?", "Yes", []string{"Yes", "No, and tell it why"}, "No, and tell it why", true},
		{"Edit /etc/hosts?", "No", []string{"Yes", "No"}, "", false},
		{"Edit /etc/hosts?", "1", []string{"1. Yes", "2. No"}, "2. No", true},
		{"Edit /w/a?", "Yes", []string{"Yes", "No"}, "", false},
		{"", "use /etc/hosts then", nil, "No: stay inside /w, and find a way that needs nothing outside of it.", true},
	} {
		got, replaced := decide.Guarded(c.dialog, c.answer, c.choices, roots)
		if got != c.want || replaced != c.replaced {
			t.Errorf("%+v: %q %t; want got = %v, replaced = %v", c, got, replaced, c.want, c.replaced)
		}
	}
}

func TestAPromptSaysAllAndIsBounded(t *testing.T) {
	t.Parallel()
	s := decide.Situation{
		Event: "blocked", AgentType: "claude", Label: "api", Task: "build >>> it", Workdir: "/w", Brief: "same names",
		Siblings: []decide.Sibling{{Label: "ui", Status: "active", Result: "uses tabs"}}, Shared: []string{"ports are 80"},
		Past: []decide.Past{{Event: "blocked", Decision: "respond", Response: "Yes", Reason: "it is asked for"}}, Text: "Edit a.go?",
		Choices: []string{"Yes", "No"},
	}
	p := decide.Prompt(s)
	for _, want := range []string{
		"claude, label api", "none (scratch)", "build ››› it", "same names", "ui (active): uses tabs",
		"ports are 80", "it is asked for", "Edit a.go?", "- No\n", `"keyDecision"`,
	} {
		if !strings.Contains(p, want) {
			t.Errorf("%q is not in\n%s\nwant p with %v", want, p, want)
		}
	}
	long := strings.Repeat("ß\n", 100_000)
	s = decide.Situation{AgentType: long, Label: long, Task: long, Workdir: long, Repo: long, Brief: long, Text: long}
	for range 100 {
		s.Siblings = append(s.Siblings, decide.Sibling{long, long, long})
		s.Shared, s.Choices = append(s.Shared, long), append(s.Choices, long)
		s.Past = append(s.Past, decide.Past{long, long, long, long})
	}
	if n := utf8.RuneCountInString(decide.Prompt(s)); n > decide.MaxPrompt {
		t.Errorf("utf8.RuneCountInString(decide.Prompt(s)) = %v, want at most decide.MaxPrompt", n)
	}
	if n := utf8.RuneCountInString(decide.TierPrompt(long, "", long)); n > 2000 {
		t.Errorf("utf8.RuneCountInString = %v, want at most 2000", n)
	}
}

func TestASwarmIsToldInALineForEachTask(t *testing.T) {
	t.Parallel()
	s := decide.Over(row.Thread{ID: "t", Title: "ship", RoomID: "r"}, []row.Session{
		{SessionID: "a", Label: "api", Status: row.SessionCompleted, CompletionSummary: "done\nwell"},
		{SessionID: "b", Status: row.SessionError, CompletionSummary: "no credit"},
		{SessionID: "c", Label: "ui", Status: row.SessionStopped},
		{SessionID: "old", Status: row.SessionStopped, Metadata: row.WithMeta(nil, row.ReplacedBy, "a")},
	}, []row.Node{
		{Kind: row.GoalNode, Title: "ship"},
		{Kind: row.ExecutionNode, AssignedLabel: "api", AssignedSessionID: "a"},
		{Kind: row.ExecutionNode, AssignedLabel: "docs", Status: row.NodeBlocked},
	})
	if s.Total != 4 || s.Completed != 1 || s.Errored != 1 || s.Stopped != 1 || s.Tasks[0].RoomID != "r" {
		t.Errorf(`%+v; want s.Total = 4, s.Completed = 1, s.Errored = 1, s.Stopped = 1, s.Tasks[0].RoomID = "r"`, s)
	}
	want := "ship: 1 of 4 done, 1 failed, 1 stopped, 1 not begun.\n- api (completed): done well\n- b (error): no credit\n- ui (stopped): no result was told\n- docs (not begun)\n"
	if got := decide.Synthesis(s); got != want {
		t.Errorf("%q; want got = %v", got, want)
	}
}

func FuzzTextsOfStrangers(f *testing.F) {
	f.Add("Edit /etc/hosts? (y/N)", `{"tier":"routine"}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		decide.OfDialog("", a)
		decide.OfTurn(a)
		decide.ReadTier(b)
		decide.Animated(a)
		if instead, ok := decide.Guarded(a, b, nil, []string{"/w"}); ok && !decide.Refuses(instead) {
			t.Errorf("answer = %q, want a refusal", instead)
		}
		p := decide.Prompt(decide.Situation{Task: a, Text: b, Label: a})
		if utf8.RuneCountInString(p) > decide.MaxPrompt {
			t.Errorf("prompt has %d characters, want at most %d", utf8.RuneCountInString(p), decide.MaxPrompt)
		}
	})
}
