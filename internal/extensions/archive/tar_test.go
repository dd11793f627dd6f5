package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/extensions/archive"
)

func tarball(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	w := tar.NewWriter(gz)
	for _, h := range headers {
		data := h.Uname // carries the content
		h.Uname, h.Size = "", int64(len(data))
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	_ = gz.Close()
	return b.Bytes()
}

func TestTarFilesFollowTheSameRules(t *testing.T) {
	t.Parallel()
	file := func(name string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Uname: "x", Mode: 0o4755}
	}
	for _, tt := range []struct {
		why, want string
		data      []byte
	}{
		{"good", "", tarball(t, tar.Header{Name: "./", Typeflag: tar.TypeDir}, tar.Header{Name: "./a/", Typeflag: tar.TypeDir}, file("./a/b"),
			file("c"))},
		{"parent", archive.ReasonViolation, tarball(t, file("../x"))},
		{"absolute", archive.ReasonViolation, tarball(t, file("/x"))},
		{"link", archive.ReasonViolation, tarball(t, tar.Header{Name: "x", Typeflag: tar.TypeSymlink, Linkname: "/etc"})},
		{"hard link", archive.ReasonViolation, tarball(t, file("a"), tar.Header{Name: "x", Typeflag: tar.TypeLink, Linkname: "a"})},
		{"device", archive.ReasonViolation, tarball(t, tar.Header{Name: "x", Typeflag: tar.TypeChar})},
		{"twice", archive.ReasonViolation, tarball(t, file("a"), file("A"))},
		{"bomb", archive.ReasonTooLarge, tarball(t, tar.Header{Name: "x", Typeflag: tar.TypeReg, Uname: strings.Repeat("\x00", 4<<20)})},
		{"not one", archive.ReasonInvalid, []byte("hello")},
		{"cut", archive.ReasonInvalid, tarball(t, file("a"))[:40]},
	} {
		dir := t.TempDir()
		inside := filepath.Join(dir, "in")
		_ = os.Mkdir(inside, 0o700)
		err := archive.UnpackTar(t.Context(), bytes.NewReader(tt.data), int64(len(tt.data)), root(t, inside))
		if reason(err) != tt.want {
			t.Errorf("%s: %v; want reason(err) = %v", tt.why, err, tt.want)
		}
		if list, _ := os.ReadDir(dir); len(list) != 1 {
			t.Errorf("%s: written outside; want len(list) = 1", tt.why)
		}
		if tt.want == "" {
			if info, err := os.Stat(filepath.Join(inside, "a", "b")); err != nil || info.Mode() != 0o755 {
				t.Errorf(`os.Stat(filepath.Join(inside, "a", "b")): err = %v, want nil; info = %+v, want info.Mode() = 0o755`, err, info)
			}
		}
	}
}

func FuzzUnpackTar(f *testing.F) {
	f.Add(tarball(f, tar.Header{Name: "a/b", Typeflag: tar.TypeReg, Uname: "x"}))
	f.Add(tarball(f, tar.Header{Name: "../x", Typeflag: tar.TypeReg, Uname: "x"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		inside := filepath.Join(dir, "in")
		_ = os.Mkdir(inside, 0o700)
		_ = archive.UnpackTar(t.Context(), bytes.NewReader(data), int64(len(data)), root(t, inside))
		if list, _ := os.ReadDir(dir); len(list) != 1 {
			t.Fatalf("written outside; got len(list) = %v; want len(list) = 1", len(list))
		}
	})
}
