package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// installing is a folder as a release leaves it, and a machine's empty folders.
type installing struct {
	t                   *testing.T
	dist, home, scratch string
	base                string
	as                  *syscall.SysProcAttr // who runs the script; nil is the user of the test
}

// program stands for the binary: the script only tries it and puts it.
const program = "#!/bin/sh\necho junctor $0 9.9.9\n"

func newInstalling(t *testing.T) *installing {
	t.Helper()
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("the script is for Linux and macOS")
	}
	dir := t.TempDir()
	in := &installing{
		t: t, dist: filepath.Join(dir, "dist"), home: filepath.Join(dir, "home"), scratch: filepath.Join(dir, "tmp"),
		base: "junctor_9.9.9_" + runtime.GOOS + "_" + runtime.GOARCH,
	}
	for _, d := range []string{in.dist, in.home, in.scratch} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	in.release(program)
	return in
}

// release packs a program as make release does.
func (in *installing) release(text string) {
	in.t.Helper()
	binary := filepath.Join(in.scratch, "built")
	write(in.t, binary, text)
	m := &maker{version: "9.9.9", source: "..", out: in.dist, sums: map[string]string{}}
	system := target{"linux", runtime.GOARCH} // with the units, wherever the test runs
	files, err := m.files(system, binary, []byte("licences"))
	if err != nil {
		in.t.Fatal(err)
	}
	_, data, err := pack(in.base, system, files, time.Unix(1, 0))
	if err != nil {
		in.t.Fatal(err)
	}
	if err := m.write(in.base+".tar.gz", data); err != nil {
		in.t.Fatal(err)
	}
	if err := m.write("install.sh", read(in.t, "install.sh")); err != nil {
		in.t.Fatal(err)
	}
	write(in.t, filepath.Join(in.dist, "SHA256SUMS"), string(sumsFile(m.sums)))
	if err := os.Remove(binary); err != nil {
		in.t.Fatal(err)
	}
}

// run runs the script of a folder and returns its exit status and what it said.
func (in *installing) run(dir string, args ...string) (status int, said string) {
	in.t.Helper()
	cmd := exec.Command("sh", append([]string{filepath.Join(dir, "install.sh")}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + in.home, "TMPDIR=" + in.scratch}
	cmd.Dir, cmd.SysProcAttr = in.home, in.as
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		in.t.Fatalf("%v; want cmd.ProcessState not nil", err)
	}
	if left, _ := os.ReadDir(in.scratch); len(left) > 0 {
		in.t.Errorf("it left %v; want len(left) at most 0", left)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func (in *installing) must(dir string, args ...string) string {
	in.t.Helper()
	status, said := in.run(dir, args...)
	if status != 0 {
		in.t.Fatalf("install.sh %v: %d %s; want status = 0", args, status, said)
	}
	return said
}

// refused runs the script, which must fail, say a word, and leave nothing in the home.
func (in *installing) refused(word, dir string, args ...string) {
	in.t.Helper()
	args = append([]string{"--prefix", filepath.Join(in.home, "p")}, args...) // for root, too, nothing but the home
	status, said := in.run(dir, args...)
	if status != 1 || !strings.Contains(said, word) {
		in.t.Errorf("install.sh %v: %d %s; want status = 1, said with %v", args, status, said, word)
	}
	if left := in.everything(); len(left) > 0 {
		in.t.Errorf("install.sh %v left %v; want len(left) at most 0", args, left)
	}
}

// everything are the files in the home.
func (in *installing) everything() (list []string) {
	in.t.Helper()
	if err := filepath.WalkDir(in.home, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(in.home, path)
			list = append(list, rel)
		}
		return err
	}); err != nil {
		in.t.Fatal(err)
	}
	return list
}

func TestTheScriptInstallsUpgradesAndRemoves(t *testing.T) {
	t.Parallel()
	in := newInstalling(t)
	prefix := "--prefix=" + filepath.Join(in.home, "p")
	installed := filepath.Join(in.home, "p", "bin", "junctor")
	if said := in.must(in.dist, prefix); !strings.Contains(said, "9.9.9") || !strings.Contains(said, "not in PATH") {
		t.Errorf(`it said %q; want said with "9.9.9", said with "not in PATH"`, said)
	}
	info, err := os.Stat(installed)
	if err != nil || info.Mode().Perm() != 0o755 || string(read(t, installed)) != program {
		t.Fatalf("%v, %v; want no error, info.Mode().Perm() = 0o755, string(read(t, installed)) = %v", info, err, program)
	}
	if said := in.must(in.dist, prefix); !strings.Contains(said, "this version already") {
		t.Errorf(`the second time it said %q; want said with "this version already"`, said)
	}
	in.release(program + "# newer\n")
	in.must(in.dist, prefix)
	if !strings.HasSuffix(string(read(t, installed)), "# newer\n") {
		t.Error("the upgrade is not there")
	}
	in.must(in.dist, prefix, "--uninstall")
	in.must(in.dist, prefix, "--uninstall")
	if left := in.everything(); len(left) > 0 {
		t.Errorf("there is still %v; want len(left) at most 0", left)
	}
}

func TestTheScriptWorksInAnUnpackedArchiveAndFromAFile(t *testing.T) {
	t.Parallel()
	in := newInstalling(t)
	if out, err := exec.Command("tar", "-xzf", filepath.Join(in.dist, in.base+".tar.gz"), "-C", in.dist).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	in.must(filepath.Join(in.dist, in.base), "--prefix", filepath.Join(in.home, "a"))
	in.must(in.dist, "--from", filepath.Join(in.dist, in.base+".tar.gz"), "--prefix", "b ö")
	if got := strings.Join(in.everything(), " "); got != "a/bin/junctor b ö/bin/junctor" {
		t.Errorf(`installed are %s; want got = "a/bin/junctor b ö/bin/junctor"`, got)
	}
}

func TestTheScriptPutsTheUnitOfItsProgram(t *testing.T) {
	t.Parallel()
	in := newInstalling(t)
	in.must(in.dist, "--systemd=user", "--help") // states how, and does nothing
	if left := in.everything(); len(left) > 0 {
		t.Errorf("--help left %v; want len(left) at most 0", left)
	}
	for mode, place := range map[string]string{
		"user":   in.home + "/.config/systemd/user/junctor.service",
		"system": "/etc/systemd/system/junctor.service",
	} {
		root := filepath.Join(in.home, mode)
		run := func(args ...string) string {
			t.Helper()
			cmd := exec.Command("sh", append([]string{filepath.Join(in.dist, "install.sh"), "--prefix", "/opt/x", "--systemd=" + mode}, args...)...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + in.home, "TMPDIR=" + in.scratch, "DESTDIR=" + root}
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v %s", err, out)
			}
			return string(out)
		}
		run()
		unit := filepath.Join(root, place)
		if got := string(read(t, unit)); !strings.Contains(got, "\nExecStart=/opt/x/bin/junctor serve\n") {
			t.Errorf(`the unit is %s; want got with "\nExecStart=/opt/x/bin/junctor serve\n"`, got)
		}
		if said := run(); strings.Count(said, "this version already") != 2 {
			t.Errorf(`the second time it said %s; want strings.Count(said, "this version already") = 2`, said)
		}
		write(t, unit, "edited")
		run()
		if string(read(t, unit+".before")) != "edited" {
			t.Error(`what somebody had edited is lost; want string(read(t, unit+".before")) = "edited"`)
		}
		run("--uninstall")
		if _, err := os.Stat(unit); !os.IsNotExist(err) {
			t.Errorf("the unit is still there: %v; want os.IsNotExist(err)", err)
		}
	}
}

func TestTheScriptInstallsNothingItCannotVouchFor(t *testing.T) {
	t.Parallel()
	in := newInstalling(t)
	archive, sums := filepath.Join(in.dist, in.base+".tar.gz"), filepath.Join(in.dist, "SHA256SUMS")
	good, named := read(t, archive), string(read(t, sums))
	restore := func() { write(t, archive, string(good)); write(t, sums, named) }

	bad := bytes.Clone(good)
	bad[len(bad)/2] ^= 1
	write(t, archive, string(bad))
	in.refused("is not what was released", in.dist)
	restore()
	write(t, sums, strings.ReplaceAll(named, in.base, "another"))
	in.refused("does not name "+in.base, in.dist)
	if err := os.Remove(sums); err != nil {
		t.Fatal(err)
	}
	in.refused("has no SHA256SUMS", in.dist)
	restore()
	write(t, strings.Replace(archive, "9.9.9", "9.9.8", 1), string(good))
	in.refused("several archives", in.dist)
	in.refused("does not name", in.dist, "--from", strings.Replace(archive, "9.9.9", "9.9.8", 1))
	if err := os.Remove(strings.Replace(archive, "9.9.9", "9.9.8", 1)); err != nil {
		t.Fatal(err)
	}
	in.refused("does not exist", in.dist, "--from", "nowhere")
	in.refused("neither junctor nor an archive", in.dist, "--from", in.home)
	in.refused("characters", in.dist, "--prefix", "/opt/a b", "--systemd=user")

	// In an unpacked archive the program itself is compared, and the unit with it.
	if out, err := exec.Command("tar", "-xzf", archive, "-C", in.dist).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	folder := filepath.Join(in.dist, in.base)
	write(t, filepath.Join(folder, "junctor.user.service"), "[Service]\nExecStart=/bin/false\n")
	in.refused("is not what was released", folder, "--systemd=user")
	write(t, filepath.Join(folder, "junctor"), "#!/bin/sh\necho changed\n")
	in.refused("is not what was released", folder)

	// A program that does not run here leaves what is there.
	in.release("#!/bin/sh\nexit 1\n")
	in.refused("does not run here", in.dist)
	in.release(program)
	in.must(in.dist, "--prefix", filepath.Join(in.home, "p"))
	in.release("#!/bin/sh\nexit 1\n")
	if status, said := in.run(in.dist, "--prefix", filepath.Join(in.home, "p")); status != 1 {
		t.Errorf("%d %s; want status = 1", status, said)
	}
	if got := strings.Join(in.everything(), " "); got != "p/bin/junctor" ||
		string(read(t, filepath.Join(in.home, "p/bin/junctor"))) != program {
		t.Errorf(`there is %s; want got = "p/bin/junctor", string(read(t, filepath.Join(in.home, "p/bin/junctor"))) = %v`, got, program)
	}
}

// TestTheScriptPutsNoUnitThatCouldNotBeStarted: what the system's unit needs is looked at
// before anything is written.
func TestTheScriptPutsNoUnitThatCouldNotBeStarted(t *testing.T) {
	t.Parallel()
	in := newInstalling(t)
	if err := os.Symlink("/home", filepath.Join(in.scratch, "link")); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{
		"/home/ann/.local", "/home", "/root/x", "/run/user/1000/x", "/opt/../root/x",
		filepath.Join(in.scratch, "link", "x"),
	} {
		// DESTDIR, so that a script that does write it writes it there.
		cmd := exec.Command("sh", filepath.Join(in.dist, "install.sh"), "--systemd=system", "--prefix", prefix)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + in.home, "TMPDIR=" + in.dist, "DESTDIR=" + filepath.Join(in.home, "dest")}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "--prefix") || !strings.Contains(string(out), "home folders") {
			t.Errorf(`%s: %v %s; want an error, string(out) with "--prefix", string(out) with "home folders"`, prefix, err, out)
		}
		if left := in.everything(); len(left) > 0 {
			t.Fatalf("%s: it left %v; want len(left) at most 0", prefix, left)
		}
	}
	if err := os.Remove(filepath.Join(in.scratch, "link")); err != nil {
		t.Fatal(err)
	}

	if os.Getuid() == 0 { // the rest is of a user who is not
		const nobody = 65534
		in.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		base := filepath.Dir(in.dist)
		err := errors.Join(os.Chmod(filepath.Dir(base), 0o755), filepath.WalkDir(base, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Chown(path, nobody, nobody))
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
	in.refused("--systemd=user", in.dist, "--systemd=system")
	in.refused("needs root", in.dist, "--systemd=system", "--uninstall")
	if said := in.must(in.dist, "--systemd", "--prefix", filepath.Join(in.home, "p")); !strings.Contains(said, "systemctl --user enable") {
		t.Errorf(`it said %s; want said with "systemctl --user enable"`, said)
	}
}

func TestTheScriptRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	in := newInstalling(t)
	for _, args := range [][]string{{"--fast"}, {"--prefix"}, {"--from", ""}, {"--systemd=both"}, {"here"}} {
		if status, said := in.run(in.dist, args...); status != 2 || !strings.Contains(said, "usage:") {
			t.Errorf(`%v: %d %s; want status = 2, said with "usage:"`, args, status, said)
		}
	}
	for _, shell := range []string{"sh", "dash", "bash", "busybox"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		args := []string{"-n", "install.sh"}
		if shell == "busybox" {
			args = append([]string{"sh"}, args...)
		}
		if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", shell, err, out)
		}
	}
	if path, err := exec.LookPath("shellcheck"); err == nil {
		if out, err := exec.Command(path, "install.sh").CombinedOutput(); err != nil {
			t.Errorf("%v %s", err, out)
		}
	}
}
