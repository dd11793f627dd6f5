//go:build unix

package runner_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/extensions/runner"
)

// found is what a run left, as "name: kind: text".
func found(t *testing.T, b *runner.ArtifactsBefore) (out, omitted []string) {
	t.Helper()
	omitted, err := b.Each(func(string) bool { return true }, func(f runner.ArtifactFile) error {
		data, err := io.ReadAll(f)
		out = append(out, fmt.Sprintf("%s: %s: %.20s", f.Name, f.MIME, data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, omitted
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyWhatTheRunMadeOrChanged(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	write(t, work, "artifacts/old.txt", "old")
	write(t, work, "artifacts/changed.txt", "before")
	b := runner.LookAtArtifacts(work)
	write(t, work, "artifacts/changed.txt", "after it")
	write(t, work, "artifacts/deep/new.json", "{}")
	write(t, work, "artifacts/plain", "<html>x")
	write(t, work, "elsewhere.txt", "not one")
	got, omitted := found(t, b)
	want := []string{
		"changed.txt: text/plain; charset=utf-8: after it", "deep/new.json: application/json: {}",
		"plain: text/html; charset=utf-8: <html>x",
	}
	if d := cmp.Diff(want, got); d != "" || omitted != nil {
		t.Errorf("diff (-want +got):\n%s; omitted = %q, want nil", d, omitted)
	}
}

func TestTheFolderIsAStrangers(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	write(t, outside, "secret.txt", "secret")
	for name, plant := range map[string]func(work string) error{
		"a link to a file": func(w string) error {
			return os.Symlink(filepath.Join(outside, "secret.txt"), filepath.Join(w, "artifacts/x"))
		},
		"a link to a folder": func(w string) error { return os.Symlink(outside, filepath.Join(w, "artifacts/x")) },
		"a second name": func(w string) error {
			return os.Link(filepath.Join(outside, "secret.txt"), filepath.Join(w, "artifacts/x"))
		},
		"a pipe":                func(w string) error { return syscall.Mkfifo(filepath.Join(w, "artifacts/x"), 0o600) },
		"a name with an escape": func(w string) error { return os.WriteFile(filepath.Join(w, "artifacts/\x1b[2Jx"), nil, 0o600) },
		"the folder itself is a link": func(w string) error {
			return os.Symlink(outside, filepath.Join(w, "artifacts"))
		},
		"the folder is a file": func(w string) error { return os.WriteFile(filepath.Join(w, "artifacts"), nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			work := t.TempDir()
			b := runner.LookAtArtifacts(work)
			if !strings.HasPrefix(name, "the folder") {
				if err := os.Mkdir(filepath.Join(work, "artifacts"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := plant(work); err != nil {
				t.Fatal(err)
			}
			if got, _ := found(t, b); got != nil {
				t.Errorf("found(t, b): got = %q, want nil", got)
			}
		})
	}
}

func TestMuchIsLeftOutAndSaid(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	b := runner.LookAtArtifacts(work)
	for i := range runner.MaxArtifacts + 3 {
		write(t, work, fmt.Sprintf("artifacts/f%03d", i), "x")
	}
	write(t, work, "artifacts/a-large", "")
	if err := os.Truncate(filepath.Join(work, "artifacts/a-large"), runner.MaxArtifactSize+1); err != nil {
		t.Fatal(err)
	}
	got, omitted := found(t, b)
	if len(got) != runner.MaxArtifacts || len(omitted) != 4 || !strings.Contains(omitted[0], "more than 32 MiB") ||
		!strings.Contains(omitted[3], "at most 64") {
		t.Errorf(`%d %q; want len(got) = runner.MaxArtifacts, len(omitted) = 4, omitted[0] with "more than 32 MiB", omitted[3] `+
			`with "at most 64"`, len(got), omitted)
	}
}
