package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	tty "golang.org/x/term"

	"github.com/junctor-run/junctor/internal/testkit/fakecli"
	"github.com/junctor-run/junctor/internal/testkit/programfile"
)

// askingClaude is a program that is started and draws as Claude Code does. If its task has the word ASK,
// it asks whether it may write answer.txt, and writes the number of the answer into it.
func askingClaude() {
	args := os.Args[1:]
	switch strings.Join(args, " ") {
	case "--version":
		fmt.Println("2.1.197 (Claude Code)")
		return
	case "auth status":
		fmt.Println(`{"loggedIn":true,"authMethod":"test"}`)
		return
	}
	task := ""
	for i, a := range args {
		if a == "--" && i+1 < len(args) {
			task = args[i+1]
		}
	}
	if _, err := tty.MakeRaw(0); err != nil {
		os.Exit(2)
	}
	fakecli.Run(context.Background(), os.Stdin, crlf{os.Stdout}, func(ctx context.Context, s *fakecli.Screen) {
		for text, ok := task, true; ok; text, ok = s.Prompt(ctx) {
			if text == "" {
				continue
			}
			if task != "" {
				s.Say("❯ " + text)
				task = ""
			}
			s.Work(ctx, 300*time.Millisecond)
			if strings.Contains(text, "ASK") {
				n := s.Ask(ctx, fakecli.Permission("answer.txt"))
				_ = os.WriteFile("answer.txt", []byte(strconv.Itoa(n+1)+"\n"), 0o600)
			}
			s.Done("DECISION: wrote answer.txt because the task asked for it.", "", "Done: the answer is written.")
		}
	})
}

// crlf is a terminal in raw mode, in which a line feed does not return to the first column.
type crlf struct{ io.Writer }

func (w crlf) Write(b []byte) (int, error) {
	text := strings.ReplaceAll(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n", "\r\n")
	_, err := io.WriteString(w.Writer, text)
	return len(b), err
}

// withAskingClaude returns the environment of a server that finds askingClaude as Claude Code, and starts it in a terminal.
func withAskingClaude(t *testing.T) []string {
	t.Helper()
	bin, user := t.TempDir(), t.TempDir()
	programfile.Write(t, filepath.Join(bin, "claude"), "#!/bin/sh\nexec askingclaude \"$@\"\n", 0o700)
	if err := os.WriteFile(filepath.Join(user, ".claude.json"), []byte(`{"hasCompletedOnboarding":true}`), 0o600); err != nil {
		t.Fatalf("write the user's settings: got %v, want no error", err)
	}
	return []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + user, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
		"JUNCTOR_AGENTS_MODE=terminal", // it only has a screen
	}
}
