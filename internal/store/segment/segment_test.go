package segment

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/internal/core/audit"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		os.Exit(tortured(dir))
	}
	goleak.VerifyTestMain(m)
}

func openDir(t testing.TB, dir string, cfg Config) *Segments {
	t.Helper()
	s, err := Open(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func content(t testing.TB, s *Segments, id uint64, offset int64) string {
	t.Helper()
	f, err := s.Open(id, offset)
	ok(t, err)
	data, err := io.ReadAll(f)
	ok(t, errors.Join(err, f.Close()))
	return string(data)
}

func TestLinesAndHeadAreFoundAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	s := openDir(t, dir, Config{})
	if err := s.Append([]byte("early\n")); err == nil {
		t.Fatal("appended without a segment; want an error")
	}
	id, err := s.Rotate([]byte("head1\n"))
	ok(t, err)
	ok(t, s.Append([]byte("a\nb\n")))
	ok(t, s.Sync())
	next, err := s.Rotate([]byte("head2\n"))
	ok(t, err)
	ok(t, s.Append([]byte("c\n")))
	ok(t, s.SaveHead([]byte("one")))
	ok(t, s.SaveHead([]byte("two")))
	ok(t, s.Close())
	if id != 1 || next != 2 {
		t.Fatalf("ids %d and %d; want id = 1, next = 2", id, next)
	}
	for _, cfg := range []Config{{}, {ReadOnly: true}} {
		s = openDir(t, dir, cfg)
		list, err := s.List()
		ok(t, err)
		if len(list) != 2 || list[0] != (audit.SegmentInfo{ID: 1, Size: 10}) || list[1] != (audit.SegmentInfo{ID: 2, Size: 8}) {
			t.Fatalf("%+v; want len(list) = 2, list[0] = (audit.SegmentInfo{ID: 1, Size: 10}), list[1] = (audit.SegmentInfo{ID: "+
				"2, Size: 8})", list)
		}
		if got := content(t, s, 1, 6) + content(t, s, 2, 0); got != "a\nb\nhead2\nc\n" {
			t.Fatalf(`%q; want got = "a\nb\nhead2\nc\n"`, got)
		}
		if doc, err := s.LoadHead(); err != nil || string(doc) != "two" {
			t.Fatalf(`%q %v; want no error, string(doc) = "two"`, doc, err)
		}
		if s.Torn() != 0 {
			t.Fatal("torn; want s.Torn() = 0")
		}
	}
	for name, mode := range map[string]os.FileMode{".": 0o700 | os.ModeDir, "head": 0o600, "audit-00000001.jsonl": 0o600, "lock": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode() != mode {
			t.Fatalf("%s: %v %v; want no error, info.Mode() = %v", name, info.Mode(), err, mode)
		}
	}
}

func TestOnlyTheOldestSegmentIsRemoved(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir, Config{})
	for range 3 {
		_, err := s.Rotate([]byte("head\n"))
		ok(t, err)
	}
	if s.Remove(2) == nil || s.Remove(3) == nil {
		t.Fatal("removed another one; want s.Remove(2) not nil, s.Remove(3) not nil")
	}
	ok(t, s.Remove(1))
	ok(t, s.Remove(2))
	if s.Remove(3) == nil {
		t.Fatal("removed the last one; want s.Remove(3) not nil")
	}
	ok(t, s.Close())
	s = openDir(t, dir, Config{})
	if id, err := s.Rotate([]byte("head\n")); err != nil || id != 4 {
		t.Fatalf("s.Rotate([]byte(\"head\\n\")) = %v, err = %v, want err == nil && id == 4", id, err)
	}
}

func TestOnlyOneWriter(t *testing.T) {
	dir := t.TempDir()
	openDir(t, dir, Config{})
	if _, err := Open(dir, Config{}); !errors.Is(err, ErrLocked) {
		t.Fatalf("second writer: %v; want err is %v", err, ErrLocked)
	}
	reader := openDir(t, dir, Config{ReadOnly: true})
	if err := reader.Append([]byte("x\n")); err == nil {
		t.Fatal("a reader appended; want an error")
	}
	if _, err := reader.Rotate([]byte("x\n")); err == nil {
		t.Fatal("a reader rotated; want an error")
	}
}

func TestAnUnfinishedLastLineIsCutOff(t *testing.T) {
	for _, c := range []struct {
		name, last string
		list       int
		torn       int64
		want       string
	}{
		{"whole", "head2\na\n", 2, 0, "head2\na\n"},
		{"torn line", "head2\na\nbcd", 2, 3, "head2\na\n"},
		{"zeros after a power cut", "head2\na\n\x00\x00", 2, 2, "head2\na\n"},
		{"torn line longer than a block", "head2\n" + strings.Repeat("x", 70_000), 2, 70_000, "head2\n"},
		{"torn header", "hea", 1, 3, "head1\n"},
		{"empty segment", "", 1, 0, "head1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			ok(t, os.WriteFile(filepath.Join(dir, "audit-00000001.jsonl"), []byte("head1\n"), 0o600))
			ok(t, os.WriteFile(filepath.Join(dir, "audit-00000002.jsonl"), []byte(c.last), 0o600))
			ok(t, os.WriteFile(filepath.Join(dir, "audit-2.jsonl"), []byte("no segment"), 0o600))
			s := openDir(t, dir, Config{})
			list, err := s.List()
			ok(t, err)
			if len(list) != c.list || s.Torn() != c.torn {
				t.Fatalf("%+v, torn %d; want len(list) = %v, s.Torn() = %v", list, s.Torn(), c.list, c.torn)
			}
			ok(t, s.Append([]byte("next\n")))
			if got := content(t, s, uint64(c.list), 0); got != c.want+"next\n" {
				t.Fatalf(`%q; want got = c.want + "next\n"`, got)
			}
		})
	}
}

// badDisk is a file that breaks on demand.
type badDisk struct {
	file
	short    int   // write only so many bytes, once set
	failSync error // and forget the pages since the last good flush
	failCut  error
	good     int64 // length at the last good flush
	end      int64
}

var errDisk = errors.New("no space left on device")

func (d *badDisk) WriteAt(b []byte, at int64) (int, error) {
	if d.short > 0 {
		n, _ := d.file.WriteAt(b[:d.short], at)
		return n, errDisk
	}
	n, err := d.file.WriteAt(b, at)
	d.end = max(d.end, at+int64(n))
	return n, err
}

func (d *badDisk) Truncate(n int64) error {
	if d.failCut != nil {
		return d.failCut
	}
	return d.file.Truncate(n)
}

func (d *badDisk) Datasync() error {
	if d.failSync != nil {
		// What a kernel does that drops dirty pages after a failed write-back.
		_, _ = d.file.WriteAt(bytes.Repeat([]byte{0}, int(d.end-d.good)), d.good)
		return d.failSync
	}
	d.good = d.end
	return d.file.Datasync()
}

func breakable(t *testing.T, dir string) (*Segments, *badDisk) {
	t.Helper()
	disk := &badDisk{}
	s := openDir(t, dir, Config{create: func(path string) (file, error) {
		f, err := openFile(path)
		disk.file, disk.good, disk.end = f, 0, 0
		return disk, err
	}})
	_, err := s.Rotate([]byte("head\n"))
	ok(t, err)
	return s, disk
}

func TestAShortWriteLeavesNoTrace(t *testing.T) {
	for _, cut := range []error{nil, errDisk} {
		s, disk := breakable(t, t.TempDir())
		ok(t, s.Append([]byte("one\n")))
		disk.short, disk.failCut = 3, cut
		if err := s.Append([]byte("two\nthree\n")); !errors.Is(err, errDisk) {
			t.Fatalf("short write: %v; want err is %v", err, errDisk)
		}
		if err := s.Append([]byte("four\n")); err == nil {
			t.Fatal("wrote on a broken disk; want an error")
		}
		if cut != nil {
			if _, err := s.Rotate([]byte("head2\n")); err == nil {
				t.Fatal("began a segment behind half a line; want an error")
			}
		}
		disk.short, disk.failCut = 0, nil
		ok(t, s.Append([]byte("5\n")))
		ok(t, s.Sync())
		if got := content(t, s, 1, 0); got != "head\none\n5\n" {
			t.Fatalf(`%q; want got = "head\none\n5\n"`, got)
		}
	}
}

func TestBytesThatAFailedFlushMayHaveLostAreWrittenAgain(t *testing.T) {
	s, disk := breakable(t, t.TempDir())
	ok(t, s.Append([]byte("safe\n")))
	ok(t, s.Sync())
	ok(t, s.Append([]byte("lost?\n")))
	disk.failSync = errDisk
	for range 2 {
		if err := s.Sync(); !errors.Is(err, errDisk) {
			t.Fatalf("flush: %v; want err is %v", err, errDisk)
		}
	}
	ok(t, s.Append([]byte("later\n")))
	disk.failSync = nil
	ok(t, s.Sync())
	if got := content(t, s, 1, 0); got != "head\nsafe\nlost?\nlater\n" {
		t.Fatalf(`%q; want got = "head\nsafe\nlost?\nlater\n"`, got)
	}
}

func TestAFailedRotationCanBeRepeated(t *testing.T) {
	dir := t.TempDir()
	fails := 1
	s := openDir(t, dir, Config{create: func(path string) (file, error) {
		f, err := openFile(path)
		if fails--; fails == 0 {
			return &badDisk{file: f, short: 2}, err
		}
		return f, err
	}})
	if _, err := s.Rotate([]byte("head\n")); !errors.Is(err, errDisk) {
		t.Fatalf("%v; want err is %v", err, errDisk)
	}
	id, err := s.Rotate([]byte("head\n"))
	ok(t, err)
	if got := content(t, s, id, 0); id != 1 || got != "head\n" {
		t.Fatalf(`%d %q; want id = 1, got = "head\n"`, id, got)
	}
}
