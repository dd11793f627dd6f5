package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// commitTime is the time of the commit in tests.
var commitTime = time.Date(2026, 3, 4, 5, 6, 8, 0, time.UTC)

// built builds the program once and returns its folder. It is built as other tests build it,
// so that they share the compiler's cache.
var built = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(shared, "linux_"+runtime.GOARCH)
	cmd := exec.Command("go", "build", "-buildvcs=false",
		"-ldflags", "-s -w -X main.buildVersion=1.2.3 -X main.buildCommit=0123456789ab", "-o", filepath.Join(dir, "junctor"), "./cmd/junctor")
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w: %s", err, out)
	}
	return shared, os.WriteFile(filepath.Join(dir, "THIRD-PARTY-LICENSES.txt"), []byte("licences of others\n"), 0o600)
})

var shared string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "junctor-release-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	shared = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// newProduct returns a release of the real program for this machine.
func newProduct(t *testing.T) product {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the packages are for Linux")
	}
	binaries, err := built()
	if err != nil {
		t.Fatalf("built() = %v, want no error", err)
	}
	return product{
		version: "1.2.3", at: commitTime, source: filepath.Join("..", ".."), binaries: binaries, out: t.TempDir(),
	}
}

// fakeProduct returns a release of small files that stand for the binaries of both
// architectures.
func fakeProduct(t *testing.T) product {
	t.Helper()
	p := product{version: "1.2.3-rc.1", at: commitTime, source: filepath.Join("..", ".."), binaries: t.TempDir(), out: t.TempDir()}
	for _, arch := range []string{"amd64", "arm64"} {
		write(t, p.binary(arch), "#!/bin/sh\necho script \"$2\" of junctor\n", 0o755)
		write(t, filepath.Join(filepath.Dir(p.binary(arch)), "THIRD-PARTY-LICENSES.txt"), "licences of others\n", 0o644)
	}
	return p
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatalf("create the folder of %s: %v; want no error", path, err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatalf("write %s: %v; want no error", path, err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read %s: %v; want no error", path, err)
	}
	return data
}

// output runs a program that must succeed and returns what it printed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s%s; want no error", name, strings.Join(args, " "), err, out, failure.String())
	}
	return string(out)
}

// TestTwoReleasesAreByteIdentical makes everything twice, and with the files of the second
// in another folder, of another age.
func TestTwoReleasesAreByteIdentical(t *testing.T) {
	t.Parallel()
	first, err := fakeProduct(t).make(context.Background())
	if err != nil {
		t.Fatalf("make() = %v, want no error", err)
	}
	p := fakeProduct(t)
	past := time.Now().Add(-48 * time.Hour)
	for _, arch := range p.archs() {
		if err := os.Chtimes(p.binary(arch), past, past); err != nil {
			t.Fatalf("Chtimes(%s) = %v, want no error", p.binary(arch), err)
		}
	}
	second, err := p.make(context.Background())
	if err != nil {
		t.Fatalf("make(again) = %v, want no error", err)
	}
	if len(first) != len(second) || len(first) < 4 {
		t.Errorf("made %d and %d files, want the same number, at least 4", len(first), len(second))
	}
	for name, data := range first {
		if !bytes.Equal(data, second[name]) {
			t.Errorf("%s differs when made again: %d bytes, want the same %d", name, len(second[name]), len(data))
		}
	}
}

func TestReleaseAddsItsChecksums(t *testing.T) {
	t.Parallel()
	p := fakeProduct(t)
	write(t, filepath.Join(p.out, "install.sh"), "x", 0o644)
	write(t, filepath.Join(p.out, sumsName), "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881  install.sh\n", 0o644)
	if err := run(context.Background(), p, nil); err != nil {
		t.Fatalf("run() = %v, want no error", err)
	}
	cmd := exec.Command("sha256sum", "--check", "--strict", sumsName)
	cmd.Dir = p.out
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "install.sh: OK") || !strings.Contains(string(out), "_linux_arm64.rpm: OK") {
		t.Errorf("sha256sum: %v: %s; want every file to match, old and new", err, out)
	}
}

func TestReleaseWithoutLinuxMakesNothing(t *testing.T) {
	t.Parallel()
	made, err := product{version: "1.2.3", source: "../..", binaries: t.TempDir(), out: t.TempDir()}.make(context.Background())
	if err != nil || len(made) != 0 {
		t.Errorf("make() = %d files, %v; want none and no error", len(made), err)
	}
}
