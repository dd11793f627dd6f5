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

func TestDaysAreThoseOfTheUser(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Lisbon")
	if err != nil {
		t.Fatalf("load the zone: got %v, want no error", err)
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
}

// FuzzLists requires every result to be part of the text.
func FuzzLists(f *testing.F) {
	for _, s := range []string{"1. a\n2. b", "codex: x | y", "- a\n- b\n  c\n"} {
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
	})
}
