package agents

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
)

// answer is a line of Claude Code's record, and total one of Codex's.
func answer(at time.Time, id string, in, out int) string {
	return fmt.Sprintf(`{"timestamp":%q,"message":{"id":%q,"usage":{"input_tokens":%d,"output_tokens":%d}}}`+"\n", at.Format(time.RFC3339Nano), id, in, out)
}

func total(at time.Time, in, out int) string {
	return fmt.Sprintf(`{"timestamp":%q,"payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":%d,"output_tokens":%d}}}}`+"\n",
		at.Format(time.RFC3339Nano), in, out)
}

func TestUsageIsReadAsRecordsGrow(t *testing.T) {
	t.Parallel()
	home, kept := t.TempDir(), t.TempDir()
	since := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	before, after := since.Add(-time.Minute), since.Add(time.Minute)
	a := &Agents{cfg: Config{Home: home}}
	named := filepath.Join(home, ".claude/projects/p/one.jsonl")
	g := &agent{framework: programs.Claude, kept: kept, record: named}
	m := &meter{since: since, tapes: make(map[string]*tape)}
	grow := func(path, text string) {
		t.Helper()
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			var f *os.File
			if f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err == nil {
				_, err = f.WriteString(text)
				_ = f.Close()
			}
		}
		if err != nil {
			t.Fatalf("write %s: got %v, want no error", path, err)
		}
	}
	rollout := filepath.Join(kept, "2026/11/rollout.jsonl")
	for _, step := range []struct {
		name, path, text string
		want             programs.Usage
	}{
		{"no file", named, "", programs.Usage{}},
		{"an earlier session's", named, answer(before, "old", 1000, 100), programs.Usage{}},
		{"an answer", named, answer(after, "a", 10, 1), programs.Usage{In: 10, Out: 1}},
		{"the same answer grows", named, answer(after, "a", 10, 4), programs.Usage{In: 10, Out: 4}},
		{"half a line", named, strings.TrimSuffix(answer(after, "b", 1, 1), "}\n"), programs.Usage{In: 10, Out: 4}},
		{"its end", named, "}\n", programs.Usage{In: 11, Out: 5}},
		{"garbage", named, "{token\n\n" + strings.Repeat("x", 2*recordPiece) + "\n", programs.Usage{In: 11, Out: 5}},
		{"after the garbage", named, answer(after, "c", 1, 1), programs.Usage{In: 12, Out: 6}},
		{"a total from before", rollout, total(before, 500, 50), programs.Usage{In: 12, Out: 6}},
		{"a total", rollout, total(after, 600, 60), programs.Usage{In: 112, Out: 16}},
		{"another kind of file", filepath.Join(kept, "x.txt"), answer(after, "d", 1, 1), programs.Usage{In: 112, Out: 16}},
	} {
		if step.text != "" {
			grow(step.path, step.text)
		}
		if got := a.measure(m, g); got != step.want {
			t.Errorf("%s: usage = %+v, want %+v", step.name, got, step.want)
		}
	}
}

func TestOnlyRecordsOfTheProgramAreRead(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	since := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	line := []byte(answer(since.Add(time.Second), "a", 1, 1))
	outside := filepath.Join(home, "outside.jsonl")
	folder := filepath.Join(home, ".claude/projects")
	link, up := filepath.Join(folder, "link.jsonl"), folder+"/../../outside.jsonl"
	err := os.MkdirAll(folder, 0o700)
	if err == nil {
		err = os.WriteFile(outside, line, 0o600)
	}
	if err == nil {
		err = os.Symlink(outside, link)
	}
	if err != nil {
		t.Fatalf("files: got %v, want no error", err)
	}
	for _, path := range []string{outside, link, up, folder, "relative.jsonl", "\x00"} {
		a := &Agents{cfg: Config{Home: home}}
		m := &meter{since: since, tapes: make(map[string]*tape)}
		if got := a.measure(m, &agent{framework: programs.Claude, kept: t.TempDir(), record: path}); got != (programs.Usage{}) {
			t.Errorf("%q: usage = %+v, want none", path, got)
		}
	}
}
