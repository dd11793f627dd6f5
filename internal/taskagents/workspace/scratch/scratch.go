// Package scratch keeps the folders that sessions without a repository work in, and
// what becomes of them. Only a folder that was made here is ever removed, and only
// once its session has ended: the end of a turn is no reason. What a person decides
// — keep, delete, promote to a name — and what is still undecided survive a restart.
package scratch

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
)

// Status is what was decided about a folder.
type Status string

// The statuses.
const (
	Pending  Status = "pending_decision"
	Kept     Status = "kept"
	Promoted Status = "promoted"
	Deleted  Status = "deleted"
)

// Retention says what happens when a session ends.
type Retention string

// The retentions. "keep" reads as Persistent, "" as AskFirst.
const (
	Ephemeral  Retention = "ephemeral"        // delete at the end
	AskFirst   Retention = "pending_decision" // ask, delete after the TTL
	Persistent Retention = "persistent"
)

// Record is one folder.
type Record struct {
	SessionID string    `json:"sessionId"`
	Path      string    `json:"path"`
	Status    Status    `json:"status"`
	Label     string    `json:"label,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// ExpiresAt is when it is deleted unless somebody decides; zero: never.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// TerminalEvent is how the session ended, "" while it lives.
	TerminalEvent string `json:"terminalEvent,omitempty"`
	// EndedAt is when that, or the deletion, was.
	EndedAt time.Time `json:"endedAt,omitzero"`
	// Folder is the name that was made, which Path ends in until it is promoted.
	Folder string `json:"folder"`
}

// Config says where. Base is where folders are made and promoted to; State is where
// the records are.
type Config struct {
	Base, State string
	Retention   Retention
	TTL         time.Duration    // 0 means 24 h
	Now         func() time.Time // nil means the machine's clock
}

// Keeper looks after the folders. It is safe for concurrent use.
type Keeper struct {
	cfg   Config
	base  string // real
	root  *os.Root
	files *workspace.RecordFolder[Record]

	mu  sync.Mutex
	all map[string]Record // by Folder
}

const (
	prefix      = "scratch-"
	maxSuffix   = 1000
	maxLabel    = 200
	maxSessions = 128 // bytes of a session's id
)

// Open reads the records and makes Base. The result must be closed.
func Open(cfg Config) (*Keeper, error) {
	switch cfg.Retention {
	case "":
		cfg.Retention = AskFirst
	case "keep":
		cfg.Retention = Persistent
	case Ephemeral, AskFirst, Persistent:
	default:
		return nil, capability.Errorf(capability.CodeInvalidInput, "scratch.open", "%q is no retention", cfg.Retention).
			With("invalid_retention", "use ephemeral, pending_decision or persistent")
	}
	if cfg.TTL <= 0 {
		cfg.TTL = 24 * time.Hour
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if err := os.MkdirAll(cfg.Base, 0o700); err != nil {
		return nil, fmt.Errorf("scratch folder: %w", err)
	}
	base, err := filepath.EvalSymlinks(cfg.Base)
	if err != nil {
		return nil, fmt.Errorf("scratch folder: %w", err)
	}
	files, all, _, err := workspace.OpenRecords[Record](cfg.State)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, fmt.Errorf("scratch folder: %w", err)
	}
	k := &Keeper{cfg: cfg, base: base, root: root, files: files, all: all}
	for _, r := range all {
		if err := k.finish(r); err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	return k, nil
}

// Close closes the base folder; the keeper is unusable afterwards.
func (k *Keeper) Close() error { return k.root.Close() }

// Create makes the folder of a session. A session has one: another is a conflict.
func (k *Keeper) Create(session, label string) (Record, error) {
	if session == "" || len(session) > maxSessions || len(label) > maxLabel {
		return Record{}, capability.Errorf(capability.CodeInvalidInput, "scratch.create", "a session has an id of 1 to %d bytes, a label at most %d", maxSessions, maxLabel).With("invalid_session", "")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if r, ok := k.find(session); ok && r.Status != Deleted {
		return Record{}, capability.Errorf(capability.CodeConflict, "scratch.create", "the session has a scratch folder already").With("exists", "use that one")
	}
	name := ids.Hex(prefix, 8)
	r := Record{SessionID: session, Path: filepath.Join(k.base, name), Status: Pending, Label: label, CreatedAt: k.cfg.Now().UTC(), Folder: name}
	// The record first: a folder that nobody remembers would stay for ever.
	if err := k.put(r); err != nil {
		return Record{}, err
	}
	if err := k.root.Mkdir(name, 0o700); err != nil {
		delete(k.all, name)
		return Record{}, errors.Join(fmt.Errorf("make a scratch folder: %w", err), k.files.Delete(name))
	}
	return r, nil
}

// Adopt gives the folder of that path to another session, which goes on in it; it then
// ends with that one. A path that is no session's folder is no error.
func (k *Keeper) Adopt(path, session string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.all {
		if r.Path == path && (r.Status == Pending || r.Status == Kept) {
			r.SessionID, r.TerminalEvent, r.EndedAt, r.ExpiresAt = session, "", time.Time{}, time.Time{}
			return k.put(r)
		}
	}
	return nil
}

// Interrupted as the event of an end says that another session may go on in the folder:
// it is not deleted at once, whatever the retention.
const Interrupted = "interrupted"

// Release says that nobody goes on in the folder of a session that has ended: what is
// ephemeral goes now. A session without such a folder is no error.
func (k *Keeper) Release(session string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r, ok := k.find(session); ok && r.Status == Pending && r.TerminalEvent != "" && k.cfg.Retention == Ephemeral {
		return k.remove(r)
	}
	return nil
}

// SessionEnded applies the retention to a session's folder; event says how it ended.
// A session without a folder, or one that had ended, is no error.
func (k *Keeper) SessionEnded(session, event string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.find(session)
	if !ok || r.TerminalEvent != "" {
		return nil
	}
	if event == "" {
		event = "ended"
	}
	r.TerminalEvent, r.EndedAt = event, k.cfg.Now().UTC()
	switch {
	case r.Status != Pending: // decided while it ran
	case k.cfg.Retention == Persistent:
		r.Status = Kept
	case k.cfg.Retention == AskFirst || event == Interrupted:
		r.ExpiresAt = r.EndedAt.Add(k.cfg.TTL)
	}
	if err := k.put(r); err != nil || k.cfg.Retention != Ephemeral || r.Status != Pending || event == Interrupted {
		return err
	}
	return k.remove(r)
}

// List returns all records, the newest first.
func (k *Keeper) List() []Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]Record, 0, len(k.all))
	for _, r := range k.all {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Record) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.Folder, b.Folder))
	})
	return out
}

// Keep keeps a folder for good; it may be said while the session lives.
func (k *Keeper) Keep(session string) (Record, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, err := k.pending(session, "scratch.keep", false)
	if err != nil {
		return Record{}, err
	}
	r.Status, r.ExpiresAt = Kept, time.Time{}
	return r, k.put(r)
}

// Delete removes a folder. Errors: not_found, reason no_scratch; conflict, reason
// session_live while the session has not ended, or wrong_state for a promoted one.
func (k *Keeper) Delete(session string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, err := k.pending(session, "scratch.delete", true)
	if err != nil {
		return err
	}
	return k.remove(r)
}

// Promote moves a folder to <base>/<name>, the name made harmless and given a number
// where it is taken. Errors as of Delete; conflict, reason name_taken, when a
// thousand numbers are.
func (k *Keeper) Promote(session, name string) (Record, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, err := k.pending(session, "scratch.promote", true)
	if err != nil {
		return Record{}, err
	}
	if info, err := k.root.Lstat(r.Folder); err != nil || !info.IsDir() {
		return Record{}, capability.Wrap(capability.CodeNotFound, "scratch.promote", "the folder is not there any more", err).With("no_scratch", "")
	}
	target, err := k.free(slug(name))
	if err != nil {
		return Record{}, err
	}
	moved := r
	moved.Path, moved.Status, moved.ExpiresAt = filepath.Join(k.base, target), Promoted, time.Time{}
	err = k.put(moved) // first, so that finish can mend a crash
	if err == nil {
		err = k.finish(moved)
	}
	if err != nil {
		return Record{}, errors.Join(err, k.put(r))
	}
	return moved, nil
}

// finish moves a promoted folder that has not been moved yet.
func (k *Keeper) finish(r Record) error {
	if _, err := k.root.Lstat(r.Folder); r.Status != Promoted || err != nil {
		return nil
	}
	if err := k.root.Rename(r.Folder, filepath.Base(r.Path)); err != nil {
		return fmt.Errorf("move a scratch folder: %w", err)
	}
	return nil
}

// free finds a name that nothing has yet.
func (k *Keeper) free(name string) (string, error) {
	for n := 1; n <= maxSuffix; n++ {
		candidate := name
		if n > 1 {
			candidate += "-" + strconv.Itoa(n)
		}
		_, err := k.root.Lstat(candidate)
		if errors.Is(err, fs.ErrNotExist) {
			return candidate, nil
		}
		if err != nil {
			return "", fmt.Errorf("look for a name: %w", err)
		}
	}
	return "", capability.Errorf(capability.CodeConflict, "scratch.promote", "%s and %d more names are taken", name, maxSuffix-1).With("name_taken", "choose another name")
}

// slug is a name of lower-case letters, digits and hyphens that begins like none of ours.
func slug(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() >= 60 {
			break
		}
	}
	s := strings.Trim(b.String(), "-")
	if s == "" || strings.HasPrefix(s, prefix) {
		s = strings.Trim("kept-"+s, "-")
	}
	return s
}

// Sweep removes folders whose time has come, and forgets records that ended, deleted
// or promoted, longer than the TTL ago. It returns the sessions whose folders went.
func (k *Keeper) Sweep() ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.cfg.Now()
	var gone []string
	var errs []error
	for name, r := range k.all {
		switch {
		case r.TerminalEvent == "":
		case r.Status == Pending && (k.cfg.Retention == Ephemeral && r.ExpiresAt.IsZero() || !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt)):
			if err := k.remove(r); err != nil {
				errs = append(errs, err)
				continue
			}
			gone = append(gone, r.SessionID)
		case (r.Status == Deleted || r.Status == Promoted) && now.Sub(r.EndedAt) >= k.cfg.TTL:
			if err := k.files.Delete(name); err != nil {
				errs = append(errs, err)
				continue
			}
			delete(k.all, name)
		}
	}
	slices.Sort(gone)
	return gone, errors.Join(errs...)
}

// remove deletes what we made, by its name in our folder: whatever stands there now,
// a link included, nothing elsewhere is touched.
func (k *Keeper) remove(r Record) error {
	if !strings.HasPrefix(r.Folder, prefix) {
		return capability.Errorf(capability.CodeDenied, "scratch.delete", "the folder was not made here").With("security_violation", "remove it by hand")
	}
	if err := k.root.RemoveAll(r.Folder); err != nil {
		return capability.Wrap(capability.CodeFailed, "scratch.delete", "the scratch folder could not be removed", err).With("cleanup_failed", "look at what is left of it")
	}
	r.Status, r.ExpiresAt, r.EndedAt = Deleted, time.Time{}, k.cfg.Now().UTC()
	return k.put(r)
}

// pending finds a folder about which something can still be decided.
func (k *Keeper) pending(session, op string, ended bool) (Record, error) {
	r, ok := k.find(session)
	switch {
	case !ok || r.Status == Deleted:
		return r, capability.Errorf(capability.CodeNotFound, op, "the session has no scratch folder").With("no_scratch", "")
	case r.Status == Promoted:
		return r, capability.Errorf(capability.CodeConflict, op, "the folder was promoted already").With("wrong_state", "it is an ordinary folder now")
	case ended && r.TerminalEvent == "":
		return r, capability.Errorf(capability.CodeConflict, op, "the session has not ended").With("session_live", "stop the session first")
	}
	return r, nil
}

// find returns the session's folder, the newest where an older was deleted.
func (k *Keeper) find(session string) (found Record, ok bool) {
	for _, r := range k.all {
		if r.SessionID == session && (!ok || found.Status == Deleted || r.CreatedAt.After(found.CreatedAt) && r.Status != Deleted) {
			found, ok = r, true
		}
	}
	return found, ok
}

func (k *Keeper) put(r Record) error {
	if err := k.files.Put(r.Folder, r); err != nil {
		return err
	}
	k.all[r.Folder] = r
	return nil
}
