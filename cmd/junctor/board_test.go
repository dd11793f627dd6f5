package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// colour is an SGR sequence that sets a colour.
var colour = regexp.MustCompile("\x1b\\[(?:[0-9]+;)*(?:3[0-9]|4[0-9]|9[0-7]|10[0-7])[0-9;]*m")

// given creates a task for the program that asks, and waits until it does.
func (h *patient) given(t *testing.T, dir, task string) string {
	t.Helper()
	cmd := h.command(t, "tasks", "create", "--agent", "claude", "--preset", "standard", "--wait", task)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	id := taskID.FindString(string(out))
	if err != nil || id == "" {
		t.Fatalf("tasks create %q: got %v, want a task\n%s", task, err, out)
	}
	return id
}

func TestTheBoardAnswersReviewsMergesAndDiscardsByKeys(t *testing.T) {
	dir, git := repository(t)
	h := &patient{home: filepath.Join(t.TempDir(), "home"), env: withAskingClaude(t)}
	h.serve(t)
	h.given(t, dir, "ASK \x1b]0;hacked\x07\x1b[31m before \u202e you write")
	s := h.sit(t, 80, 24, dir, nil, "tasks")
	shown := s.until("junctor tasks", "1 wait for you", "> needs you", "Do you want to create answer.txt?", "2 Yes, allow all edits", "q quit")
	if lines := strings.Split(shown, "\n"); len(lines) > 24 {
		t.Errorf("the board has %d lines, want 24 at most", len(lines))
	}
	if !strings.Contains(shown, `ASK \x1b]0;hacked\a\x1b[31m before \u202e you write`) || strings.Contains(s.raw(), "\x1b]0;hacked") {
		t.Errorf("the board shows\n%s\nwant the escape codes of the task as text", shown)
	}
	// A digit answers nothing before the question is open.
	s.keys("1")
	s.keys("\r")
	s.until("kind", "terminal", "1-3 answer")
	s.keys("3")
	s.until("answered: ASK")
	// The feed reports the rest: nothing else is typed.
	s.until("0 wait for you   0 at work   1 over", "> done")
	s.keys("d")
	shown = s.until("+3", "1 of 1 parts are done", "m merge")
	if !strings.Contains(shown, "answer.txt") {
		t.Errorf("the review shows\n%s\nwant the new file", shown)
	}
	before := git("rev-parse", "main")
	s.keys("m")
	s.until("Merge what is shown?")
	s.keys("n")
	s.until("m merge")
	s.keys("m")
	s.until("Merge what is shown?")
	s.keys("f")
	s.until("main is at", "> done")
	if got := git("show", "main:answer.txt"); got != "3\n" || git("rev-parse", "main") == before {
		t.Errorf("main has answer.txt %q, want the work with the third answer", got)
	}
	s.keys("x")
	s.until("Remove all work of ASK")
	s.keys("\x1b")
	s.until("q quit")
	s.keys("x")
	s.until("Remove all work of ASK")
	s.keys("y")
	s.until("removed: junctor/")
	if got := git("branch", "--list", "junctor/*"); got != "" {
		t.Errorf("after a discard git has the branches %q, want none", got)
	}
	s.keys("q")
	if got := s.ends(); got != 0 {
		t.Errorf("the status of the board = %d, want 0", got)
	}
	if raw := s.raw(); strings.Contains(raw, "\u202e") {
		t.Errorf("the board wrote %q, want what the task hides as text", raw)
	}
	if raw := s.raw(); !colour.MatchString(raw) || !strings.Contains(raw, "\x1b[?1049l") {
		t.Errorf("the board wrote %q, want colours and the end of the alternate screen", raw)
	}
}

func TestTheBoardFollowsOtherTasksResizesAndKeepsNoColour(t *testing.T) {
	dir, _ := repository(t)
	h := served(t)
	s := h.sit(t, 80, 24, dir, []string{"NO_COLOR=1"}, "tasks")
	s.until("you have no task")
	h.give(t, dir, true, "--label", "first", "echo 漢字 and a long line "+strings.Repeat("of words ", 30)+"; echo end")
	s.until("> done", "漢字", "1 over")
	second := h.give(t, dir, false, "--label", "second", "cat")
	s.until("1 at work   1 over")
	for _, size := range [][2]int{{40, 10}, {120, 40}, {20, 5}, {1, 1}, {80, 24}} {
		s.resize(size[0], size[1])
		s.when("a board in the new size", func(shown string) bool {
			lines := strings.Split(shown, "\n")
			return len(lines) <= size[1] && (size[0] < 20 || strings.Contains(lines[0], "junctor tasks"[:min(13, size[0])]))
		})
	}
	s.until("1 at work   1 over", "q quit")
	s.keys("t") // the task at work is the first row, not the selected one
	s.until("no agent works on")
	s.keys("k")
	s.until("> working")
	s.keys("t")
	s.when("the terminal of the session", func(shown string) bool { return !strings.Contains(shown, "q quit") })
	s.keys("typed there\r")
	s.until("typed there")
	s.keys("\x1d")
	s.until("detached from "+second, "q quit")
	s.keys("c")
	s.until("To the agent: _")
	s.keys("ab\x7fc")
	s.until("To the agent: ac_")
	s.keys("\x1b")
	s.until("q quit")
	h.run(t, "tasks", "stop", second)
	s.until("0 at work")
	if found := colour.FindString(strings.ReplaceAll(s.raw(), "typed there", "")); found != "" {
		t.Errorf("with NO_COLOR the board wrote the colour %q, want none", found)
	}
	from := len(s.raw())
	s.p.Ask()
	if got := s.ends(); got == 0 {
		t.Errorf("the status after SIGTERM = %d, want a failure", got)
	}
	if got := s.raw()[from:]; !strings.Contains(got, "\x1b[?1049l") {
		t.Errorf("after SIGTERM the board wrote %q, want the end of the alternate screen", got)
	}
	// In a pipe it is the list.
	if got, want := h.run(t, "tasks"), h.run(t, "tasks", "list"); got != want || !strings.Contains(got, second) {
		t.Errorf("tasks in a pipe prints %q, want the list %q", got, want)
	}
}

func TestTheBoardWithoutAServerSaysSo(t *testing.T) {
	h := &patient{home: filepath.Join(t.TempDir(), "home")}
	s := h.sit(t, 80, 24, t.TempDir(), nil, "tasks")
	if got := s.ends(); got == 0 || strings.Contains(s.raw(), "\x1b[?1049h") {
		t.Errorf("the status = %d with %q, want a failure and no board", got, s.raw())
	}
	if _, err := os.Stat(h.home); err == nil {
		t.Error("the home was made, want none")
	}
}
