package blob_test

import (
	"database/sql"
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
	db  *sql.DB
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
		r.db = db.SQL()
		r.Store, err = blob.Open(r.dir, r.db, func() time.Time { return r.now })
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

// add stores a reference to a value of a size, without the value.
func (r *rig) add(principal, run string, size int64) {
	r.t.Helper()
	_, err := r.db.ExecContext(r.t.Context(), `INSERT INTO blob_refs (principal, run, name, digest, size, mime, kept, expires)
		VALUES (?, ?, 'a', ?, ?, 'text/plain', 0, ?)`, principal, run, strings.Repeat("0", 64), size, r.now.Add(time.Hour).UnixNano())
	if err != nil {
		r.t.Fatalf("adding a reference: got %v, want no error", err)
	}
}

// One principal cannot fill the disk, nor keep the others from storing anything.
func TestWhatOnePrincipalStoresIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	put := func(principal, run string) string {
		ref := blob.Ref{Principal: principal, Run: run, Name: "a", Expires: r.now.Add(time.Hour)}
		_, err := r.Put(t.Context(), ref, strings.NewReader("x"), 100)
		if err == nil {
			return ""
		}
		return string(capability.CodeOf(err)) + " " + capability.AsError(err).Reason
	}
	r.add("node:a", "asset:1", 1<<30)
	if got := put("node:a", "asset:2"); got != "failed storage_full" {
		t.Errorf("beyond a GiB of one principal: got %q, want failed storage_full", got)
	}
	if got := put("node:b", "asset:3"); got != "" {
		t.Errorf("another principal: got %q, want no error", got)
	}
	r.add("node:d", "asset:7", 1<<30-1)
	ref := blob.Ref{Principal: "node:d", Run: "asset:8", Name: "a", Expires: r.now.Add(time.Hour)}
	if _, err := r.Put(t.Context(), ref, strings.NewReader("xx"), 100); err == nil || capability.AsError(err).Reason != blob.ReasonFull {
		t.Errorf("a value that passes the GiB: got %v, want reason %s", err, blob.ReasonFull)
	}
	if list, err := r.List(t.Context(), "asset:8"); err != nil || len(list) != 0 {
		t.Errorf("a value that passes the GiB: got %d references and %v, want none", len(list), err)
	}
	if got := put("node:d", "asset:8"); got != "" {
		t.Errorf("a value that fills the GiB: got %q, want no error", got)
	}
	if got := put("", "asset:6"); got != "" {
		t.Errorf("a value without an owner: got %q, want no error", got)
	}
	r.now = r.now.Add(2 * time.Hour)
	if got := put("node:a", "asset:2"); got != "" {
		t.Errorf("after the first have expired: got %q, want no error", got)
	}
	r.add("node:c", "asset:4", 2*blob.MaxTotal)
	if got := put("node:b", "asset:5"); got != "failed storage_full" {
		t.Errorf("beyond the bound for all: got %q, want failed storage_full", got)
	}
	if err := r.Sweep(t.Context()); err != nil {
		t.Fatalf("sweep: got %v, want no error", err)
	}
	if got := put("node:b", "asset:5"); got != "" {
		t.Errorf("after the oldest were dropped: got %q, want no error", got)
	}
}

// TestTheLargestOwnerLosesFirst holds that an owner with little keeps it, however old, when another has too much.
func TestTheLargestOwnerLosesFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add("ann", "ann1", 1<<20)
	r.add("bob", "bob1", 1<<30)
	for _, run := range []string{"flood1", "flood2", "flood3", "flood4"} {
		r.add("node:flood", run, 1<<30)
	}
	r.add("ann", "ann2", 1<<20)
	if err := r.Sweep(t.Context()); err != nil {
		t.Fatalf("Sweep: got %v, want no error", err)
	}
	for run, want := range map[string]int{"ann1": 1, "ann2": 1, "bob1": 1, "flood1": 0, "flood2": 0, "flood3": 1, "flood4": 1} {
		if list, err := r.List(t.Context(), run); err != nil || len(list) != want {
			t.Errorf("%s after the sweep: %d references, %v; want %d", run, len(list), err, want)
		}
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
