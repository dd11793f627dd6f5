package verbs

// The file swarm-history.jsonl lists the recent work of task agents, one JSON object a line.
// It gives lessons to new agents and remembers the last repository. The task registry remains
// the source of truth.
//
// The file belongs to the home, so one process writes it, and its writes are serialised. A
// line is appended with one write. A process that dies in a write leaves a torn last line,
// which is cut off when the file is opened again. A malformed line is skipped and disappears
// with the next rotation. Rotation writes a new file and renames it over the old one, so
// that there is always a complete file.

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// Bounds of the file. Beyond MaxEntries or MaxBytes the newest Kept entries stay, or fewer if
// they have more than half of MaxBytes.
const (
	MaxEntries = 150
	Kept       = 100
	MaxBytes   = 1 << 20
	// MaxText is the maximal number of bytes of each text of an entry.
	MaxText = 4 << 10
)

// Bounds of [File.Lessons].
const (
	MaxLessons = 8
	LessonTTL  = 48 * time.Hour
)

// Type is the type of an entry.
type Type string

// The types.
const (
	Registered  Type = "task_registered"
	Completed   Type = "task_completed"
	Stopped     Type = "task_stopped"
	Failed      Type = "task_error"
	KeyDecision Type = "key_decision"
)

// Valid reports whether t is a type.
func (t Type) Valid() bool {
	return slices.Contains([]Type{Registered, Completed, Stopped, Failed, KeyDecision}, t)
}

// Entry is one line of the file. Timestamp is in milliseconds since 1970.
type Entry struct {
	Timestamp         int64  `json:"timestamp"`
	Type              Type   `json:"type"`
	SessionID         string `json:"sessionId"`
	Label             string `json:"label"`
	AgentType         string `json:"agentType"`
	Repo              string `json:"repo,omitzero"`
	Workdir           string `json:"workdir"`
	OriginalTask      string `json:"originalTask,omitzero"`
	CompletionSummary string `json:"completionSummary,omitzero"`
	Reasoning         string `json:"reasoning,omitzero"`
}

// File is an open history. It is safe for concurrent use and need not be closed.
type File struct {
	path string
	now  func() time.Time

	mu      sync.Mutex
	entries []Entry // entries of the file, the oldest first
	size    int64
	broken  bool // the last write may have left half a line
}

// Open reads and repairs the file if it exists. Its folder must exist.
func Open(path string, now func() time.Time) (*File, error) {
	f := &File{path: path, now: now}
	if err := f.load(); err != nil {
		return nil, cannot("read", err)
	}
	return f, nil
}

func cannot(what string, err error) error {
	return capability.Wrap(capability.CodeFailed, "history", "the history of task agents cannot be "+what, err).
		With("history_unusable", "look at swarm-history.jsonl in the home; it may be removed")
}

// load reads the file, truncates an incomplete last line, and rotates a file over its bounds.
// A missing file is an empty history.
func (f *File) load() error {
	file, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	// Only the end of a longer file of another program is read.
	data := make([]byte, min(info.Size(), 2*MaxBytes))
	if _, err := file.ReadAt(data, info.Size()-int64(len(data))); err != nil {
		return err
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	f.size = info.Size() - int64(len(data)-whole)
	if whole < len(data) {
		if err := file.Truncate(f.size); err != nil {
			return err
		}
	}
	f.entries = parse(data[:whole])
	if f.size > MaxBytes || len(f.entries) > MaxEntries {
		return f.rotate()
	}
	return nil
}

// parse returns the entries of the lines and skips malformed lines.
func parse(data []byte) (entries []Entry) {
	for line := range bytes.Lines(data) {
		var e Entry
		if jsonx.Unmarshal(bytes.TrimSpace(line), &e) == nil && e.Type.Valid() && e.Timestamp > 0 {
			entries = append(entries, e)
		}
	}
	return entries
}

// Append writes an entry with its texts cut to MaxText; a zero Timestamp becomes now. The file
// is written but not synced when Append returns. Errors: invalid_input, reason invalid_entry;
// failed, reason history_unusable.
func (f *File) Append(e Entry) error {
	if !e.Type.Valid() {
		return capability.Errorf(capability.CodeInvalidInput, "history", "the history has no entries of type %.40q",
			e.Type).With("invalid_entry", "")
	}
	if e.Timestamp <= 0 {
		e.Timestamp = f.now().UnixMilli()
	}
	for _, s := range []*string{
		&e.SessionID, &e.Label, &e.AgentType, &e.Repo, &e.Workdir, &e.OriginalTask, &e.CompletionSummary,
		&e.Reasoning,
	} {
		*s = text.ValidBytes(*s, MaxText)
	}
	line, err := jsonx.Marshal(e)
	if err != nil {
		return cannot("written", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entries = append(f.entries, e)
	if f.broken || len(f.entries) > MaxEntries || f.size+int64(len(line))+1 > MaxBytes {
		err = f.rotate()
	} else {
		err = f.append(append(line, '\n'))
	}
	if err != nil {
		f.entries = f.entries[:len(f.entries)-1]
		return cannot("written", err)
	}
	return nil
}

// append writes one line. A failed write marks the file broken, so that the next one rotates.
func (f *File) append(line []byte) error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(line)
	err = errors.Join(err, file.Close())
	f.broken = err != nil
	if err == nil {
		f.size += int64(len(line))
	}
	return err
}

// rotate writes the newest entries to a new file that replaces the old one.
func (f *File) rotate() error {
	entries := f.entries[max(0, len(f.entries)-Kept):]
	if len(f.entries) <= MaxEntries && f.size <= MaxBytes {
		entries = f.entries // the file is only repaired
	}
	var data []byte
	from := len(entries)
	for from > 0 {
		line, err := jsonx.Marshal(entries[from-1])
		if err != nil {
			return err
		}
		if len(data)+len(line)+1 > MaxBytes/2 {
			break
		}
		data = append(append(line, '\n'), data...)
		from--
	}
	next := f.path + ".next"
	if err := write(next, data); err != nil {
		return err
	}
	if err := os.Rename(next, f.path); err != nil {
		return err
	}
	f.entries, f.size, f.broken = slices.Clone(entries[from:]), int64(len(data)), false
	return nil
}

// write creates or truncates a file and syncs it.
func write(path string, data []byte) error {
	file, err := os.OpenFile(filepath.Clean(path), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// Recent returns at most n of the newest entries that are not older than since and for which
// which returns true, the oldest first. If which is nil, all match.
func (f *File) Recent(n int, since time.Duration, which func(Entry) bool) []Entry {
	after := f.now().Add(-since).UnixMilli()
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Entry
	for _, e := range slices.Backward(f.entries) {
		if len(out) == n {
			break
		}
		if e.Timestamp >= after && (which == nil || which(e)) {
			out = append(out, e)
		}
	}
	slices.Reverse(out)
	return out
}

// Lessons returns the last MaxLessons entries within LessonTTL that have a result or the
// reason of a decision.
func (f *File) Lessons() []Entry {
	return f.Recent(MaxLessons, LessonTTL, func(e Entry) bool {
		return e.Type != Registered && (e.CompletionSummary != "" || e.Reasoning != "")
	})
}

// LastRepo returns the repository of the newest entry that has one, or "".
func (f *File) LastRepo() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range slices.Backward(f.entries) {
		if e.Repo != "" {
			return e.Repo
		}
	}
	return ""
}
