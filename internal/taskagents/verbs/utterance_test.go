package verbs

import (
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

func TestAListIsSeveralTasks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"1. fix the parser\n2. write its tests":    {"fix the parser", "write its tests"},
		"Please:\n- lint\n- test\n  all of them\n": {"lint", "test\n  all of them"},
		"1) one thing":                                          nil,
		"fix the parser and write its tests":                    nil,
		"- only one bullet\n\nand a paragraph":                  nil,
		"Do these:\n* a\n* b\n* c":                              {"a", "b", "c"},
		"Use version 1. of it.\nThen version 2. of the others.": nil,
	} {
		if got := listedTasks(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := splitParts(" a | codex: b ||c | "); !slices.Equal(got, []string{"a", "codex: b", "c"}) {
		t.Errorf(`%q; want got = []string{"a", "codex: b", "c"}`, got)
	}
}

func TestAPartMayNameItsProgram(t *testing.T) {
	t.Parallel()
	for part, want := range map[string]struct {
		name programs.Name
		task string
	}{
		"codex: fix it":                       {programs.Codex, "fix it"},
		"Claude Code: fix: it":                {programs.Claude, "fix: it"},
		"note: fix it":                        {"", "note: fix it"},
		"claude:":                             {"", "claude:"},
		"claude                       : fix ": {"", "claude                       : fix "},
		"fix it":                              {"", "fix it"},
	} {
		if name, task := cutAgent(part); name != want.name || task != want.task {
			t.Errorf("%q: %q %q; want name = %v, task = %v", part, name, task, want.name, want.task)
		}
	}
}

func TestWhatIsMeantForAShell(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"npm test":                         false,
		"git commit -m done":               false,
		"ls | wc -l":                       false,
		"for f in 1 2 3; do echo $f; done": false,
		"FOO=1 make all":                   false,
		"":                                 false,
		"fix the login page":               true,
		"Why does make fail?":              true,
		"refactor everything":              false,
		"Refactor everything.":             true,
		"move config into one place":       false,
		"move all config loading into one single place":               true,
		"Run `npm test` and tell me why it fails, I need to know it.": true,
	} {
		if got := isProse(text); got != want {
			t.Errorf("%q: %v; want got = %v", text, got, want)
		}
	}
}

func TestTheRepositoryIsFoundInTheText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"fix https://github.com/acme/widget please":            "https://github.com/acme/widget",
		"fix github.com/acme/widget.":                          "https://github.com/acme/widget",
		"see https://github.com/acme/widget/tree/main/src":     "https://github.com/acme/widget",
		"https://github.com/acme/widget/issues/12 is annoying": "https://github.com/acme/widget",
		"clone git@gitlab.com:group/sub/widget.git":            "git@gitlab.com:group/sub/widget.git",
		"in bitbucket.org/acme/widget":                         "https://bitbucket.org/acme/widget",
		"https://gitlab.com/group/widget/-/merge_requests/3":   "https://gitlab.com/group/widget",
		"https://evil.example/github.com":                      "",
		"notgithub.com/acme/widget":                            "",
		"this and/or that":                                     "",
		"https://github.com/acme":                              "",
	} {
		if got := mentionedRepo(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]bool{
		"do it in the same repo": true, "continue": true, "Continue with the parser": true, "pick up where you left": true,
		"use the last repository": true, "make a new project": false, "handle the continue button": false,
	} {
		if got := meansLastRepo(text); got != want {
			t.Errorf("%q: %v; want got = %v", text, got, want)
		}
	}
}

func TestErrandsAreNoWork(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"remind me to call my mom":                        true,
		"Book me a flight to Lisbon":                      true,
		"put milk on the shopping list":                   true,
		"what is on my calendar":                          true,
		"build a calendar app that reminds me of my rent": false,
		"fix the bug in the shopping list":                false,
		"write a haiku":                                   false,
	} {
		if got := isErrand(text); got != want {
			t.Errorf("%q: %v; want got = %v", text, got, want)
		}
	}
}

func TestWhatIsToBeDone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"please pause the parser task": "pause", "put that on hold": "pause", "stop it and archive it": "stop",
		"archive it, then stop": "archive",
		"don't stop, continue":  "continue", "Do not pause it": "", "resume": "resume", "reopen the thread": "reopen", "how is it going?": "",
		"CANCEL": "stop", "the stopwatch task": "",
	} {
		if got, ok := taskOperation(text); got != want || ok != (want != "") {
			t.Errorf(`%q: %q; want got = %v, ok = (want != "")`, text, got, want)
		}
	}
	for text, want := range map[string]string{
		"create an issue: the close button is broken": "create", "close #4": "close", "reopen issue 4": "reopen", "list open issues": "list",
		"what are the open issues?": "list", "show issue 4": "get", "#12": "get", "comment on #4: done": "comment",
		"add the bug label to #4": "add_labels",
		"rename #4":               "update", "": "list", "open a new issue about the parser": "create", "show me the issues": "list",
	} {
		if got := issueOperation(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]int{"close #41.": 41, "issue 7": 7, "ticket number 8": 8, "version 7": 0, "#0": 0, "#99999999999": 0} {
		if got, ok := issueNumber(text); got != want && ok || ok != (want > 0) {
			t.Errorf("%q: %d %v; want not (got != want && ok), ok = (want > 0)", text, got, ok)
		}
	}
}

func TestDaysAreThoseOfTheUser(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Lisbon")
	if err != nil {
		t.Fatal(err)
	}
	// The day before had 25 hours.
	now := time.Date(2026, 10, 26, 0, 30, 0, 0, zone)
	day := func(d, h int) time.Time { return time.Date(2026, 10, d, h, 0, 0, 0, zone) }
	for w, want := range map[timeWindow][2]time.Time{
		windowToday:     {day(26, 0), {}},
		windowYesterday: {day(25, 0), day(26, 0).Add(-time.Millisecond)},
		windowLast7:     {now.AddDate(0, 0, -7), {}},
		windowLast30:    {now.AddDate(0, 0, -30), {}},
		windowActive:    {},
		"":              {},
	} {
		if from, to, ok := w.span(now); !ok || !from.Equal(want[0]) || !to.Equal(want[1]) {
			t.Errorf("%s: %v to %v; want ok = true, from.Equal(want[0]), to.Equal(want[1])", w, from, to)
		}
	}
	if from, to, _ := windowYesterday.span(now); to.Sub(from) != 25*time.Hour-time.Millisecond {
		t.Errorf("%v; want to.Sub(from) = 25*time.Hour - time.Millisecond", to.Sub(from))
	}
	if _, _, ok := timeWindow("tomorrow").span(now); ok {
		t.Error("tomorrow")
	}
	for text, want := range map[string]timeWindow{
		"what did you do yesterday?": windowYesterday, "anything today": windowToday, "in the past week": windowLast7,
		"this month's tasks": windowLast30, "what is running": windowActive, "all of them": "", "": "",
	} {
		if got, _ := askedWindow(text); got != want {
			t.Errorf("%q: %q; want got = %v", text, got, want)
		}
	}
	if _, count := askedWindow("how many tasks failed"); !count {
		t.Error("how many")
	}
}

// FuzzUtterance requires every result to be part of the text.
func FuzzUtterance(f *testing.F) {
	for _, s := range []string{"1. a\n2. b", "fix github.com/a/b", "stop #4 yesterday", "codex: x | y", "- a\n- b\n  c\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			t.Skip()
		}
		for _, task := range append(listedTasks(text), splitParts(text)...) {
			for line := range strings.Lines(task) {
				if !strings.Contains(text, strings.TrimSpace(line)) {
					t.Errorf("%q is not in %q; want text with strings.TrimSpace(line)", line, text)
				}
			}
			if name, rest := cutAgent(task); name != "" && rest == "" {
				t.Error(`a program without a task; want not (name != "" && rest == "")`)
			}
		}
		if repo := mentionedRepo(text); repo != "" && !strings.Contains(text, strings.TrimPrefix(repo, "https://")) {
			t.Errorf(`%q is not in %q; want not (repo != "" && !strings.Contains(text, strings.TrimPrefix(repo, "https://")))`,
				repo, text)
		}
		isProse(text)
		isErrand(text)
		meansLastRepo(text)
		taskOperation(text)
		issueOperation(text)
		askedWindow(text)
		if n, ok := issueNumber(text); ok && n <= 0 {
			t.Errorf("issue %d; want not (ok && n <= 0)", n)
		}
	})
}
