package blob_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/blob"
)

type rig struct {
	*blob.Store
	t   *testing.T
	dir string
	now time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), now: time.Now()}
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err = blob.Tables().Migrate(t.Context(), db); err == nil {
		r.Store, err = blob.Open(r.dir, db.SQL(), func() time.Time { return r.now })
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), db.Close() })
	return r
}

func (r *rig) put(run, name, text string) blob.Ref {
	r.t.Helper()
	ref, err := r.Put(r.t.Context(), blob.Ref{
		Principal: "admin:a", Run: run, Name: name, MIME: "text/plain",
		Expires: r.now.Add(24 * time.Hour),
	}, strings.NewReader(text), 100)
	if err != nil {
		r.t.Fatal(err)
	}
	return ref
}

func (r *rig) files() int {
	r.t.Helper()
	list, err := os.ReadDir(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(list)
}

func TestWhatIsKeptComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ref := r.put("run_1", "a.txt", "hello")
	if ref.Size != 5 || ref.SHA256 != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" {
		t.Errorf(`%+v; want ref.Size = 5, ref.SHA256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"`, ref)
	}
	r.put("run_1", "b.txt", "hello") // one file, two references
	list, err := r.List(t.Context(), "run_1")
	if err != nil || len(list) != 2 || list[0].Name != "a.txt" || list[0].Principal != "admin:a" || r.files() != 1 {
		t.Errorf(`%+v %v, %d files; want no error, len(list) = 2, list[0].Name = "a.txt", list[0].Principal = "admin:a", r.files() = 1`,
			list, err, r.files())
	}
	f, err := r.Read(list[1])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if data, err := io.ReadAll(f); err != nil || string(data) != "hello" {
		t.Errorf(`%q %v; want no error, string(data) = "hello"`, data, err)
	}
	r.put("run_1", "a.txt", "other")
	if list, err := r.List(t.Context(), "run_1"); err != nil || len(list) != 2 || list[0].Size != 5 || list[0].SHA256 == ref.SHA256 {
		t.Errorf("%+v %v; want no error, len(list) = 2, list[0].Size = 5, list[0].SHA256 other than %v", list, err, ref.SHA256)
	}
}

func TestTooMuchLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := r.Put(t.Context(), blob.Ref{Run: "run_1", Name: "a", Expires: r.now.Add(time.Hour)},
		strings.NewReader(strings.Repeat("x", 101)), 100)
	if list, _ := r.List(t.Context(), "run_1"); capability.CodeOf(err) != capability.CodeTooLarge || len(list) != 0 || r.files() != 0 {
		t.Errorf("%v %v %d; want capability.CodeOf(err) = capability.CodeTooLarge, len(list) = 0, r.files() = 0", err, list, r.files())
	}
}

func TestWhatNobodyRefersToGoes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.put("run_1", "a", "one")
	r.now = r.now.Add(23 * time.Hour)
	r.put("run_2", "a", "two")
	if err := r.Sweep(t.Context()); err != nil || r.files() != 2 {
		t.Errorf("%v, %d files; want no error, r.files() = 2", err, r.files())
	}
	r.now = r.now.Add(2 * time.Hour)
	if list, err := r.List(t.Context(), "run_1"); err != nil || len(list) != 0 {
		t.Errorf("%+v %v; want no error, len(list) = 0", list, err)
	}
	if err := r.Sweep(t.Context()); err != nil || r.files() != 1 {
		t.Errorf("%v, %d files; want no error, r.files() = 1", err, r.files())
	}
	list, err := r.List(t.Context(), "run_2")
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v %v; want no error, len(list) = 1", list, err)
	}
	if _, err := r.Read(blob.Ref{SHA256: "../../etc/passwd"}); err == nil {
		t.Error("a path was read; want an error")
	}
	if _, err := r.Read(blob.Ref{SHA256: strings.Repeat("0", 64)}); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
}
