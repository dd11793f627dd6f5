package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// repository returns a new git checkout with one commit, and a function that runs git in it.
func repository(t *testing.T) (dir string, git func(args ...string) string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatalf("find the folder: got %v, want no error", err)
	}
	git = func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	git("init", "-q", "-b", "main")
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one\n"), 0o600); err != nil {
		t.Fatalf("write a file: got %v, want no error", err)
	}
	git("add", ".")
	git("commit", "-q", "-m", "first")
	return dir, git
}

var taskID = regexp.MustCompile(`tsk_[0-9a-f]+`)

// give creates a task for a shell, and waits for its end if wait is set.
func (h *patient) give(t *testing.T, dir string, wait bool, args ...string) string {
	t.Helper()
	cmd := h.command(t, append([]string{"tasks", "create", "--agent", "shell"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	id := taskID.FindString(string(out))
	if err != nil || id == "" {
		t.Fatalf("tasks create %v: got %v, want a task\n%s", args, err, out)
	}
	if wait {
		h.run(t, "tasks", "watch", id)
	}
	return id
}

// served returns a home whose server runs.
func served(t *testing.T) *patient {
	t.Helper()
	h := &patient{home: filepath.Join(t.TempDir(), "home")}
	h.serve(t)
	return h
}

func TestMergeAtATerminalShowsWorkThatWasNotShownAndAsks(t *testing.T) {
	dir, git := repository(t)
	h := served(t)
	id := h.give(t, dir, true, `printf 'a\033]0;title\007b\n' > new.txt; echo written`)
	before := git("rev-parse", "main")

	s := h.sit(t, 100, 40, dir, nil, "tasks", "merge", id)
	shown := s.until("new.txt", "Take this work? [y/N]")
	if !strings.Contains(shown, `+a\x1b]0;title\ab`) {
		t.Errorf("the terminal shows\n%s\nwant the escape code of the work as text", shown)
	}
	s.keys("n\r")
	if got := s.ends(); got != 0 {
		t.Errorf("the status after a no = %d, want 0", got)
	}
	if got := git("rev-parse", "main"); got != before {
		t.Errorf("main is at %s after a no, want %s", got, before)
	}
	s = h.sit(t, 100, 40, dir, nil, "tasks", "merge", id)
	s.until("Take this work? [y/N]")
	// The work moves while the user reads it.
	tree := strings.Fields(git("worktree", "list", "--porcelain"))
	for i, word := range tree {
		if word == "worktree" && tree[i+1] != dir && !strings.HasSuffix(git("-C", tree[i+1], "branch", "--show-current"), "/result\n") {
			if err := os.WriteFile(filepath.Join(tree[i+1], "more.txt"), []byte("more\n"), 0o600); err != nil {
				t.Fatalf("write into the worktree: got %v, want no error", err)
			}
		}
	}
	s.keys("y\r")
	if got := s.ends(); got == 0 || git("rev-parse", "main") != before {
		t.Errorf("the status after the work moved = %d with main at %s, want a failure and %s", got, git("rev-parse", "main"), before)
	}
	s.until("the commit that was shown is")
	s = h.sit(t, 100, 40, dir, nil, "tasks", "merge", id)
	s.until("more.txt", "Take this work? [y/N]")
	s.keys("y\r")
	if got := s.ends(); got != 0 || git("show", "main:more.txt") != "more\n" {
		t.Errorf("the status after a yes = %d with more.txt %q, want 0 and all of the work\n%s", got, git("show", "main:more.txt"), s.text())
	}
}

func TestWhatWasShownIsBounded(t *testing.T) {
	t.Parallel()
	a := &app{home: t.TempDir()}
	if got := a.lastShown("thr_1"); got != "" {
		t.Errorf("lastShown(new home) = %q, want none", got)
	}
	for i := range maxShown + 5 {
		a.keepShown("thr_"+strings.Repeat("x", i), "c0ffee")
	}
	if got := len(a.readShown()); got != maxShown {
		t.Errorf("%d threads are stored, want %d", got, maxShown)
	}
	if first, last := a.lastShown("thr_"), a.lastShown("thr_"+strings.Repeat("x", maxShown+4)); first != "" || last != "c0ffee" {
		t.Errorf("lastShown = %q and %q, want only the last", first, last)
	}
	path, err := a.shownFile()
	if err != nil {
		t.Fatalf("name the file: got %v, want no error", err)
	}
	if err := os.WriteFile(path, []byte(`{"thr_x": 7`), 0o600); err != nil {
		t.Fatalf("damage the file: got %v, want no error", err)
	}
	if got := a.lastShown("thr_x"); got != "" {
		t.Errorf("lastShown(damaged file) = %q, want none", got)
	}
	if a.keepShown("thr_y", "beef"); a.lastShown("thr_y") != "beef" {
		t.Errorf("what is stored after that = %+v, want thr_y", a.readShown())
	}
}
