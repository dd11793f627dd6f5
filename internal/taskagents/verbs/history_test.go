package verbs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
)

func now() time.Time { return time.Date(2026, 3, 3, 12, 0, 0, 0, time.UTC) }

func open(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path, now)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func add(t testing.TB, f *File, e Entry) {
	t.Helper()
	if e.Type == "" {
		e.Type = Completed
	}
	if err := f.Append(e); err != nil {
		t.Fatal(err)
	}
}

func labels(entries []Entry) (out []string) {
	for _, e := range entries {
		out = append(out, e.Label)
	}
	return out
}

func all(f *File) []Entry { return f.Recent(1<<20, 1<<20*time.Hour, nil) }

func path(t testing.TB) string { return filepath.Join(t.TempDir(), "swarm-history.jsonl") }

func TestEntriesComeBack(t *testing.T) {
	t.Parallel()
	name := path(t)
	f := open(t, name)
	if f.LastRepo() != "" || len(f.Lessons()) != 0 {
		t.Error(`something before anything; want f.LastRepo() = "", len(f.Lessons()) = 0`)
	}
	e := Entry{
		Type: Failed, SessionID: "pty-1", Label: "a", AgentType: "claude", Repo: "https://example.com/r", Workdir: "/w",
		OriginalTask:      "do \"it\"\n",
		CompletionSummary: "it \u2028 broke", Reasoning: "because",
	}
	add(t, f, e)
	e.Timestamp = now().UnixMilli()
	add(t, f, Entry{Label: "b"})
	again := open(t, name)
	if diff := cmp.Diff(e, all(again)[0]); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if again.LastRepo() != e.Repo {
		t.Errorf("again.LastRepo() = %q, want %q", again.LastRepo(), e.Repo)
	}
	if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
		t.Errorf("os.Stat(name): err = %v, want nil; info = %+v, want info.Mode() = 0o600", err, info)
	}
	if err := f.Append(Entry{Type: "x"}); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
}

func TestLessonsAreTheLastThatTeach(t *testing.T) {
	t.Parallel()
	f := open(t, path(t))
	add(t, f, Entry{Label: "too old", CompletionSummary: "x", Timestamp: now().Add(-LessonTTL - time.Millisecond).UnixMilli()})
	for i := range 10 {
		add(t, f, Entry{Label: fmt.Sprint(i), Type: []Type{Completed, Failed, KeyDecision, Stopped}[i%4], Reasoning: "because"})
		add(t, f, Entry{Label: "says nothing"})
		add(t, f, Entry{Label: "has only begun", Type: Registered, Reasoning: "x"})
	}
	if diff := cmp.Diff([]string{"2", "3", "4", "5", "6", "7", "8", "9"}, labels(f.Lessons())); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
}

func TestItRotates(t *testing.T) {
	t.Parallel()
	name := path(t)
	f := open(t, name)
	for i := range MaxEntries + 1 {
		if i == MaxEntries && len(all(f)) != MaxEntries {
			t.Errorf("%d entries, want %d", len(all(f)), MaxEntries)
		}
		add(t, f, Entry{Label: fmt.Sprint(i)})
	}
	for _, f := range []*File{f, open(t, name)} {
		got := labels(all(f))
		if len(got) != Kept || got[0] != fmt.Sprint(MaxEntries+1-Kept) || got[Kept-1] != fmt.Sprint(MaxEntries) {
			t.Errorf("len(got) = %v, want Kept; got = %q, want got[0] = %q and got[Kept-1] = %q",
				len(got), got, fmt.Sprint(MaxEntries+1-Kept), fmt.Sprint(MaxEntries))
		}
	}
	data, err := os.ReadFile(name)
	if err != nil || bytes.Count(data, []byte("\n")) != Kept {
		t.Errorf("err = %v, want nil; bytes.Count(data, []byte(\"\\n\")) = %v, want Kept", err, bytes.Count(data, []byte("\n")))
	}
}

func TestItNeverGrowsBeyondItsBytes(t *testing.T) {
	t.Parallel()
	name := path(t)
	f := open(t, name)
	long := strings.Repeat("\"é", MaxText) // longer than is kept, and longer still as JSON
	for i := range 120 {
		add(t, f, Entry{Label: fmt.Sprint(i), OriginalTask: long, CompletionSummary: long, Reasoning: long, Workdir: long, Repo: long})
		info, err := os.Stat(name)
		if err != nil || info.Size() > MaxBytes {
			t.Fatalf("err = %v, want nil; info = %+v, want info.Size() at most MaxBytes", err, info)
		}
	}
	got := all(open(t, name))
	if n := len(got); n < 10 || got[n-1].Label != "119" || len(got[0].Repo) > MaxText || strings.ContainsRune(got[0].Repo, '\uFFFD') {
		t.Errorf("%d entries, want at least 10, 119 last, repositories of valid text within %d bytes", n, MaxText)
	}
}

func TestAFileCutAnywhereIsMended(t *testing.T) {
	t.Parallel()
	name := path(t)
	f := open(t, name)
	for i := range 5 {
		add(t, f, Entry{Label: fmt.Sprint(i)})
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := os.WriteFile(name, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		f := open(t, name)
		lines := bytes.Count(whole[:n], []byte("\n"))
		if len(all(f)) != lines {
			t.Fatalf("cut at %d: %d entries of %d; want len(all(f)) = %v", n, len(all(f)), lines, lines)
		}
		add(t, f, Entry{Label: "next"})
		if got := labels(all(open(t, name))); len(got) != lines+1 || got[lines] != "next" {
			t.Fatalf(`cut at %d: %v; want len(got) = lines + 1, got[lines] = "next"`, n, got)
		}
	}
}

func TestLinesThatAreNoneAreLeftOut(t *testing.T) {
	t.Parallel()
	name := path(t)
	lines := []string{
		`{"timestamp":1,"type":"task_completed","label":"a"}`, `nonsense`, ``, `{"timestamp":0,"type":"task_completed"}`,
		`{"timestamp":2,"type":"x"}`, `[]`, "\xff", `{"timestamp":3,"type":"key_decision","label":"b","later":true}`,
	}
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, labels(all(open(t, name)))); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
}

func TestAFileOfSomebodyElseIsCutAtItsBeginning(t *testing.T) {
	t.Parallel()
	name := path(t)
	var b strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&b, `{"timestamp":1,"type":"task_completed","label":"%d"}`+"\n", i)
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	got := labels(all(open(t, name)))
	if len(got) != Kept || got[Kept-1] != "59999" {
		t.Errorf(`len(got) = %v, want Kept; got = %q, want got[Kept-1] = "59999"; got[len(got)-1] = %q`, len(got), got, got[len(got)-1])
	}
	if info, err := os.Stat(name); err != nil || info.Size() > MaxBytes {
		t.Errorf("os.Stat(name): err = %v, want nil; info = %+v, want info.Size() at most MaxBytes", err, info)
	}
}

func TestWhatCannotBeWrittenIsNotRemembered(t *testing.T) {
	t.Parallel()
	name := path(t)
	f := open(t, name)
	add(t, f, Entry{Label: "a"})
	if err := os.Rename(filepath.Dir(name), filepath.Dir(name)+"-away"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(name) + "-away") })
	if err := f.Append(Entry{Type: Completed, Label: "b"}); capability.AsError(err).Reason != "history_unusable" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "history_unusable"`, err)
	}
	if err := os.Rename(filepath.Dir(name)+"-away", filepath.Dir(name)); err != nil {
		t.Fatal(err)
	}
	add(t, f, Entry{Label: "c"})
	for _, f := range []*File{f, open(t, name)} {
		if diff := cmp.Diff([]string{"a", "c"}, labels(all(f))); diff != "" {
			t.Errorf("diff (-want +got):\n%s", diff)
		}
	}
}

func TestManyWriteAtOnce(t *testing.T) {
	t.Parallel()
	name := path(t)
	f := open(t, name)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 40 {
				add(t, f, Entry{Label: fmt.Sprint(i, "-", j), Repo: "r"})
				f.LastRepo()
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff(all(f), all(open(t, name))); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
}

// FuzzParse: every user of the home can read the file, and written by agents' texts.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"timestamp":1,"type":"task_completed","label":"a"}` + "\nx\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, e := range parse(data) {
			if !e.Type.Valid() || e.Timestamp <= 0 {
				t.Errorf("%+v; want e.Type.Valid(), e.Timestamp more than 0", e)
			}
		}
	})
}
