package segment

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// What is written to a file that has lost its name is gone with the process, so it is never
// acknowledged.
func TestAFileThatWasTakenAwayIsNoticedBeforeTheAnswer(t *testing.T) {
	for name, take := range map[string]func(path string) error{
		"deleted": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error {
			data, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path+".new", data, 0o600)
			}
			return errors.Join(err, os.Rename(path+".new", path))
		},
		"linked elsewhere": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.Symlink(path+".old", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openDir(t, dir, Config{})
			_, err := s.Rotate([]byte("head\n"))
			ok(t, err)
			ok(t, s.Append([]byte("one\n")))
			ok(t, s.Sync())
			ok(t, s.Append([]byte("two\n")))
			ok(t, take(filepath.Join(dir, "audit-00000001.jsonl")))
			if err := s.Sync(); !errors.Is(err, ErrMoved) {
				t.Errorf("Sync() = %v, want %v", err, ErrMoved)
			}
			if err := s.Append([]byte("three\n")); !errors.Is(err, ErrMoved) {
				t.Errorf("Append() = %v, want %v", err, ErrMoved)
			}
			if _, err := s.Rotate([]byte("head\n")); !errors.Is(err, ErrMoved) {
				t.Errorf("Rotate() = %v, want %v", err, ErrMoved)
			}
		})
	}
}

// A file that is put back is written again.
func TestAFileThatIsPutBackIsWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit-00000001.jsonl")
	s := openDir(t, dir, Config{})
	_, err := s.Rotate([]byte("head\n"))
	ok(t, err)
	ok(t, s.Append([]byte("one\n")))
	ok(t, os.Rename(path, path+".old"))
	if err := s.Sync(); !errors.Is(err, ErrMoved) {
		t.Errorf("Sync() = %v, want %v", err, ErrMoved)
	}
	ok(t, os.Rename(path+".old", path))
	ok(t, s.Append([]byte("two\n")))
	ok(t, s.Sync())
	if got, want := content(t, s, 1, 0), "head\none\ntwo\n"; got != want {
		t.Errorf("content = %q, want %q", got, want)
	}
}
