package segment

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/core/audit"
)

func openLogs(t testing.TB, dir string, cfg MirrorConfig) *Mirror {
	t.Helper()
	m, err := OpenMirror(dir, cfg)
	ok(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func read(t testing.TB, path string) string {
	t.Helper()
	f, err := os.Open(path)
	ok(t, err)
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		r, err = gzip.NewReader(f)
		ok(t, err)
	}
	data, err := io.ReadAll(r)
	ok(t, err)
	return string(data)
}

func TestRotationOfTheCopiesLosesAndSplitsNoLine(t *testing.T) {
	dir := t.TempDir()
	m := openLogs(t, dir, MirrorConfig{MaxBytes: 100, Keep: 4})
	var all strings.Builder
	for i := range 12 { // 12 appends of 3 lines of 10 bytes: 360 bytes
		var chunk strings.Builder
		for j := range 3 {
			fmt.Fprintf(&chunk, "line %03d.\n", 3*i+j)
		}
		all.WriteString(chunk.String())
		ok(t, m.Append(audit.MirrorCapabilities, []byte(chunk.String())))
	}
	ok(t, m.Close())
	var got strings.Builder
	for _, name := range []string{".3.gz", ".2.gz", ".1", ""} {
		part := read(t, filepath.Join(dir, "capabilities.log"+name))
		if len(part) > 100 || !strings.HasSuffix(part, "\n") {
			t.Fatalf(`%s has %d bytes; want len(part) at most 100, part ending with "\n"`, name, len(part))
		}
		got.WriteString(part)
	}
	if got.String() != all.String() {
		t.Fatalf("%q; want got.String() = all.String()", got.String())
	}
	m = openLogs(t, dir, MirrorConfig{MaxBytes: 100, Keep: 2})
	for range 50 {
		ok(t, m.Append(audit.MirrorCapabilities, []byte(strings.Repeat("x", 150)+"\n")))
	}
	ok(t, m.Close())
	names, err := filepath.Glob(filepath.Join(dir, "capabilities.log*"))
	ok(t, err)
	for _, n := range names {
		if strings.HasSuffix(n, ".tmp") {
			t.Fatalf(`left %v; want n not ending with ".tmp"`, n)
		}
	}
	if got := read(t, filepath.Join(dir, "capabilities.log.2.gz")); len(got) != 151 {
		t.Fatalf("%d bytes; want len(got) = 151", len(got))
	}
}

func TestTheLastLineOfACopy(t *testing.T) {
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "security.log"), []byte("one\ntwo\nthr"), 0o600))
	m := openLogs(t, dir, MirrorConfig{MaxBytes: 10})
	last := func(want string) {
		t.Helper()
		got, err := m.LastLine(audit.MirrorSecurity)
		ok(t, err)
		if string(got) != want {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	last("two\n")
	ok(t, m.Append(audit.MirrorSecurity, []byte("3\n")))
	last("3\n")
	ok(t, m.rotate(&m.logs[1]))
	last("3\n") // of the file before
	if got, err := m.LastLine(audit.MirrorCapabilities); err != nil || got != nil {
		t.Fatalf("%q %v; want no error, got = nil", got, err)
	}
}
