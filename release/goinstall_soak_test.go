//go:build soak

package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSoakGoInstall installs the committed sources as a version of the module, as go install does it
// for a stranger: from a module proxy, into a module cache of its own.
func TestSoakGoInstall(t *testing.T) {
	const module, version = "github.com/junctor-run/junctor", "v0.1.0"
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatalf("finding the repository: %v", err)
	}
	run := func(env []string, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), env...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, errs.Bytes())
		}
		return string(out)
	}
	files := strings.Split(strings.TrimSuffix(run(nil, "git", "ls-files", "-z"), "\x00"), "\x00")
	var nested []string // folders of other modules, which are not part of this one
	for _, f := range files {
		if dir, ok := strings.CutSuffix(f, "/go.mod"); ok {
			nested = append(nested, dir+"/")
		}
	}
	proxy := t.TempDir()
	at := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatalf("making the proxy: %v", err)
	}
	var sources bytes.Buffer
	z := zip.NewWriter(&sources)
	for _, f := range files {
		inside := true
		for _, dir := range nested {
			inside = inside && !strings.HasPrefix(f, dir)
		}
		info, err := os.Lstat(filepath.Join(root, f))
		if err != nil {
			t.Fatalf("reading %s: %v", f, err)
		}
		if !inside || !info.Mode().IsRegular() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatalf("reading %s: %v", f, err)
		}
		w, err := z.Create(module + "@" + version + "/" + f)
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			t.Fatalf("packing %s: %v", f, err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatalf("packing the module: %v", err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatalf("reading go.mod: %v", err)
	}
	for name, data := range map[string][]byte{
		version + ".zip": sources.Bytes(), version + ".mod": mod, version + ".info": fmt.Appendf(nil, `{"Version":%q}`, version),
		"list": []byte(version + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(at, name), data, 0o600); err != nil {
			t.Fatalf("writing %s: %v", name, err)
		}
	}
	bin := t.TempDir()
	downloads := filepath.Join(strings.TrimSpace(run(nil, "go", "env", "GOMODCACHE")), "cache", "download")
	run([]string{
		"GOPROXY=file://" + filepath.ToSlash(proxy) + ",file://" + filepath.ToSlash(downloads), "GOSUMDB=off", "GOFLAGS=-modcacherw -trimpath",
		"GOMODCACHE=" + t.TempDir(), "GOBIN=" + bin, "CGO_ENABLED=0",
	}, "go", "install", module+"/cmd/junctor@"+version)
	if got, want := run(nil, filepath.Join(bin, "junctor"), "version"), strings.TrimPrefix(version, "v"); !strings.Contains(got, want) {
		t.Errorf("junctor version: got %q, want it to name %s", got, want)
	}
}
