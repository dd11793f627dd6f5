// Package segment stores the lines of the audit log in files. It implements Segments and
// Mirror of internal/core/audit and does not interpret the lines.
//
// A directory contains audit-00000001.jsonl and its successors, of which only the last
// grows, the file head, and the file lock, which prevents a second writer. Whole lines are
// appended with one positioned write. Three failures are handled:
//
//   - A write is incomplete: the file is cut to the last good offset, at once or before the
//     next write.
//   - The process ends during a write: [Open] cuts off an unfinished last line.
//   - A flush fails: the kernel may have dropped the pages and marked them clean, so that
//     another flush would succeed without writing them. Therefore the bytes since the last
//     good flush stay in memory and are written again before the next one.
//
// The copies under logs/ are [Mirror].
package segment

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/junctor-run/junctor/internal/core/audit"
)

const (
	prefix   = "audit-"
	suffix   = ".jsonl"
	dirMode  = 0o700
	fileMode = 0o600
)

// ErrLocked is the error of Open if another process writes the directory.
var ErrLocked = errors.New("another process writes this audit log")

// ErrMoved is the error of Append, Sync and Rotate while the name of the last segment is not that of
// the file they write: it was deleted, moved or replaced. They work again once it is put back.
var ErrMoved = errors.New("the file of the audit log was deleted, moved or replaced: put it back, or restart the server, " +
	"which records the gap")

// Config configures a directory of segments. The zero value opens it for writing.
type Config struct {
	// ReadOnly acquires no lock, changes nothing and rejects appends, so that a log can be
	// verified while another process writes it.
	ReadOnly bool
	create   func(path string) (file, error) // for tests that break the disk
}

// file is the part of *os.File used for appending.
type file interface {
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Datasync() error
	// IsAt reports whether path is a name of this file, and not of a link to it.
	IsAt(path string) bool
}

type osFile struct{ *os.File }

func (f osFile) Datasync() error { return datasync(f.File) }

// IsAt implements file.
func (f osFile) IsAt(path string) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(path)
	return err == nil && os.SameFile(own, named)
}

func openFile(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Segments is one directory. It implements [audit.Segments].
type Segments struct {
	dir  string
	cfg  Config
	lock *os.File
	torn int64

	// flush serializes flushes and rotations and is held across their I/O. It is acquired
	// before mu.
	flush    sync.Mutex
	inflight []byte // bytes from synced on that the current flush covers
	rewrite  bool   // the last flush failed

	// mu guards the fields below and is never held across I/O.
	mu     sync.Mutex
	list   []audit.SegmentInfo // the last one's size is up to date
	out    file                // nil without a segment
	synced int64               // offset in the last segment
	fresh  []byte              // appended since the last flush began
	ragged bool                // the file may be longer than it should
}

var _ audit.Segments = (*Segments)(nil)

// Open opens a directory of segments. Unless ReadOnly is set, it creates and locks the directory and
// cuts off an unfinished last line. The error is [ErrLocked] if another process has the lock.
func Open(dir string, cfg Config) (*Segments, error) {
	if cfg.create == nil {
		cfg.create = openFile
	}
	s := &Segments{dir: dir, cfg: cfg}
	if cfg.ReadOnly {
		_, err := s.List()
		return s, err
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open audit segments: %w", err), s.Close())
	}
	return s, nil
}

func (s *Segments) open() error {
	if err := os.MkdirAll(s.dir, dirMode); err != nil {
		return err
	}
	var err error
	if s.lock, err = lockFile(filepath.Join(s.dir, "lock")); err != nil {
		return err
	}
	if s.list, err = s.scan(); err != nil {
		return err
	}
	for len(s.list) > 0 {
		last := &s.list[len(s.list)-1]
		path := s.path(last.ID)
		whole, err := wholeLines(path, last.Size)
		if err != nil {
			return err
		}
		s.torn += last.Size - whole
		if whole == 0 { // the segment has no complete header
			if err := os.Remove(path); err != nil {
				return err
			}
			s.list = s.list[:len(s.list)-1]
			continue
		}
		if s.out, err = s.cfg.create(path); err != nil {
			return err
		}
		if whole < last.Size {
			if err := s.out.Truncate(whole); err != nil {
				return err
			}
		}
		// Unflushed data of the previous process must be durable before more is appended.
		if err := s.out.Datasync(); err != nil {
			return err
		}
		last.Size, s.synced = whole, whole
		break
	}
	return nil
}

// Torn returns the number of bytes of unfinished lines that Open cut off.
func (s *Segments) Torn() int64 { return s.torn }

// List returns the segments, oldest first. If another process writes them, the last size may be in
// the middle of a line.
func (s *Segments) List() ([]audit.SegmentInfo, error) {
	if s.cfg.ReadOnly {
		return s.scan()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list), nil
}

// Open opens a segment at an offset. The caller closes it.
func (s *Segments) Open(id uint64, offset int64) (io.ReadCloser, error) {
	f, err := os.Open(s.path(id))
	if err != nil {
		return nil, err
	}
	if offset > 0 {
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

var errNoSegment = errors.New("no segment has been begun")

// Append adds whole lines to the last segment, all or none. It must not be called concurrently.
func (s *Segments) Append(lines []byte) error {
	s.mu.Lock()
	out, ragged, full := s.out, s.ragged, len(s.fresh) > maxUnsynced
	var at int64
	if n := len(s.list); n > 0 {
		at = s.list[n-1].Size
	}
	s.mu.Unlock()
	if out == nil || s.cfg.ReadOnly {
		return errNoSegment
	}
	if err := s.inPlace(); err != nil {
		return err
	}
	if ragged {
		if err := out.Truncate(at); err != nil {
			return fmt.Errorf("cut off a half-written line: %w", err)
		}
		s.setRagged(false)
	}
	if full {
		if err := s.Sync(); err != nil {
			return err
		}
	}
	n, err := out.WriteAt(lines, at)
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	if err != nil {
		if terr := out.Truncate(at); terr != nil {
			s.setRagged(true)
		}
		return fmt.Errorf("write the audit log: %w", err)
	}
	s.mu.Lock()
	s.list[len(s.list)-1].Size += int64(n)
	s.fresh = append(s.fresh, lines...)
	s.mu.Unlock()
	return nil
}

func (s *Segments) setRagged(v bool) {
	s.mu.Lock()
	s.ragged = v
	s.mu.Unlock()
}

// Sync returns when everything appended before the call is on the disk.
func (s *Segments) Sync() error {
	s.flush.Lock()
	defer s.flush.Unlock()
	return s.sync()
}

// inPlace returns ErrMoved if the last segment is no longer found by its name, where readers and the
// next server look for it.
func (s *Segments) inPlace() error {
	s.mu.Lock()
	out, id := s.out, uint64(0)
	if n := len(s.list); n > 0 {
		id = s.list[n-1].ID
	}
	s.mu.Unlock()
	if out != nil && id != 0 && !out.IsAt(s.path(id)) {
		return ErrMoved
	}
	return nil
}

// sync does the work of Sync; the caller holds flush.
func (s *Segments) sync() error {
	if err := s.inPlace(); err != nil {
		return err
	}
	s.mu.Lock()
	out, at := s.out, s.synced
	if s.rewrite {
		s.inflight = append(s.inflight, s.fresh...)
		s.fresh = s.fresh[:0]
	} else {
		s.inflight, s.fresh = s.fresh, s.inflight[:0]
	}
	s.mu.Unlock()
	if out == nil || len(s.inflight) == 0 {
		return nil
	}
	if s.rewrite {
		if n, err := out.WriteAt(s.inflight, at); err != nil || n < len(s.inflight) {
			return fmt.Errorf("write the audit log again: %w", errors.Join(err, io.ErrShortWrite))
		}
	}
	if err := out.Datasync(); err != nil {
		s.rewrite = true
		return fmt.Errorf("flush the audit log: %w", err)
	}
	s.mu.Lock()
	s.synced = at + int64(len(s.inflight))
	s.mu.Unlock()
	s.rewrite = false
	// Under a steady load the buffer keeps its size, because otherwise it would grow again
	// ten times a second; after a burst it is released.
	used := len(s.inflight)
	if s.inflight = s.inflight[:0]; cap(s.inflight) > 1<<20 && used < cap(s.inflight)/4 {
		s.inflight = nil
	}
	return nil
}

// Rotate flushes the last segment and begins the next with header, which must
// end in a newline. When it returns, header and the name are on the disk.
func (s *Segments) Rotate(header []byte) (uint64, error) {
	if s.cfg.ReadOnly {
		return 0, errNoSegment
	}
	s.flush.Lock()
	defer s.flush.Unlock()
	if err := s.sync(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	old, ragged, id := s.out, s.ragged, uint64(1)
	var size int64
	if n := len(s.list); n > 0 {
		id, size = s.list[n-1].ID+1, s.list[n-1].Size
	}
	s.mu.Unlock()
	if old != nil && ragged {
		if err := old.Truncate(size); err != nil {
			return 0, fmt.Errorf("cut off a half-written line: %w", err)
		}
		s.setRagged(false)
	}
	out, err := s.begin(s.path(id), header)
	if err != nil {
		return 0, fmt.Errorf("begin segment %d: %w", id, err)
	}
	s.mu.Lock()
	s.out = out
	s.list = append(s.list, audit.SegmentInfo{ID: id, Size: int64(len(header))})
	s.synced = int64(len(header))
	s.mu.Unlock()
	if old != nil {
		_ = old.Close() // all of it is flushed
	}
	return id, nil
}

// begin creates a segment with its header and makes both durable.
func (s *Segments) begin(path string, header []byte) (file, error) {
	out, err := s.cfg.create(path)
	if err != nil {
		return nil, err
	}
	var n int
	if err = out.Truncate(0); err == nil { // a failed attempt may have left a file
		n, err = out.WriteAt(header, 0)
	}
	if err == nil && n < len(header) {
		err = io.ErrShortWrite
	}
	if err == nil {
		err = out.Datasync()
	}
	if err == nil {
		err = syncDir(s.dir)
	}
	if err != nil {
		return nil, errors.Join(err, out.Close(), os.Remove(path))
	}
	return out, nil
}

// Close closes the files and releases the lock without flushing.
func (s *Segments) Close() error {
	s.flush.Lock()
	defer s.flush.Unlock()
	s.mu.Lock()
	out, lock := s.out, s.lock
	s.out, s.lock = nil, nil
	s.mu.Unlock()
	var errs []error
	if out != nil {
		errs = append(errs, out.Close())
	}
	if lock != nil {
		errs = append(errs, lock.Close())
	}
	return errors.Join(errs...)
}
