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
	"strings"

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
	Text    string   `json:"text,omitempty"` // that Cut removed, or Insert inserted
	Anchor  string   `json:"anchor,omitempty"`
	// Taken marks edits that another session made and left to this one, which needs them too.
	// They came first, so they are undone last.
	Taken bool `json:"taken,omitempty"`
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

type journalFile struct{ *os.File }

// createJournal creates a journal. An existing one is a conflict, reason overlay_exists.
func createJournal(path string) (*journalFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600)
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

// openJournal opens a journal to append to it. whole is its size, without an entry that is not complete,
// which is removed.
func openJournal(path string) (j *journalFile, whole int64, err error) {
	data, err := os.ReadFile(path)
	if err == nil {
		whole = int64(bytes.LastIndexByte(data, '\n') + 1)
		err = os.Truncate(path, whole)
	}
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	}
	if err != nil {
		return nil, 0, capability.Wrap(capability.CodeFailed, "overlay.apply", "the journal "+path+" cannot be opened", err)
	}
	return &journalFile{f}, whole, nil
}

// undoFrom reverts the changes in a journal that were appended after its first bytes, and cuts them off.
func undoFrom(ctx context.Context, journal string, whole int64) error {
	data, err := os.ReadFile(journal)
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "overlay.undo", "the journal "+journal+" cannot be read", err)
	}
	added, err := decodeEntries(data[whole:])
	var all []error
	for _, e := range slices.Backward(added) {
		all = append(all, e.undo(ctx, journal))
	}
	if err = errors.Join(append(all, err)...); err != nil {
		return err
	}
	if err := os.Truncate(journal, whole); err != nil {
		return capability.Wrap(capability.CodeFailed, "overlay.undo", "the journal "+journal+" cannot be changed", err)
	}
	return nil
}

// add appends an entry and returns when it is on disk. Another session may append too.
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
// journal it does nothing. An edit of a JSON file that a session with a journal in the same
// folder needs too is not reverted but left to that session, which reverts it at its end. The
// caller must not undo two journals of one folder at the same time. If a change cannot be reverted, Undo still reverts the others, keeps
// the journal, returns the errors joined, and may be called again. It leaves things that were
// changed since, such as a link in place of a file, or another value.
func Undo(ctx context.Context, journal string) error {
	entries, err := readJournal(journal)
	if err != nil {
		return err
	}
	var all []error
	for _, e := range slices.Backward(entries) {
		if err := e.undo(ctx, journal); err != nil {
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

// PreviewUndo returns the content that a file would have after an undo, and whether it would be removed.
// The changes in the journal must all be of kind Merge, Block, Cut or Insert and of this file.
func PreviewUndo(journal string, text []byte) (after []byte, removed bool, err error) {
	entries, err := readJournal(journal)
	if err != nil || text == nil {
		return text, false, err
	}
	for _, e := range slices.Backward(entries) {
		switch e.Kind {
		case Merge, Block, Cut, Insert:
			if text, removed, err = e.reverted(text); err != nil || removed {
				return nil, removed, err
			}
		case Folder, Private, Link, madeFolders:
		}
	}
	return text, false, nil
}

// readJournal returns the changes in a journal, in the order in which they were made, or nil without one.
func readJournal(journal string) ([]entry, error) {
	data, err := os.ReadFile(journal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "overlay.undo", "the journal "+journal+" cannot be read", err)
	}
	entries, err := decodeEntries(data)
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "overlay.undo", "the journal "+journal+" is damaged", err).
			With("overlay_journal", "look into it: each line says what was changed and what was there before")
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return takenFirst(a) - takenFirst(b) })
	return entries, nil
}

func takenFirst(e entry) int {
	if e.Taken {
		return 0
	}
	return 1
}

// decodeEntries returns the entries of a journal without the last one if it is not complete: the
// process ended while it was written, before the change.
func decodeEntries(data []byte) (list []entry, err error) {
	for line := range bytes.Lines(data) {
		var e entry
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		if err := jsonx.UnmarshalStrict(line, &e); err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// leave leaves the edits that other sessions need to them, and marks them as nothing to revert. The
// caller holds the lock of the file.
func (e *entry) leave(journal string) error {
	files, err := os.ReadDir(filepath.Dir(journal))
	if err != nil {
		return err
	}
	for _, f := range files {
		name := filepath.Join(filepath.Dir(journal), f.Name())
		if !f.Type().IsRegular() || name == journal || filepath.Ext(name) != filepath.Ext(journal) {
			continue
		}
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		others, err := decodeEntries(data)
		if err != nil {
			continue // it is reported when it is undone
		}
		left := entry{Kind: Merge, Root: e.Root, Path: e.Path, Existed: e.Existed, Taken: true}
		for i, edit := range e.Edits {
			needs := func(o entry) bool { return o.needs(e, edit) }
			if e.Done[i].Nothing || edit.Remove || !slices.ContainsFunc(others, needs) {
				continue
			}
			// In a second attempt the other session may have it already.
			if !slices.ContainsFunc(others, func(o entry) bool { return o.Taken && needs(o) }) {
				left.Edits, left.Done = append(left.Edits, edit), append(left.Done, e.Done[i])
			}
			e.Done[i].Nothing, e.After = true, ""
		}
		if left.Edits == nil {
			continue
		}
		opened, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		other := &journalFile{opened}
		if err := errors.Join(other.add(left), other.Close()); err != nil {
			return err
		}
	}
	return nil
}

// needs reports whether o has the edit of another session's entry, on the same file.
func (o *entry) needs(e *entry, edit Edit) bool {
	return o.Kind == Merge && o.Root == e.Root && o.Path == e.Path && slices.ContainsFunc(o.Edits, func(own Edit) bool {
		return own.Append == edit.Append && !own.Remove && slices.Equal(own.Keys, edit.Keys) && equal(own.Value, edit.Value)
	})
}

// undo reverts one change and removes the parent folders it created that are empty. It does nothing
// if the file or its root no longer exists or is not the session's.
func (e *entry) undo(ctx context.Context, journal string) error {
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
	case Merge, Block, Cut, Insert:
		err = e.undoShared(ctx, p, journal)
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
func (e *entry) undoShared(ctx context.Context, p *place, journal string) error {
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
	if e.Kind == Merge {
		if err := e.leave(journal); err != nil {
			return err
		}
	}
	want, gone, err := e.reverted(now.data)
	switch {
	case err != nil:
		return err
	case gone:
		return p.root.Remove(p.rel)
	case bytes.Equal(want, now.data):
		return nil
	}
	return p.replace(want, now)
}

// reverted returns the content of a shared file without the session's change, and whether the file
// is to be removed, because the session created it and nothing else is left.
func (e *entry) reverted(now []byte) (want []byte, gone bool, err error) {
	switch {
	case digest(now) == e.After:
		want = e.Before
	case e.Kind == Block:
		want = e.Block.removeFrom(now)
	case e.Kind == Cut:
		want = e.uncut(now)
	case e.Kind == Insert:
		want = now
		if bytes.Count(want, []byte(e.Text)) == 1 {
			want = bytes.Replace(want, []byte(e.Text), nil, 1)
		}
	default:
		if want, err = takeBack(now, e.Edits, e.Done); err != nil {
			return nil, false, err
		}
	}
	return want, !e.Existed && (e.Kind == Merge && isEmptyObject(want) || len(want) == 0), nil
}

// behind returns doc with text behind the line anchor. ok is false unless that occurs exactly once.
func behind(doc []byte, anchor, text string) (out []byte, ok bool) {
	for line := range bytes.Lines(doc) {
		if out = append(out, line...); anchor != "" && mark(line) == mark([]byte(anchor)) && line[0] == anchor[0] {
			if ok {
				return nil, false
			}
			if line[len(line)-1] != '\n' {
				out = append(out, '\n')
			}
			out, ok = append(out, text...), true
		}
	}
	return out, ok
}

// reindent returns text with the indentation of the first line of rest, whose writer may use another.
func reindent(text, rest string) string {
	indent := func(s string) string { return s[:len(s)-len(strings.TrimLeft(s, " "))] }
	line, _, _ := strings.Cut(rest, "\n")
	own, want := indent(text), indent(line)
	if strings.TrimSpace(line) == "" || want == "" || own == want {
		return text
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, own); ok {
			line = want + rest
		}
		out.WriteString(line)
	}
	return out.String()
}

// uncut puts the text of a Cut back into a changed file, behind the line Anchor, before the header of the
// table that followed it, or at the end, unless it is there again.
func (e *entry) uncut(doc []byte) []byte {
	anchor, text := e.Anchor, []byte(e.Text)
	if bytes.Contains(doc, bytes.TrimSpace(text)) {
		return doc
	}
	if _, tail, ok := bytes.Cut(e.Before, text); ok && anchor == "" {
		if out, ok := before(doc, tail, text); ok {
			return out
		}
	}
	if _, rest, ok := bytes.Cut(doc, []byte(anchor)); ok && anchor != "" {
		if out, ok := behind(doc, anchor, reindent(string(text), string(rest))); ok {
			return out
		}
	}
	if key, _, _ := strings.Cut(anchor, ":"); anchor != "" {
		if bytes.HasPrefix(doc, []byte(key+":")) || bytes.Contains(doc, []byte("\n"+key+":")) {
			return doc // its members have another form, into which the text does not fit
		}
		text = append([]byte(anchor), text...)
	}
	if len(doc) > 0 && doc[len(doc)-1] != '\n' {
		doc = append(doc, '\n')
	}
	return append(doc, text...)
}

// before returns doc with text before the line with which tail begins, which must be the header of a TOML
// table. ok is false unless doc has that line exactly once.
func before(doc, tail, text []byte) (out []byte, ok bool) {
	header, _, _ := bytes.Cut(tail, []byte("\n"))
	if !bytes.HasPrefix(header, []byte("[")) {
		return nil, false
	}
	for line := range bytes.Lines(doc) {
		if mark(line) == mark(header) {
			if ok {
				return nil, false
			}
			out, ok = append(out, text...), true
		}
		out = append(out, line...)
	}
	return out, ok
}
