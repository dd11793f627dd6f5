package backup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/capability"
)

// asNobody runs f as a user to whom file modes apply: for root on a separate thread, which
// ends with f.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so that the thread is not reused
		if err := errors.Join(unix.Setfsgid(nobody), unix.Setfsuid(nobody)); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

const nobody = 65534

// give changes the owner of a tree to an unprivileged user; it does nothing unless run by root.
func give(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error { return errors.Join(err, os.Lchown(p, nobody, nobody)) })
	if err != nil {
		t.Fatal(err)
	}
}

func why(m Manifest, p string) string {
	for _, l := range m.LeftOut {
		if l.Path == p {
			return l.Why
		}
	}
	return ""
}

func has(m Manifest, p string) bool {
	return slices.ContainsFunc(m.Files, func(f File) bool { return f.Path == p })
}

// workFolder is where the programs of an extension do what they like.
const workFolder = "extensions/tools.x/work"

func TestWhatProgramsOfOthersKeepToThemselvesEndsNoBackup(t *testing.T) {
	home, _, _ := aHome(t)
	closed := []string{
		path.Join(workFolder, "a"), path.Join("extensions/.staging/1/work", "a"),
		path.Join("extensions/.trash/tools.x-1.work", "a"), "upstreams/memory/a", "upstreams/memory/dir/",
	}
	beside := []string{path.Join(workFolder, "b"), "upstreams/memory/b"}
	ours := []string{"policy/a", "extensions/tools.x/a", "policy/dir/"}
	for _, name := range slices.Concat(closed, beside, ours) {
		put(t, home, strings.TrimSuffix(name, "/")+map[bool]string{true: "/x", false: ""}[strings.HasSuffix(name, "/")], "text", 0o600)
	}
	dir := t.TempDir()
	give(t, home)
	give(t, dir)
	for _, up := range []string{home, dir} {
		if err := errors.Join(os.Chmod(filepath.Dir(up), 0o755), os.Chmod(filepath.Dir(filepath.Dir(up)), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	lock := func(name string, mode fs.FileMode) {
		if err := os.Chmod(filepath.Join(home, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	make := func(file string) (m Manifest, err error) {
		asNobody(t, func() {
			m, err = Make(t.Context(), Options{Home: home, File: filepath.Join(dir, file), Version: "test"})
		})
		return m, err
	}
	for _, name := range closed {
		lock(name, 0)
	}
	defer lock("upstreams/memory/dir/", 0o700)
	m, err := make("b")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range closed {
		if file := !strings.HasSuffix(name, "/"); file && has(m, name) ||
			!strings.Contains(why(m, strings.TrimSuffix(name, "/")), "no other process") {
			t.Errorf(`%s is in it: %q; want not (file && has(m, name)), why(m, strings.TrimSuffix(name, "/")) with "no other process"`,
				name, why(m, name))
		}
	}
	for _, name := range beside {
		if !has(m, name) {
			t.Errorf("%s is not in it; want has(m, name)", name)
		}
	}
	for _, name := range ours {
		lock(name, 0)
		if _, err := make("c"); err == nil {
			t.Errorf("%s was left out; want an error", name)
		}
		lock(name, 0o700)
	}
	if _, err := make("c"); err != nil {
		t.Error(err)
	}
}

// The size of a file is in the archive before its content.
func TestAFileOfOthersThatBecomesShorterIsFilledUp(t *testing.T) {
	for name, others := range map[string]bool{
		"upstreams/memory/log": true, path.Join(workFolder, "log"): true,
		"extensions/tools.x/bin/log": false, "policy/a.cedar": false,
	} {
		var archive bytes.Buffer
		m := Manifest{Format: format, Schemas: map[string]int64{}, LeftOut: []LeftOut{}}
		w := newWriter(t.Context(), &archive, nil, &m)
		err := w.add(File{Path: name, Mode: 0o600, Size: 9}, strings.NewReader("short"))
		if (err == nil) != others {
			t.Errorf("%s: %v; want (err == nil) = %v", name, err, others)
		}
		if err != nil {
			continue
		}
		if m.Files[0].SHA256 != digest("short\x00\x00\x00\x00") || !strings.Contains(why(m, name), "zeros") {
			t.Errorf(`%s: %+v; want m.Files[0].SHA256 = digest("short\x00\x00\x00\x00"), why(m, name) with "zeros"`, name, m)
		}
	}
}

// TestAMountPointIsRefusedBeforeAnythingIsUnpacked mounts a disk in a process of its own.
func TestAMountPointIsRefusedBeforeAnythingIsUnpacked(t *testing.T) {
	const inside = "JUNCTOR_TEST_RESTORE_INTO"
	if to := os.Getenv(inside); to != "" {
		if err := syscall.Mount("disk", to, "tmpfs", 0, ""); err != nil {
			t.Skip("nothing can be mounted here:", err)
		}
		_, err := Restore(t.Context(), os.Getenv(inside+"_FILE"), to, nil)
		wants(t, err, capability.CodeConflict, ReasonMounted)
		if e := capability.AsError(err); e != nil && !strings.Contains(e.Hint, "--home "+to+"/home") {
			t.Errorf(`it says %q; want not (e != nil && !strings.Contains(e.Hint, "--home "+to+"/home"))`, e.Hint)
		}
		if got := entries(t, filepath.Dir(to)); got != "home" {
			t.Errorf(`beside it: %s; want got = "home"`, got)
		}
		if _, err := Restore(t.Context(), os.Getenv(inside+"_FILE"), filepath.Join(to, "home"), nil); err != nil {
			t.Errorf("inside of it: %v", err)
		}
		return
	}
	home, _, _ := aHome(t)
	file, _ := backUp(t, home)
	to := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"="+to, inside+"_FILE="+file)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "--- SKIP") {
		t.Skipf("nothing can be mounted here: %v\n%s", err, out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
