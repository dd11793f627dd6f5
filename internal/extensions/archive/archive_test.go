package archive_test

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/archive"
)

type file struct {
	name string
	mode fs.FileMode
	data string
}

func pack(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate}
		if f.mode != 0 {
			h.SetMode(f.mode)
		}
		to, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.Write([]byte(f.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(data []byte) (*archive.Tree, error) {
	return archive.ReadZip(bytes.NewReader(data), int64(len(data)))
}

func root(t testing.TB, dir string) *os.Root {
	t.Helper()
	r, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

func TestHostileNamesAreRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", archive.MaxName+1)
	for _, tt := range []struct {
		why   string
		want  string
		files []file
	}{
		{"parent", archive.ReasonViolation, []file{{name: "../x"}}},
		{"parent inside", archive.ReasonViolation, []file{{name: "a/../x"}}},
		{"absolute", archive.ReasonViolation, []file{{name: "/etc/passwd"}}},
		{"drive", archive.ReasonViolation, []file{{name: "C:x"}}},
		{"backslash", archive.ReasonViolation, []file{{name: `a\b`}}},
		{"control", archive.ReasonViolation, []file{{name: "a\nb"}}},
		{"NUL", archive.ReasonViolation, []file{{name: "a\x00b"}}},
		{"not UTF-8", archive.ReasonViolation, []file{{name: "a\xffb"}}},
		{"empty component", archive.ReasonViolation, []file{{name: "a//b"}}},
		{"dot", archive.ReasonViolation, []file{{name: "./b"}}},
		{"long", archive.ReasonTooLarge, []file{{name: long}}},
		{"deep", archive.ReasonTooLarge, []file{{name: strings.Repeat("a/", archive.MaxDepth) + "b"}}},
		{"twice", archive.ReasonViolation, []file{{name: "a"}, {name: "a"}}},
		{"case", archive.ReasonViolation, []file{{name: "Readme"}, {name: "README"}}},
		{"case of a folder", archive.ReasonViolation, []file{{name: "Docs/a"}, {name: "docs/b"}}},
		{"sharp s", archive.ReasonViolation, []file{{name: "straße"}, {name: "STRASSE"}}},
		{"normal form", archive.ReasonViolation, []file{{name: "caf\u00e9"}, {name: "cafe\u0301"}}},
		{"file and folder", archive.ReasonViolation, []file{{name: "a"}, {name: "a/b"}}},
		{"folder and file", archive.ReasonViolation, []file{{name: "a/b"}, {name: "A"}}},
		{"symlink", archive.ReasonViolation, []file{{name: "a", mode: fs.ModeSymlink | 0o777, data: "/etc"}}},
		{"fifo", archive.ReasonViolation, []file{{name: "a", mode: fs.ModeNamedPipe | 0o644}}},
		{"device", archive.ReasonViolation, []file{{name: "a", mode: fs.ModeDevice | 0o644}}},
		{"folder with a link's mode", archive.ReasonViolation, []file{{name: "a/", mode: fs.ModeSymlink | 0o777}}},
		{"trailing dot", archive.ReasonViolation, []file{{name: "a./b"}}},
		{"trailing space", archive.ReasonViolation, []file{{name: "a/b "}}},
		{"leading space", archive.ReasonViolation, []file{{name: " a"}}},
		{"direction override", archive.ReasonViolation, []file{{name: "a\u202egpj.sh"}}},
		{"zero width", archive.ReasonViolation, []file{{name: "a\u200bb"}}},
		{"two dots in a name", "", []file{{name: "a..b.txt"}, {name: "..c"}, {name: "d/"}}},
	} {
		_, err := read(pack(t, tt.files...))
		if reason(err) != tt.want {
			t.Errorf("%s: %v; want reason(err) = %v", tt.why, err, tt.want)
		}
	}
}

func TestArchivesThatReadInTwoWaysAreRefused(t *testing.T) {
	t.Parallel()
	good := pack(t, file{name: "a", data: "1"}, file{name: "b", data: "2"})
	end := len(good) - 22
	change := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	for why, data := range map[string][]byte{
		"before":       append([]byte("#!/bin/sh\n"), good...),
		"after":        append(bytes.Clone(good), "more"...),
		"fewer":        change(func(b []byte) []byte { b[end+8], b[end+10] = 1, 1; return b }),
		"more":         change(func(b []byte) []byte { b[end+8], b[end+10] = 3, 3; return b }),
		"huge":         change(func(b []byte) []byte { binary.LittleEndian.PutUint16(b[end+10:], 60_000); return b }),
		"offset":       change(func(b []byte) []byte { b[end+16]++; return b }),
		"empty":        {},
		"text":         []byte("hello"),
		"local name":   change(func(b []byte) []byte { b[30] = 'c'; return b }),
		"local method": change(func(b []byte) []byte { b[8] ^= 8; return b }),
		"local offset": change(func(b []byte) []byte { b[bytes.Index(b, []byte("PK\x01\x02"))+42] = 1; return b }),
		"no name":      change(func(b []byte) []byte { return b[end:] }),
	} {
		if _, err := read(data); err == nil {
			t.Errorf("%s: read; want an error", why)
		}
	}
	if _, err := archive.ReadZip(bytes.NewReader(good), archive.MaxBytes+1); capability.CodeOf(err) != capability.CodeTooLarge {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTooLarge", err)
	}
}

func TestBytesAreCountedAsTheyComeOut(t *testing.T) {
	t.Parallel()
	bomb := pack(t, file{name: "bomb", data: strings.Repeat("\x00", 4<<20)})
	tree, err := read(bomb)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := tree.Extract(t.Context(), root(t, dir)); reason(err) != archive.ReasonTooLarge {
		t.Errorf("%v; want reason(err) = archive.ReasonTooLarge", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "bomb")); err != nil || info.Size() > 2<<20 {
		t.Errorf("%v %v; want no error, info.Size() at most 2 << 20", info, err)
	}
	// A header that understates the size changes nothing.
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	var packed bytes.Buffer
	f, _ := flate.NewWriter(&packed, 9)
	f.Write(make([]byte, 4<<20))
	f.Close()
	raw, err := w.CreateRaw(&zip.FileHeader{Name: "bomb", Method: zip.Deflate, UncompressedSize64: 10, CompressedSize64: uint64(packed.Len())})
	if err != nil {
		t.Fatal(err)
	}
	raw.Write(packed.Bytes())
	w.Close()
	if tree, err = read(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Extract(t.Context(), root(t, t.TempDir())); err == nil {
		t.Error("a lying header was believed; want an error")
	}
	if _, err := tree.ReadFile("bomb", 100); err == nil {
		t.Error("read beyond the limit; want an error")
	}
	many := make([]file, archive.MaxEntries+1)
	for i := range many {
		many[i].name = fmt.Sprintf("f%d", i)
	}
	if _, err := read(pack(t, many...)); reason(err) != archive.ReasonTooLarge {
		t.Errorf("%v; want reason(err) = archive.ReasonTooLarge", err)
	}
}

func delivery(prefix string) []file {
	return []file{
		{name: prefix + "docs/", mode: fs.ModeDir | 0o700},
		{name: prefix + "docs/USAGE.md", mode: 0o600, data: "usage"},
		{name: prefix + "manifest.json", mode: 0o644, data: "{}"},
		{name: prefix + "tools/run", mode: fs.ModeSetuid | 0o711, data: "#!"},
	}
}

func TestZipAndFolderGiveTheSameTree(t *testing.T) {
	t.Parallel()
	var hashes []string
	extract := func(tree *archive.Tree, err error) {
		t.Helper()
		if err == nil {
			tree, err = tree.Package()
		}
		if err != nil {
			t.Fatal(err)
		}
		to := root(t, t.TempDir())
		hash, err := tree.Extract(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		if err := to.MkdirAll("work/x", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := to.Symlink("/etc", "work/x/y"); err != nil {
			t.Fatal(err)
		}
		again, err := archive.TreeHash(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		info, err := to.Stat("tools/run")
		if err != nil || info.Mode() != 0o755 {
			t.Errorf("%v %v; want no error, info.Mode() = 0o755", info.Mode(), err)
		}
		hashes = append(hashes, hash, again)
	}
	extract(read(pack(t, delivery("")...)))
	extract(read(pack(t, delivery("top.folder/")...)))
	dir := t.TempDir()
	for _, f := range delivery("") {
		p := filepath.Join(dir, f.name)
		if strings.HasSuffix(f.name, "/") {
			continue
		}
		_ = os.MkdirAll(filepath.Dir(p), 0o755)
		if err := os.WriteFile(p, []byte(f.data), f.mode.Perm()); err != nil {
			t.Fatal(err)
		}
	}
	_ = os.Mkdir(filepath.Join(dir, ".git"), 0o755)
	_ = os.WriteFile(filepath.Join(dir, ".git", "head"), nil, 0o600)
	extract(archive.ReadDir(root(t, dir)))
	for _, h := range hashes {
		if h != hashes[0] || len(h) != 64 {
			t.Errorf("hashes = %q, want equal ones of 64 characters", hashes)
		}
	}
	_ = os.Symlink("/etc/passwd", filepath.Join(dir, "docs", "link"))
	if _, err := archive.ReadDir(root(t, dir)); reason(err) != archive.ReasonViolation {
		t.Errorf("%v; want reason(err) = archive.ReasonViolation", err)
	}
}

func TestPackagesHaveTheirShape(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		why   string
		want  string
		files []file
	}{
		{"program on top", archive.ReasonViolation, append(delivery(""), file{name: "handlers.PY"})},
		{"program on top of the folder", archive.ReasonViolation, append(delivery("a/"), file{name: "a/run.sh"})},
		{"program deeper", "", append(delivery("a/"), file{name: "a/scripts/run.sh"})},
		{"work", archive.ReasonViolation, append(delivery(""), file{name: "Work/x"})},
		{"two folders", archive.ReasonInvalid, append(delivery("a/"), file{name: "b/x"})},
		{"beside the folder", archive.ReasonInvalid, append(delivery("a/"), file{name: "x"})},
		{"no manifest", archive.ReasonInvalid, []file{{name: "a/b"}}},
		{"nothing", archive.ReasonInvalid, nil},
	} {
		tree, err := read(pack(t, tt.files...))
		if err == nil {
			_, err = tree.Package()
		}
		if reason(err) != tt.want {
			t.Errorf("%s: %v; want reason(err) = %v", tt.why, err, tt.want)
		}
	}
}

func TestExtractionNeverWritesOverOrGoesOnWithoutItsCaller(t *testing.T) {
	t.Parallel()
	tree, err := read(pack(t, delivery("")...))
	if err != nil {
		t.Fatal(err)
	}
	to := root(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tree.Extract(ctx, to); capability.CodeOf(err) != capability.CodeCancelled {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeCancelled", err)
	}
	if err := to.WriteFile("manifest.json", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Extract(t.Context(), to); capability.CodeOf(err) != capability.CodeFailed {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeFailed", err)
	}
	if err := tree.Unpack(t.Context(), to); err != nil {
		t.Error(err)
	}
	if _, err := tree.ReadFile("none", 1); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
	if sum, err := archive.Digest(strings.NewReader("")); err != nil || !strings.HasPrefix(sum, "e3b0c442") {
		t.Errorf(`archive.Digest(strings.NewReader("")): err = %v, want nil; sum = %q, want it to begin with "e3b0c442"`, err, sum)
	}
}

func FuzzReadZip(f *testing.F) {
	f.Add(pack(f, delivery("")...))
	f.Add(pack(f, delivery("a/")...))
	f.Add(pack(f, file{name: "../x"}, file{name: "a"}))
	f.Add([]byte("PK\x05\x06" + strings.Repeat("\x00", 18)))
	f.Fuzz(func(t *testing.T, data []byte) {
		tree, err := read(data)
		if err != nil {
			return
		}
		for _, m := range tree.Members() {
			if !fs.ValidPath(m.Path) {
				t.Fatalf("%q; want fs.ValidPath(m.Path)", m.Path)
			}
		}
		dir := t.TempDir()
		inside := filepath.Join(dir, "in")
		if err := os.Mkdir(inside, 0o700); err != nil {
			t.Fatal(err)
		}
		hash, err := tree.Extract(t.Context(), root(t, inside))
		if err == nil {
			if again, err := archive.TreeHash(t.Context(), root(t, inside)); err == nil && again != hash && !tree.Has("work") {
				for _, m := range tree.Members() {
					if strings.HasPrefix(m.Path, "work/") {
						return
					}
				}
				t.Fatalf(`%s, then %s; want not (err == nil && again != hash && !tree.Has("work"))`, hash, again)
			}
		}
		if list, _ := os.ReadDir(dir); len(list) != 1 {
			t.Fatalf("written outside; got len(list) = %v; want len(list) = 1", len(list))
		}
	})
}
