package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sassoftware/go-rpmutils"
)

// packed makes the packages of this machine in one format and returns its path.
func packed(t *testing.T, p product, format, arch string) string {
	t.Helper()
	completions, err := p.completions(context.Background())
	if err != nil {
		t.Fatalf("completions() = %v, want no error", err)
	}
	data, err := p.pack(format, arch, completions)
	if err != nil {
		t.Fatalf("pack(%s) = %v, want no error", format, err)
	}
	path := filepath.Join(p.out, "junctor."+format)
	write(t, path, string(data), 0o644)
	return path
}

// expectedFiles are the files of both formats with mode and owner.
func expectedFiles() map[string]string {
	return map[string]string{
		"/usr/bin/junctor":                                  "-rwxr-xr-x root/root",
		"/usr/lib/systemd/system/junctor.service":           "-rw-r--r-- root/root",
		"/etc/junctor/junctor.env":                          "-rw------- root/root",
		"/etc/junctor":                                      "drwxr-xr-x root/root",
		"/var/lib/junctor":                                  "drwx------ junctor/junctor",
		"/usr/share/bash-completion/completions/junctor":    "-rw-r--r-- root/root",
		"/usr/share/fish/vendor_completions.d/junctor.fish": "-rw-r--r-- root/root",
		"/usr/share/doc/junctor/THIRD-PARTY-LICENSES.txt":   "-rw-r--r-- root/root",
		"/usr/share/doc/junctor/README.md":                  "-rw-r--r-- root/root",
		"/usr/share/doc/junctor/CHANGELOG.md":               "-rw-r--r-- root/root",
	}
}

func TestDebInstallsAndRuns(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed")
	}
	p := newProduct(t)
	deb := packed(t, p, "deb", runtime.GOARCH)

	fields := output(t, "dpkg-deb", "--field", deb)
	for _, want := range []string{
		"Package: junctor", "Version: 1.2.3-1", "Architecture: " + runtime.GOARCH, "Depends: passwd", "Recommends: ca-certificates, git",
		"Description: Capability plane for AI agents", "Maintainer: ",
	} {
		if !strings.Contains(fields, want) {
			t.Errorf("fields are %q, want them with %q", fields, want)
		}
	}
	if conffiles := output(t, "dpkg-deb", "--info", deb, "conffiles"); strings.TrimSpace(conffiles) != envPath {
		t.Errorf("conffiles are %q, want %s", conffiles, envPath)
	}
	listed := make(map[string]string)
	for line := range strings.Lines(output(t, "dpkg-deb", "--contents", deb)) {
		f := strings.Fields(line)
		listed[strings.TrimSuffix(strings.TrimPrefix(f[5], "."), "/")] = f[0] + " " + f[1]
		if f[3] != "2026-03-04" {
			t.Errorf("%s is of %s, want the day of the commit, 2026-03-04", f[5], f[3])
		}
	}
	for path, want := range expectedFiles() {
		if listed[path] != want {
			t.Errorf("%s is %q, want %q", path, listed[path], want)
		}
	}
	if _, ok := listed["/usr/share/doc/junctor/copyright"]; !ok {
		t.Errorf("files are %v, want a copyright file", listed)
	}

	root := filepath.Join(t.TempDir(), "root")
	installDeb(t, root, deb)
	if got := output(t, filepath.Join(root, programPath), "version"); !strings.HasPrefix(got, "junctor 1.2.3 0123456789ab") {
		t.Errorf("version of the installed program is %q, want junctor 1.2.3 0123456789ab", got)
	}
	unit := string(read(t, filepath.Join(root, unitPath)))
	for _, want := range []string{
		"\nExecStart=" + programPath + " serve\n", "\nUser=junctor\n", "\nEnvironment=JUNCTOR_HOME=" + homeDir + "\n",
		"\nEnvironmentFile=-" + envPath + "\n",
	} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit is %q, want it with %q", unit, want)
		}
	}
	script := string(read(t, filepath.Join(root, "/usr/share/bash-completion/completions/junctor")))
	if !strings.Contains(script, "__start_junctor") {
		t.Errorf("the completion script of bash has %d bytes, want it with __start_junctor", len(script))
	}
}

// installDeb installs a package below root. As root dpkg does it, without the scripts, which
// would need a system below root; otherwise the files are unpacked.
func installDeb(t *testing.T, root, deb string) {
	t.Helper()
	dpkg, err := exec.LookPath("dpkg")
	if err != nil || os.Getuid() != 0 {
		t.Log("dpkg installs as root only: the package is unpacked instead")
		output(t, "dpkg-deb", "--extract", deb, root)
		return
	}
	for name, text := range map[string]string{
		"var/lib/dpkg/status": "", "var/lib/dpkg/available": "", "var/lib/dpkg/info/format": "1\n", "var/lib/dpkg/updates/.keep": "",
	} {
		write(t, filepath.Join(root, name), text, 0o644)
	}
	if err := os.Remove(filepath.Join(root, "var/lib/dpkg/updates/.keep")); err != nil {
		t.Fatalf("empty the folder of updates: %v; want no error", err)
	}
	// An owner that the machine lacks is given the number in the archive.
	scripts := t.TempDir()
	output(t, "dpkg-deb", "--raw-extract", deb, scripts)
	for _, name := range []string{"preinst", "postinst", "prerm", "postrm"} {
		script := filepath.Join(scripts, "DEBIAN", name)
		output(t, "sh", "-n", script)
		if err := os.Remove(script); err != nil {
			t.Fatalf("remove %s: %v; want no error", name, err)
		}
	}
	bare := filepath.Join(scripts, "..", filepath.Base(scripts)+".deb")
	output(t, "dpkg-deb", "--build", "-Znone", scripts, bare)
	output(t, dpkg, "--root="+root, "--log=/dev/null", "--force-not-root", "--force-depends", "--force-script-chrootless", "--install", bare)
	if state := output(t, "dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"), "-W", "-f=${Status}", "junctor"); state !=
		"install ok installed" {
		t.Errorf("dpkg has the package as %q, want install ok installed", state)
	}
}

func TestPreReleaseSortsBeforeItsRelease(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("dpkg is not installed")
	}
	p := fakeProduct(t)
	version := strings.TrimSpace(output(t, "dpkg-deb", "--field", packed(t, p, "deb", "arm64"), "Version"))
	output(t, "dpkg", "--compare-versions", version, "lt", "1.2.3-1")
}

// TestPackageScriptsCreateTheUserOnce runs the scripts of a package with programs that
// record how they were called.
func TestPackageScriptsCreateTheUserOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script string
		args         []string
		hasUser      bool
		want         string
	}{
		{"a machine without the user", "preinstall", []string{"install"}, false, "useradd"},
		{"a machine with the user", "preinstall", []string{"upgrade", "1.0.0"}, true, ""},
		{"a removal", "preremove", []string{"remove"}, true, ""},
		{"an upgrade", "preremove", []string{"upgrade", "2.0.0"}, true, ""},
		{"a removal by rpm", "postremove", []string{"0"}, true, ""},
	} {
		bin := t.TempDir()
		log := filepath.Join(bin, "log")
		found := "exit 0"
		if !tt.hasUser {
			found = "exit 2"
		}
		write(t, filepath.Join(bin, "getent"), "#!/bin/sh\n"+found+"\n", 0o755)
		write(t, filepath.Join(bin, "useradd"), "#!/bin/sh\necho useradd \"$@\" >>"+log+"\n", 0o755)
		write(t, filepath.Join(bin, "systemctl"), "#!/bin/sh\nexit 0\n", 0o755)
		write(t, log, "", 0o644)
		cmd := exec.Command("/bin/sh", append([]string{filepath.Join("scripts", tt.script+".sh")}, tt.args...)...)
		cmd.Env = []string{"PATH=" + bin}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s; want no error", tt.name, err, out)
		}
		got := string(read(t, log))
		if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: called %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRPMHoldsTheFiles(t *testing.T) {
	t.Parallel()
	p := newProduct(t)
	data := read(t, packed(t, p, "rpm", runtime.GOARCH))
	rpm, err := rpmutils.ReadRpm(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("ReadRpm() = %v, want no error", err)
	}
	nevra, err := rpm.Header.GetNEVRA()
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if err != nil || nevra.Name != "junctor" || nevra.Version != "1.2.3" || nevra.Release != "1" || nevra.Arch != arch {
		t.Errorf("GetNEVRA() = %v, %v; want junctor 1.2.3-1 of %s", nevra, err, arch)
	}
	for tag, want := range map[int]string{
		rpmutils.BUILDHOST: "localhost", rpmutils.LICENSE: "Apache-2.0", rpmutils.SUMMARY: "Capability plane for AI agents",
	} {
		if got, err := rpm.Header.GetString(tag); err != nil || got != want {
			t.Errorf("tag %d is %q, %v; want %q", tag, got, err, want)
		}
	}
	for _, tag := range []int{rpmutils.PREIN, rpmutils.POSTIN, rpmutils.PREUN, rpmutils.POSTUN} {
		if script, err := rpm.Header.GetString(tag); err != nil || !strings.HasPrefix(script, "#!/bin/sh\n") {
			t.Errorf("script %d is %q, %v; want a shell script", tag, script, err)
		}
	}
	requires, err := rpm.Header.GetStrings(rpmutils.REQUIRENAME)
	if err != nil || !slices.Contains(requires, "shadow-utils") {
		t.Errorf("requirements are %v, %v; want shadow-utils among them", requires, err)
	}
	infos, err := rpm.Header.GetFiles()
	if err != nil {
		t.Fatalf("GetFiles() = %v, want no error", err)
	}
	got := make(map[string]string)
	for _, f := range infos {
		got[f.Name()] = modeOf(f.Mode()) + " " + f.UserName() + "/" + f.GroupName()
		if f.Mtime() != int(commitTime.Unix()) {
			t.Errorf("%s is of %d, want the time of the commit, %d", f.Name(), f.Mtime(), commitTime.Unix())
		}
		if config := f.Flags()&rpmutils.RPMFILE_CONFIG != 0; config != (f.Name() == envPath) {
			t.Errorf("%s is a configuration file: %v, want that of %s only", f.Name(), config, envPath)
		}
	}
	want := expectedFiles()
	want["/usr/share/licenses/junctor/LICENSE"] = "-rw-r--r-- root/root"
	want["/usr/share/zsh/site-functions/_junctor"] = "-rw-r--r-- root/root"
	for path, mode := range want {
		if got[path] != mode {
			t.Errorf("%s is %q, want %q", path, got[path], mode)
		}
	}
	// The payload is unpacked as well, and the program in it runs.
	root := t.TempDir()
	if os.Getuid() != 0 { // the library changes owners
		t.Log("only the header is read: the payload is unpacked as root only")
		return
	}
	if err := rpm.ExpandPayload(root); err != nil {
		t.Fatalf("ExpandPayload() = %v, want no error", err)
	}
	if err := os.Chmod(filepath.Join(root, programPath), 0o755); err != nil { // the library sets no modes; the header's are tested above
		t.Fatalf("Chmod(%s) = %v, want no error", programPath, err)
	}
	if version := output(t, filepath.Join(root, programPath), "version"); !strings.HasPrefix(version, "junctor 1.2.3 0123456789ab") {
		t.Errorf("version of the unpacked program is %q, want junctor 1.2.3 0123456789ab", version)
	}
}

// modeOf formats the mode of a file in an rpm as ls does.
func modeOf(mode int) string {
	kind := "-"
	if mode&0o170000 == 0o040000 {
		kind = "d"
	}
	return kind + os.FileMode(mode & 0o777).String()[1:]
}

// TestPackagedUnitKeepsTheMeansOfTheSandbox holds that the packaged unit is the one of the
// release folder but for the program's place: the settings are tested there.
func TestPackagedUnitKeepsTheMeansOfTheSandbox(t *testing.T) {
	t.Parallel()
	unit := read(t, filepath.Join("..", "..", "release", "junctor.service"))
	got := regexp.MustCompile(`(?m)^ExecStart=.*$`).FindAllString(string(unit), -1)
	if !slices.Equal(got, []string{"ExecStart=/usr/local/bin/junctor serve"}) || len(execStart.FindAll(unit, -1)) != 1 {
		t.Errorf("the unit has %q, want one ExecStart that a package can replace", got)
	}
}
