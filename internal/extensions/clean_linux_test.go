package extensions

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
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

// A program can nest folders deeper than a path can name: the walk would take minutes.
func TestFoldersThatAreTooDeepAreCleanedAway(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	old, err := os.OpenRoot(work)
	if err != nil {
		t.Fatalf("open the working folder: %v", err)
	}
	defer old.Close()
	if err := old.MkdirAll("kept/"+strings.Repeat("0/", hostfs.MaxDepth-2)+"bottom", 0o700); err != nil {
		t.Fatalf("make folders: %v", err)
	}
	since := fileNow()
	dir := old
	for range 4 * hostfs.MaxDepth {
		if err := dir.Mkdir("0", 0o700); err != nil {
			t.Fatalf("make a folder: %v", err)
		}
		next, err := dir.OpenRoot("0")
		if err != nil {
			t.Fatalf("open a folder: %v", err)
		}
		defer next.Close()
		dir = next
	}
	clean(work, since)
	depth := map[string]int{}
	_ = fs.WalkDir(old.FS(), ".", func(name string, _ fs.DirEntry, _ error) error {
		top, _, _ := strings.Cut(name, "/")
		depth[top] = max(depth[top], strings.Count(name, "/"))
		return nil
	})
	if want := (map[string]int{".": 0, "0": hostfs.MaxDepth - 1, "kept": hostfs.MaxDepth - 1}); !maps.Equal(depth, want) {
		t.Errorf("levels that are left: %v; want %v", depth, want)
	}
}
