package overlay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// madeFolders is the kind of an entry that only created parent folders of a file.
const madeFolders Kind = "folders"

// entry is one line of a journal: a change that is about to be made.
type entry struct {
	Kind    Kind     `json:"kind"`
	Root    string   `json:"root"` // without symbolic links
	Path    string   `json:"path"` // below Root
	Made    []string `json:"made,omitempty"`
	Existed bool     `json:"existed,omitempty"`
	Before  []byte   `json:"before,omitempty"`
	After   string   `json:"after,omitempty"` // digest
	Edits   []Edit   `json:"edits,omitempty"`
	Done    []done   `json:"done,omitempty"` // of each edit
	Block   *block   `json:"block,omitempty"`
	Text    string   `json:"text,omitempty"` // that Cut removed
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

type journalFile struct{ *os.File }

// createJournal creates a journal. An existing one is a conflict, reason overlay_exists.
func createJournal(path string) (*journalFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, capability.Errorf(capability.CodeConflict, "overlay.apply", "the journal %s is there already", path).With("overlay_exists",
			"undo the session that it is of")
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "overlay.apply", "the journal "+path+" cannot be made", err)
	}
	return &journalFile{f}, nil
}

// add appends an entry and returns when it is on disk.
func (j *journalFile) add(e entry) error {
	line, err := jsonx.Marshal(e)
	if err == nil {
		_, err = j.Write(append(line, '\n'))
	}
	if err == nil {
		err = j.Sync()
	}
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "overlay.apply", "the journal "+j.Name()+" cannot be written", err)
	}
	return nil
}

// Undo reverts the changes in the journal, the last first, and removes the journal. Without a
// journal it does nothing. If a change cannot be reverted, Undo still reverts the others, keeps
// the journal, returns the errors joined, and may be called again. It leaves things that were
// changed since, such as a link in place of a file, or another value.
func Undo(ctx context.Context, journal string) error {
	data, err := os.ReadFile(journal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "overlay.undo", "the journal "+journal+" cannot be read", err)
	}
	var entries []entry
	for line := range bytes.Lines(data) {
		var e entry
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the process ended while writing the entry, before the change
		}
		if err := jsonx.UnmarshalStrict(line, &e); err != nil {
			return capability.Wrap(capability.CodeFailed, "overlay.undo", "the journal "+journal+" is damaged", err).
				With("overlay_journal", "look into it: each line says what was changed and what was there before")
		}
		entries = append(entries, e)
	}
	var all []error
	for _, e := range slices.Backward(entries) {
		if err := e.undo(ctx); err != nil {
			all = append(all, err)
		}
	}
	if all != nil {
		return errors.Join(all...)
	}
	if err := os.Remove(journal); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return capability.Wrap(capability.CodeFailed, "overlay.undo", "the journal "+journal+" cannot be removed", err)
	}
	return nil
}

// undo reverts one change and removes the parent folders it created that are empty. It does nothing
// if the file or its root no longer exists or is not the session's.
func (e *entry) undo(ctx context.Context) error {
	full := filepath.Join(e.Root, e.Path)
	if _, err := os.Lstat(e.Root); errors.Is(err, fs.ErrNotExist) {
		return nil // the root was removed, for example a scratch folder
	}
	p, err := openPlace(e.Root, full, true) // it contained no link
	if capability.CodeOf(err) == capability.CodeDenied {
		return nil // the path now leads elsewhere, so it is not the session's
	}
	if err != nil {
		return err
	}
	defer p.close()
	switch e.Kind {
	case Folder:
		err = p.removeTree()
	case Private, Link:
		if info, serr := p.root.Lstat(p.rel); serr == nil && info.Mode().IsRegular() == (e.Kind == Private) && !info.IsDir() {
			err = p.root.Remove(p.rel)
		}
	case Merge, Block, Cut:
		err = e.undoShared(ctx, p)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if capability.CodeOf(err) != capability.CodeInternal {
			return err
		}
		return capability.Wrap(capability.CodeFailed, "overlay.undo", full+" cannot be made what it was", err)
	}
	for _, dir := range slices.Backward(e.Made) {
		_ = p.root.Remove(dir) // removes only an empty folder
	}
	return nil
}

// undoShared reverts a change of a file that others write too. An unchanged file gets its previous
// content; from a changed one only the session's own parts are removed. A file that the
// session created is removed if nothing else is left.
func (e *entry) undoShared(ctx context.Context, p *place) error {
	if info, err := p.root.Lstat(p.rel); err != nil || !info.Mode().IsRegular() {
		return err // it was removed or replaced meanwhile
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := p.read()
	if err != nil || !now.existed {
		return err
	}
	var want []byte
	switch {
	case digest(now.data) == e.After:
		want = e.Before
	case e.Kind == Block:
		want = e.Block.removeFrom(now.data)
	case e.Kind == Cut:
		want = uncut(now.data, []byte(e.Text))
	default:
		if want, err = takeBack(now.data, e.Edits, e.Done); err != nil {
			return err
		}
	}
	switch {
	case !e.Existed && e.Kind == Merge && isEmptyObject(want), !e.Existed && len(want) == 0:
		return p.root.Remove(p.rel)
	case bytes.Equal(want, now.data):
		return nil
	}
	return p.replace(want, now)
}

// uncut appends text to a changed file, unless it is there again.
func uncut(doc, text []byte) []byte {
	if bytes.Contains(doc, bytes.TrimSpace(text)) {
		return doc
	}
	if len(doc) > 0 && doc[len(doc)-1] != '\n' {
		doc = append(doc, '\n')
	}
	return append(doc, text...)
}
