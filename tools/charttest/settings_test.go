package charttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// repository is the path from this package to the root of the repository.
var repository = filepath.Join("..", "..")

var shared string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "junctor-charttest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shared = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// program builds junctor once and returns its path.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(shared, "junctor")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, "./cmd/junctor")
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w: %s", err, out)
	}
	return path, nil
})

// checkEnvironment holds that each variable of junctor is one of the documentation, and that
// the program accepts the values of all of them together.
func checkEnvironment(t *testing.T, where string, env map[string]string) {
	t.Helper()
	documented := string(read(t, "docs/configuration.md"))
	home := t.TempDir()
	environ := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	for name, value := range env {
		if !strings.HasPrefix(name, "JUNCTOR_") {
			t.Errorf("%s sets %s, want variables of junctor only", where, name)
		}
		if !regexp.MustCompile("`" + regexp.QuoteMeta(name) + "`").MatchString(documented) {
			t.Errorf("%s sets %s, which docs/configuration.md does not have; want variables that it has", where, name)
		}
		if name != "JUNCTOR_HOME" {
			environ = append(environ, name+"="+value)
		}
	}
	binary, err := program()
	if err != nil {
		t.Fatalf("program() = %v, want no error", err)
	}
	cmd := exec.Command(binary, "config", "check", "--home", home)
	cmd.Env = environ
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: config check: %v: %s; want the environment %v accepted", where, err, out, environ)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(name)))
	if err != nil {
		t.Fatalf("read %s: %v; want no error", name, err)
	}
	return data
}

// currentVersion returns the version that the Makefile builds, without its suffix.
func currentVersion(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^VERSION .*,(\d+\.\d+\.\d+)[^)]*\)$`).FindSubmatch(read(t, "Makefile"))
	if m == nil {
		t.Fatalf("the Makefile has no version, want one")
	}
	return string(m[1])
}
