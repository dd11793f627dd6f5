//go:build unix

package backup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

// entries are the names in a folder.
func entries(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestAnEmptyFolderBecomesTheHome(t *testing.T) {
	home, _, _ := aHome(t)
	file, m := backUp(t, home)
	for name, make := range map[string]func(dir, to string) error{
		"nothing":         func(string, string) error { return nil },
		"an empty folder": func(_, to string) error { return os.Mkdir(to, 0o755) },
		"a link to an empty folder": func(dir, to string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o755), os.Symlink("real", to))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			to := filepath.Join(dir, "to")
			if err := make(dir, to); err != nil {
				t.Fatal(err)
			}
			before := entries(t, dir)
			if _, err := Restore(t.Context(), file, to, m.Schemas); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Join(to, "secrets/key")); err != nil || string(got) != "s3cret" {
				t.Errorf(`the home: %q, %v; want no error, string(got) = "s3cret"`, got, err)
			}
			if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("the home: %v, %v; want no error, info.Mode().Perm() = 0o700", info, err)
			}
			if before == "" {
				before = "to"
			}
			if got := entries(t, dir); got != before {
				t.Errorf("there is %q, and was %q; want got = %v", got, before, before)
			}
			_, err := Restore(t.Context(), file, to, m.Schemas)
			wants(t, err, capability.CodeConflict, ReasonOccupied)
		})
	}
	t.Run("a link to nothing", func(t *testing.T) {
		to := filepath.Join(t.TempDir(), "to")
		if err := os.Symlink("none", to); err != nil {
			t.Fatal(err)
		}
		_, err := Restore(t.Context(), file, to, m.Schemas)
		wants(t, err, capability.CodeConflict, ReasonOccupied)
	})
	t.Run("an empty folder, and the file is damaged", func(t *testing.T) {
		dir := t.TempDir()
		to := filepath.Join(dir, "to")
		if err := os.Mkdir(to, 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := Restore(t.Context(), written(t, []byte("none")), to, m.Schemas)
		wants(t, err, capability.CodeInvalidInput, ReasonDamaged)
		if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o755 || entries(t, dir) != "to" || entries(t, to) != "" {
			t.Errorf(`something was changed: %v %v, %s; want no error, info.Mode().Perm() = 0o755, entries(t, dir) = "to", `+
				`entries(t, to) = ""`, info, err, entries(t, dir))
		}
	})
}

// An existing folder with the name of a working folder is not changed.
func TestAFolderThatIsNotOursIsNotEmptied(t *testing.T) {
	home, _, _ := aHome(t)
	file, m := backUp(t, home)
	for name, try := range map[string]func(dir string) (part string, err error){
		"a backup": func(dir string) (string, error) {
			put(t, dir, ".junctor-backup.part/photos/a.jpg", "mine", 0o600)
			_, err := Make(t.Context(), Options{Home: home, File: filepath.Join(dir, "b.tar.gz"), Version: "test"})
			return ".junctor-backup.part", err
		},
		"a check": func(dir string) (string, error) {
			put(t, dir, ".junctor-check.part/photos/a.jpg", "mine", 0o600)
			err := os.Link(file, filepath.Join(dir, "b"))
			if err == nil {
				_, err = Check(t.Context(), filepath.Join(dir, "b"), m.Schemas)
			}
			return ".junctor-check.part", err
		},
		"a home": func(dir string) (string, error) {
			put(t, dir, "film.part/photos/a.jpg", "mine", 0o600)
			_, err := Restore(t.Context(), file, filepath.Join(dir, "film"), m.Schemas)
			return "film.part", err
		},
		"a folder where the mark is not a file": func(dir string) (string, error) {
			put(t, dir, "film.part/photos/a.jpg", "mine", 0o600)
			put(t, dir, "film.part/"+mark+"/a", "mine", 0o600)
			_, err := Restore(t.Context(), file, filepath.Join(dir, "film"), m.Schemas)
			return "film.part", err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			part, err := try(dir)
			wants(t, err, capability.CodeConflict, ReasonInTheWay)
			if e := capability.AsError(err); e != nil && !strings.Contains(e.Message, part) {
				t.Errorf("the folder is not named: %s; want not (e != nil && !strings.Contains(e.Message, part))", e.Message)
			}
			if got, err := os.ReadFile(filepath.Join(dir, part, "photos/a.jpg")); err != nil || string(got) != "mine" {
				t.Errorf(`it is %q, %v; want no error, string(got) = "mine"`, got, err)
			}
		})
	}
}

// The mark is created first and removed last, so that a kill never leaves a folder
// that the next attempt would take for a foreign one.
func TestAPartFolderIsMarkedAsLongAsItHoldsAnything(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x.part")
	if err := os.Mkdir(dir, 0o755); err != nil { // killed before the mark
		t.Fatal(err)
	}
	p, err := openPart(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 || entries(t, dir) != mark {
		t.Errorf("there is %q: %v, %v; want no error, info.Mode().Perm() = 0o700, entries(t, dir) = %v",
			entries(t, dir), info, err, mark)
	}
	put(t, dir, "half/x", "x", 0o600)
	_ = p.lock.Close() // a kill
	if p, err = openPart(dir); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, dir); got != mark {
		t.Errorf("there is %q; want got = %v", got, mark)
	}
	p.remove()
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder stayed: %v; want err is fs.ErrNotExist", err)
	}
}

func TestAPartFolderOfSomebodyElseIsRefused(t *testing.T) {
	dir := "/" // who is not root finds one
	if os.Geteuid() == 0 {
		dir = t.TempDir()
		put(t, dir, mark, "", 0o600)
		if err := os.Chown(dir, 12345, 12345); err != nil {
			t.Skip("nothing can be given away here:", err)
		}
	}
	_, err := openPart(dir)
	wants(t, err, capability.CodeConflict, ReasonInTheWay)
	if e := capability.AsError(err); e != nil && !strings.Contains(e.Message, "another user") {
		t.Errorf(`it says %s; want not (e != nil && !strings.Contains(e.Message, "another user"))`, e.Message)
	}
	if os.Geteuid() == 0 && entries(t, dir) != mark {
		t.Error("it was emptied; want not (os.Geteuid() == 0 && entries(t, dir) != mark)")
	}
}

func TestAFileOrALinkInTheWayIsRefused(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.part", "mine", 0o600)
	put(t, dir, "real/mine", "mine", 0o600)
	if err := os.Symlink("real", filepath.Join(dir, "b.part")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.part", "b.part"} {
		_, err := openPart(filepath.Join(dir, name))
		wants(t, err, capability.CodeConflict, ReasonInTheWay)
	}
	if got := entries(t, dir) + entries(t, filepath.Join(dir, "real")); got != "a.part b.part realmine" {
		t.Errorf(`there is %q; want got = "a.part b.part realmine"`, got)
	}
}
