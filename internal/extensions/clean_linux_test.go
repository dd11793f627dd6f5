package extensions

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestOnlyWhatIsNewIsCleanedAway(t *testing.T) {
	t.Parallel()
	work, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(work, "old"))
	write(outside)
	since := fileNow()
	clean(work, time.Now().Add(time.Hour)) // nothing is that new
	if err := os.Mkdir(filepath.Join(work, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(work, "deep", "new"))
	if err := os.Symlink(outside, filepath.Join(work, "link")); err != nil {
		t.Fatal(err)
	}
	clean(work, since)
	for name, want := range map[string]bool{filepath.Join(work, "deep", "new"): false, filepath.Join(work, "link"): false, outside: true} {
		if _, err := os.Lstat(name); (err == nil) != want {
			t.Errorf("%s: %v; want (err == nil) = %v", name, err, want)
		}
	}
}
