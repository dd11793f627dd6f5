package script

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFilesStayInTheWorkingFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	work := filepath.Join(dir, "work")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(outside, []byte("secret"), 0o600))
	must(os.MkdirAll(filepath.Join(work, "sub"), 0o755))
	must(os.WriteFile(filepath.Join(work, "here"), []byte("here"), 0o600))
	must(os.WriteFile(filepath.Join(work, "binary"), []byte{0xff, 0}, 0o600))
	must(os.Truncate(filepath.Join(work, "binary"), 2))
	must(os.WriteFile(filepath.Join(work, "large"), make([]byte, MaxFile+1), 0o600))
	must(os.Symlink(outside, filepath.Join(work, "link")))
	must(os.Symlink(filepath.Join(work, "here"), filepath.Join(work, "inner")))
	must(os.Symlink(dir, filepath.Join(work, "up")))
	must(os.Symlink("sub", filepath.Join(work, "side")))
	must(os.Link(outside, filepath.Join(work, "hard")))
	x := &files{dir: work}
	for name, want := range map[string]string{
		"here": "here", "link": "", "inner": "", "up/outside": "", "../outside": "", outside: "", "side/x": "", "sub": "", "binary": "",
		"large": "", "": "", ".": "", "a//b": "", "none": "",
	} {
		if got, err := x.read(name); got != want || (err == nil) != (want != "") {
			t.Errorf(`read %q: %q, %v; want got = %v, (err == nil) = (want != "")`, name, got, err, want)
		}
	}
	for name, ok := range map[string]bool{
		"here": true, "new": true, "deep/er/file": true, "hard": true, "link": false, "inner": false, "up/outside": false, "../outside": false,
		outside: false, "side/x": false, "sub": false, "": false, ".": false,
	} {
		if err := x.write(name, "written"); (err == nil) != ok {
			t.Errorf("write %q: %v; want (err == nil) = %v", name, err, ok)
			continue
		}
		if ok {
			if got, err := x.read(name); got != "written" || err != nil {
				t.Errorf(`read %q again: %q, %v; want got = "written", no error`, name, got, err)
			}
		}
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "secret" {
		t.Errorf(`outside is %q, %v; want no error, string(data) = "secret"`, data, err)
	}
}

func TestTheWorkingFolderIsBounded(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	if err := os.WriteFile(filepath.Join(work, "old"), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	x := &files{dir: work, most: 150}
	if err := x.write("a", strings.Repeat("x", 40)); err != nil {
		t.Error(err)
	}
	if err := x.write("b", strings.Repeat("x", 40)); err == nil {
		t.Error("180 bytes were written with a limit of 150; want an error")
	}
	if err := x.write("c", strings.Repeat("x", MaxFile+1)); err == nil {
		t.Error("a file was too large; want an error")
	}
	if err := (&files{dir: filepath.Join(work, "none")}).write("a", ""); err == nil {
		t.Error("there was a folder; want an error")
	}
}
