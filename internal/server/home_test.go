package server_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/junctor-run/junctor/internal/server"
)

func TestAHomeThatOthersCanReadIsNarrowedButNotWhatIsInIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inside := filepath.Join(dir, "extensions")
	for _, err := range []error{os.Chmod(dir, 0o755), os.Mkdir(inside, 0o755), os.Chmod(inside, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	home, err := server.OpenHome(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	for path, want := range map[string]os.FileMode{dir: 0o700, inside: 0o755} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v; want no error, info.Mode().Perm() = %v", path, info.Mode(), err, want)
		}
	}
}
