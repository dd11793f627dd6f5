package workspace

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
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// ScratchStatus is the decision about a scratch folder.
type ScratchStatus string

// Values of ScratchStatus.
const (
	ScratchPending  ScratchStatus = "pending_decision"
	ScratchKept     ScratchStatus = "kept"
	ScratchPromoted ScratchStatus = "promoted"
	ScratchDeleted  ScratchStatus = "deleted"
)

// Retention is the action on a scratch folder when its session ends.
type Retention string

// Values of Retention. "keep" means Persistent, "" means AskFirst.
const (
	Ephemeral  Retention = "ephemeral"        // delete at the end
	AskFirst   Retention = "pending_decision" // ask, delete after the TTL
	Persistent Retention = "persistent"
)

// ScratchRecord is the record of one scratch folder.
type ScratchRecord struct {
	SessionID string        `json:"sessionId"`
	Path      string        `json:"path"`
	Status    ScratchStatus `json:"status"`
	Label     string        `json:"label,omitempty"`
	CreatedAt time.Time     `json:"createdAt"`
	// ExpiresAt is when the folder is deleted without a decision; zero: never.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// TerminalEvent names the end of the session; "" while it runs.
	TerminalEvent string `json:"terminalEvent,omitempty"`
	// EndedAt is the time of the session's end, or of the folder's deletion.
	EndedAt time.Time `json:"endedAt,omitzero"`
	// Folder is the original name of the folder. Promotion changes Path, but not Folder.
	Folder string `json:"folder"`
}

// ScratchConfig configures a ScratchKeeper. Folders are created in and promoted to Base. State
// is the folder of the records.
type ScratchConfig struct {
	Base, State string
	Retention   Retention
	TTL         time.Duration    // 0 means 24 h
	Now         func() time.Time // nil means time.Now
}

// ScratchKeeper manages the folders of sessions without a repository. It removes only folders
// that it made, and only after their session has ended; the end of a turn is not enough. The
// decision of a user (keep, delete, promote to a name) and open decisions survive a restart.
// It is safe for concurrent use.
type ScratchKeeper struct {
	cfg   ScratchConfig
	base  string // with links resolved
	root  *os.Root
	files *RecordFolder[ScratchRecord]

	mu  sync.Mutex
	all map[string]ScratchRecord // by Folder
}

const scratchPrefix = "scratch-"

// OpenScratch creates Base if needed and reads the records. The caller closes the result.
func OpenScratch(cfg ScratchConfig) (*ScratchKeeper, error) {
	switch cfg.Retention {
	case "":
		cfg.Retention = AskFirst
	case "keep":
		cfg.Retention = Persistent
	case Ephemeral, AskFirst, Persistent:
	default:
		return nil, capability.Errorf(capability.CodeInvalidInput, "scratch.open", "%q is not a retention", cfg.Retention).
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
	files, all, _, err := OpenRecords[ScratchRecord](cfg.State)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, fmt.Errorf("scratch folder: %w", err)
	}
	k := &ScratchKeeper{cfg: cfg, base: base, root: root, files: files, all: all}
	for _, r := range all {
		if err := k.finish(r); err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	return k, nil
}

// Close closes the base folder; the keeper is unusable afterwards.
func (k *ScratchKeeper) Close() error { return k.root.Close() }

// Create creates the folder of a session. It fails with conflict if the session has one.
func (k *ScratchKeeper) Create(session, label string) (ScratchRecord, error) {
	if session == "" || len(session) > maxSessionID || len(label) > maxLabel {
		return ScratchRecord{}, capability.Errorf(capability.CodeInvalidInput, "scratch.create",
			"a session has an id of 1 to %d bytes, a label at most %d", maxSessionID, maxLabel).With("invalid_session", "")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if r, ok := k.find(session); ok && r.Status != ScratchDeleted {
		return ScratchRecord{}, capability.Errorf(capability.CodeConflict, "scratch.create",
			"the session has a scratch folder already").With("exists", "use that one")
	}
	name := ids.Hex(scratchPrefix, 8)
	r := ScratchRecord{
		SessionID: session, Path: filepath.Join(k.base, name), Status: ScratchPending, Label: label,
		CreatedAt: k.cfg.Now().UTC(), Folder: name,
	}
	// The record is written first, because an unrecorded folder would never be removed.
	if err := k.put(r); err != nil {
		return ScratchRecord{}, err
	}
	if err := k.root.Mkdir(name, 0o700); err != nil {
		delete(k.all, name)
		return ScratchRecord{}, errors.Join(fmt.Errorf("make a scratch folder: %w", err), k.files.Delete(name))
	}
	return r, nil
}

// Adopt assigns the folder with that path to another session, whose end then counts. It does
// nothing if path is not a scratch folder.
func (k *ScratchKeeper) Adopt(path, session string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.all {
		if r.Path == path && (r.Status == ScratchPending || r.Status == ScratchKept) {
			r.SessionID, r.TerminalEvent, r.EndedAt, r.ExpiresAt = session, "", time.Time{}, time.Time{}
			return k.put(r)
		}
	}
	return nil
}

// ScratchInterrupted is the event of an end after which another session may continue in the
// folder. The folder is then not deleted at once, whatever the retention.
const ScratchInterrupted = "interrupted"

// Release deletes the folder of an ended session if the retention is Ephemeral and no user
// decided to keep it; otherwise it does nothing.
func (k *ScratchKeeper) Release(session string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r, ok := k.find(session); ok && r.Status == ScratchPending && r.TerminalEvent != "" && k.cfg.Retention == Ephemeral {
		return k.remove(r)
	}
	return nil
}

// SessionEnded records that a session ended with event ("" means "ended") and applies the
// retention to its folder: it deletes it, keeps it, or sets its expiry. It does nothing for a
// session without folder or a repeated call.
func (k *ScratchKeeper) SessionEnded(session, event string) error {
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
	case r.Status != ScratchPending: // decided while it ran
	case k.cfg.Retention == Persistent:
		r.Status = ScratchKept
	case k.cfg.Retention == AskFirst || event == ScratchInterrupted:
		r.ExpiresAt = r.EndedAt.Add(k.cfg.TTL)
	}
	if err := k.put(r); err != nil || k.cfg.Retention != Ephemeral || r.Status != ScratchPending || event == ScratchInterrupted {
		return err
	}
	return k.remove(r)
}

// List returns all records, the newest first.
func (k *ScratchKeeper) List() []ScratchRecord {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]ScratchRecord, 0, len(k.all))
	for _, r := range k.all {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b ScratchRecord) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.Folder, b.Folder))
	})
	return out
}

// Keep marks a folder as kept, so that it is not deleted automatically; the session may still
// run. Errors: not_found, reason no_scratch; conflict, reason wrong_state.
func (k *ScratchKeeper) Keep(session string) (ScratchRecord, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, err := k.pending(session, "scratch.keep", false)
	if err != nil {
		return ScratchRecord{}, err
	}
	r.Status, r.ExpiresAt = ScratchKept, time.Time{}
	return r, k.put(r)
}

// Delete removes a folder, also a kept one. Errors: not_found, reason no_scratch; conflict,
// reason session_live while the session runs, or wrong_state for a promoted one.
func (k *ScratchKeeper) Delete(session string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, err := k.pending(session, "scratch.delete", true)
	if err != nil {
		return err
	}
	return k.remove(r)
}

// Promote moves a folder to <base>/<name> and keeps it. The name is reduced to a slug, with a
// number if it exists. Errors: those of Delete; conflict, reason name_taken, if a thousand
// names exist.
func (k *ScratchKeeper) Promote(session, name string) (ScratchRecord, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, err := k.pending(session, "scratch.promote", true)
	if err != nil {
		return ScratchRecord{}, err
	}
	if info, err := k.root.Lstat(r.Folder); err != nil || !info.IsDir() {
		return ScratchRecord{}, capability.Wrap(capability.CodeNotFound, "scratch.promote", "the folder is not there any more",
			err).With("no_scratch", "")
	}
	target, err := k.free(scratchSlug(name))
	if err != nil {
		return ScratchRecord{}, err
	}
	moved := r
	moved.Path, moved.Status, moved.ExpiresAt = filepath.Join(k.base, target), ScratchPromoted, time.Time{}
	err = k.put(moved) // before the move, so that finish can repair a crash
	if err == nil {
		err = k.finish(moved)
	}
	if err != nil {
		return ScratchRecord{}, errors.Join(err, k.put(r))
	}
	return moved, nil
}

// finish moves a promoted folder if that has not been done yet.
func (k *ScratchKeeper) finish(r ScratchRecord) error {
	if _, err := k.root.Lstat(r.Folder); r.Status != ScratchPromoted || err != nil {
		return nil
	}
	if err := k.root.Rename(r.Folder, filepath.Base(r.Path)); err != nil {
		return fmt.Errorf("move a scratch folder: %w", err)
	}
	return nil
}

// free returns name, with a number if it exists in the base folder.
func (k *ScratchKeeper) free(name string) (string, error) {
	for n := 1; n <= maxScratchSuffix; n++ {
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
	return "", capability.Errorf(capability.CodeConflict, "scratch.promote", "%s and %d more names are taken", name,
		maxScratchSuffix-1).With("name_taken", "choose another name")
}

// scratchSlug returns the name of a promoted folder, which does not begin with the prefix of scratch
// folders.
func scratchSlug(name string) string {
	if s := Word(name, maxKeptSlug, "kept"); !strings.HasPrefix(s, scratchPrefix) {
		return s
	}
	return "kept-" + Word(name, maxKeptSlug, "")
}

// Sweep removes expired folders, and records that were deleted or promoted longer than the TTL
// ago. It returns the sessions whose folders were removed, and the joined errors of others.
func (k *ScratchKeeper) Sweep() ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.cfg.Now()
	var gone []string
	var errs []error
	for name, r := range k.all {
		switch {
		case r.TerminalEvent == "":
		case r.Status == ScratchPending && (k.cfg.Retention == Ephemeral && r.ExpiresAt.IsZero() || !r.ExpiresAt.IsZero() &&
			!now.Before(r.ExpiresAt)):
			if err := k.remove(r); err != nil {
				errs = append(errs, err)
				continue
			}
			gone = append(gone, r.SessionID)
		case (r.Status == ScratchDeleted || r.Status == ScratchPromoted) && now.Sub(r.EndedAt) >= k.cfg.TTL:
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

// remove deletes a folder by its name below the base's handle, so that nothing outside is
// deleted even if a link replaced the folder, and marks its record deleted.
func (k *ScratchKeeper) remove(r ScratchRecord) error {
	if !strings.HasPrefix(r.Folder, scratchPrefix) {
		return capability.Errorf(capability.CodeDenied, "scratch.delete", "the folder was not made here").With("security_violation",
			"remove it by hand")
	}
	if err := hostfs.RemoveTree(k.root, r.Folder); err != nil {
		return capability.Wrap(capability.CodeFailed, "scratch.delete", "the scratch folder could not be removed", err).With("cleanup_failed",
			"look at what is left of it")
	}
	r.Status, r.ExpiresAt, r.EndedAt = ScratchDeleted, time.Time{}, k.cfg.Now().UTC()
	return k.put(r)
}

// pending returns the session's folder if a decision about it is possible. ended requires that
// the session has ended. Errors: no_scratch, wrong_state, session_live.
func (k *ScratchKeeper) pending(session, op string, ended bool) (ScratchRecord, error) {
	r, ok := k.find(session)
	switch {
	case !ok || r.Status == ScratchDeleted:
		return r, capability.Errorf(capability.CodeNotFound, op, "the session has no scratch folder").With("no_scratch", "")
	case r.Status == ScratchPromoted:
		return r, capability.Errorf(capability.CodeConflict, op, "the folder was promoted already").With("wrong_state",
			"it is an ordinary folder now")
	case ended && r.TerminalEvent == "":
		return r, capability.Errorf(capability.CodeConflict, op, "the session has not ended").With("session_live", "stop the session first")
	}
	return r, nil
}

// find returns the record of the session's folder, the newest that is not deleted if possible.
func (k *ScratchKeeper) find(session string) (found ScratchRecord, ok bool) {
	for _, r := range k.all {
		if r.SessionID == session && (!ok || found.Status == ScratchDeleted || r.CreatedAt.After(found.CreatedAt) && r.Status != ScratchDeleted) {
			found, ok = r, true
		}
	}
	return found, ok
}

func (k *ScratchKeeper) put(r ScratchRecord) error {
	if err := k.files.Put(r.Folder, r); err != nil {
		return err
	}
	k.all[r.Folder] = r
	return nil
}
