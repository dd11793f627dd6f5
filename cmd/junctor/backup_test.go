package main

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAKillLeavesNothingHalf kills backup and restore while they write: neither
// a partial file nor a partial home is left, and the next run succeeds.
func TestAKillLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	home, file, second := filepath.Join(dir, "home"), filepath.Join(dir, "out", "b.tar.gz"), filepath.Join(dir, "out", "second")
	server := start(t, "--home", home, "serve", "--listen", "127.0.0.1:0")
	until(t, server.stdout, "{")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 64<<20) // takes its time
	_, _ = rand.Read(noise)
	if err := os.WriteFile(filepath.Join(home, "blobs", "large"), noise, 0o600); err != nil {
		t.Fatal(err)
	}
	killed := func(begun string, args ...string) {
		t.Helper()
		p := start(t, args...)
		for deadline := time.Now().Add(time.Minute); ; {
			if _, err := os.Stat(begun); err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s does not begin; want not time.Now().After(deadline)", strings.Join(args, " "))
			}
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait()
	}
	missing := func(path string) {
		t.Helper()
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there (%v); want err is fs.ErrNotExist", path, err)
		}
	}
	run := func(args ...string) {
		t.Helper()
		if p := start(t, args...); p.Wait() != nil {
			t.Fatalf("%s failed; want p.Wait() = nil", strings.Join(args, " "))
		}
	}
	part := filepath.Join(filepath.Dir(file), ".junctor-backup.part")
	killed(filepath.Join(part, "archive"), "--home", home, "backup", file)
	missing(file)
	run("--home", home, "backup", file)
	missing(part)

	killed(filepath.Join(second+".part", "home", "blobs"), "--home", second, "restore", file)
	missing(second)
	run("--home", second, "restore", file)
	missing(second + ".part")
	run("--home", second, "audit", "verify")
	if data, err := os.ReadFile(filepath.Join(second, "blobs", "large")); err != nil || string(data) != string(noise) {
		t.Errorf("the large file: %d bytes, %v; want no error, string(data) = %v", len(data), err, string(noise))
	}
}
