package segment_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/store/segment"
)

func TestArgumentsAreFilesThatRetentionRemoves(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "arguments")
	a := segment.NewArguments(dir)
	old, fresh := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	if err := a.Sweep(time.Now()); err != nil {
		t.Errorf("sweeping nothing: %v, want no error", err)
	}
	for _, name := range []string{old, fresh, fresh} {
		if err := a.Put(name, []byte(name[:2])); err != nil {
			t.Fatalf("putting %s: %v", name, err)
		}
	}
	if err := os.Chtimes(filepath.Join(dir, "ab", old), time.Unix(0, 0), time.Unix(0, 0)); err != nil {
		t.Fatalf("making a file old: %v", err)
	}
	if err := a.Sweep(time.Now().Add(-time.Hour)); err != nil {
		t.Errorf("sweeping: %v, want no error", err)
	}
	for name, want := range map[string]string{old: "", fresh: "cd"} {
		if got, err := a.Get(name); err != nil || string(got) != want {
			t.Errorf("Get(%.4s) = %q, %v; want %q", name, got, err, want)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "cd", fresh))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v; want 0600", info.Mode(), err)
	}
	for range 2 {
		if err := a.Remove(fresh); err != nil {
			t.Errorf("removing: %v, want no error", err)
		}
	}
	for _, name := range []string{"", "../../etc/passwd", strings.Repeat("zz", 32)} {
		if err := a.Put(name, nil); err == nil {
			t.Errorf("Put(%q) succeeded, want an error", name)
		}
	}
}
