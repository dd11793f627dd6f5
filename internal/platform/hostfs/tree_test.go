//go:build unix

package hostfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// nest makes levels folders within each other below root, the last with a file.
func nest(t *testing.T, root *os.Root, levels int) {
	t.Helper()
	for range levels {
		if err := root.Mkdir("0", 0o700); err != nil {
			t.Fatalf("make a folder: %v", err)
		}
		next, err := root.OpenRoot("0")
		if err != nil {
			t.Fatalf("enter a folder: %v", err)
		}
		t.Cleanup(func() { _ = next.Close() })
		root = next
	}
	if err := root.WriteFile("bottom", nil, 0o400); err != nil {
		t.Fatalf("write the last file: %v", err)
	}
}

func TestATreeIsRemovedWhateverItsProgramMadeOfIt(t *testing.T) {
	t.Parallel()
	for name, hostile := range map[string]func(t *testing.T, root *os.Root){
		"folders deeper than a path can name": func(t *testing.T, root *os.Root) { nest(t, root, 700) },
		"a folder that cannot be entered": func(t *testing.T, root *os.Root) {
			nest(t, root, 3)
			for _, dir := range []string{"0/0/0", "0/0", "0"} {
				if err := root.Chmod(dir, 0); err != nil {
					t.Fatalf("lock %s: %v", dir, err)
				}
			}
		},
		"a link to a folder outside": func(t *testing.T, root *os.Root) {
			if err := root.Symlink(filepath.Join(filepath.Dir(root.Name()), "kept"), "link"); err != nil {
				t.Fatalf("make a link: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			kept, tree := filepath.Join(base, "kept", "file"), filepath.Join(base, "tree")
			if err := errors.Join(os.Mkdir(filepath.Dir(kept), 0o700), os.WriteFile(kept, nil, 0o600), os.Mkdir(tree, 0o700)); err != nil {
				t.Fatalf("prepare: %v", err)
			}
			root, err := os.OpenRoot(tree)
			if err != nil {
				t.Fatalf("open the tree: %v", err)
			}
			defer root.Close()
			hostile(t, root)
			if err := hostfs.RemoveAll(tree); err != nil {
				t.Errorf("RemoveAll: %v; want nil", err)
			}
			left, err := fs.Glob(os.DirFS(base), "*")
			if err != nil || len(left) != 1 || left[0] != "kept" {
				t.Errorf("left: %q %v; want only kept", left, err)
			}
			if _, err := os.Stat(kept); err != nil {
				t.Errorf("the file outside: %v; want it to exist", err)
			}
		})
	}
	for _, absent := range []string{"absent", "absent/below"} {
		if err := hostfs.RemoveAll(filepath.Join(t.TempDir(), absent)); err != nil {
			t.Errorf("RemoveAll of %s: %v; want nil", absent, err)
		}
	}
}
