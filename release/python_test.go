package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestVersionsHaveTheFormOfPython(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"1.2.3": "1.2.3", "1.2.3-rc.1": "1.2.3rc1", "1.2.3-alpha2": "1.2.3a2", "1.2.3-beta.3": "1.2.3b3", "0.1.0-dev": "0.1.0.dev0",
		"1.2.3-x-Y.4": "1.2.3.dev0+x.y.4",
	} {
		if got := pythonVersionOf(version); got != want {
			t.Errorf("pythonVersionOf(%q) = %q, want %q", version, got, want)
		}
	}
}

func TestPythonPackagesAreReproducibleAndImport(t *testing.T) {
	t.Parallel()
	files, err := readPython("../sdk/python")
	if err != nil {
		t.Fatalf("read the Python SDK: got %v, want no error", err)
	}
	license := read(t, "../LICENSE")
	dir := t.TempDir()
	for name, make := range map[string]func([]packed, []byte, string, time.Time) (string, []byte, error){
		"junctor-1.2.3rc1-py3-none-any.whl": wheel, "junctor-1.2.3rc1.tar.gz": sdist,
	} {
		got, first, err := make(files, license, "1.2.3-rc.1", at)
		if err != nil {
			t.Fatalf("make it: got %v, want no error", err)
		}
		_, second, err := make(files, license, "1.2.3-rc.1", at.In(time.FixedZone("elsewhere", 3600)))
		if err != nil {
			t.Fatalf("make it again: got %v, want no error", err)
		}
		if got != name || !bytes.Equal(first, second) {
			t.Errorf("got %s, the same when made again: %v; want %s, true", got, bytes.Equal(first, second), name)
		}
		if err := os.WriteFile(filepath.Join(dir, name), first, 0o600); err != nil {
			t.Fatalf("write it: got %v, want no error", err)
		}
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: python3 is not here, so the wheel is not imported")
	}
	target := filepath.Join(dir, "target")
	file := filepath.Join(dir, "junctor-1.2.3rc1-py3-none-any.whl")
	where := file // Python imports from an archive too
	if exec.Command(python, "-m", "pip", "--version").Run() == nil {
		// It compares the digests of RECORD.
		install := exec.Command(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--target", target, file)
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("pip install: got %v, want no error\n%s", err, out)
		}
		where = target
	}
	cmd := exec.Command(python, "-B", "-c", "import junctor, junctor.easyremote; print(junctor.__version__)")
	cmd.Env, cmd.Dir = append(os.Environ(), "PYTHONPATH="+where), dir
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "1.2.3rc1" {
		t.Errorf("import of the wheel: got %v, %s, want 1.2.3rc1", err, out)
	}
}

func TestPythonMetadataHasTheExtras(t *testing.T) {
	t.Parallel()
	files, err := readPython("../sdk/python")
	if err != nil {
		t.Fatalf("read the Python SDK: got %v, want no error", err)
	}
	got, err := pythonMetadata(files, "1.2.3")
	if err != nil {
		t.Fatalf("its metadata: got %v, want no error", err)
	}
	for _, want := range []string{
		"Name: junctor\nVersion: 1.2.3\n", "Requires-Python: >=3.11\n", "Requires-Dist: websockets>=10.4; extra == \"node\"\n",
		"Requires-Dist: cryptography>=38; extra == \"sign\"\n", "\n\n# junctor for Python\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("metadata has no %q; it is\n%s", want, got)
		}
	}
	if _, err := withVersion(nil, "1.2.3"); err == nil {
		t.Error("withVersion without the file of the version: got success, want an error")
	}
}
