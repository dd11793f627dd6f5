package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/config"
)

func TestRootsWithCredentialsAreFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if c := CheckRoots([]config.Root{{ID: "a", Path: dir}}); !c.OK {
		t.Errorf("CheckRoots(without credentials) = %+v, want OK", c)
	}
	if err := os.Mkdir(filepath.Join(dir, ".ssh"), 0o700); err != nil {
		t.Fatalf("making a directory = %v, want no error", err)
	}
	if c := CheckRoots([]config.Root{{ID: "a", Path: dir}}); c.OK || !strings.Contains(c.Detail, ".ssh") || c.Remedy == "" {
		t.Errorf("CheckRoots(with .ssh) = %+v, want a finding that names .ssh, with a remedy", c)
	}
	if c := CheckRoots([]config.Root{{ID: "a", Path: filepath.Join(dir, "gone")}}); c.OK || !strings.Contains(c.Detail, "gone") {
		t.Errorf("CheckRoots(missing folder) = %+v, want a finding", c)
	}
}
