// Package overlay changes files for one session of a task agent, and undoes exactly
// those changes.
//
// A session needs its own files, a few keys in a user's settings, a block of text at the end
// of a memory file, a line that git ignores. Each of those is a [Change]. Every change is
// written to a journal on disk before it is made, so that [Undo] works after a stop, a crash
// and a restart alike, and may be repeated. A file without other modifications is restored
// byte for byte. In a file that others have modified, only the session's own parts are
// removed.
package overlay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"

	"github.com/junctor-run/junctor/capability"
)

// Kind is the kind of a change.
type Kind string

// The kinds of changes.
const (
	// Folder creates a folder, mode 0700. Undo removes it with its content.
	Folder Kind = "folder"
	// Private writes a new file, mode 0600, that must not exist yet. Undo removes it.
	Private Kind = "private"
	// Link makes a symbolic link to Target, that must not exist yet. Undo removes the link.
	Link Kind = "link"
	// Merge applies Edits to a JSON file. A file that is not one JSON object is an
	// error and is not changed; a missing file is created. Comments and trailing commas are
	// accepted and stay.
	Merge Kind = "merge"
	// Cut removes Text, which must occur exactly once, from a text file. Undo puts it back in
	// its place or, if the file was changed since, behind the line Anchor, before the table of TOML
	// that followed it, or else at the end.
	Cut Kind = "cut"
	// Insert puts Text behind the line Anchor, which must occur exactly once, in a text file.
	// Undo removes it.
	Insert Kind = "insert"
	// Block puts Text between two marker lines at the end of a text file. The markers are
	// comments of Markdown, or with Hash lines that begin with "#".
	Block Kind = "block"
	// Ignore adds Text, lines of patterns, to the ignore file of the repository that contains
	// the folder Path: its info/exclude, which is never committed. It does nothing outside of
	// repositories, or if a repository that .git names does not contain the folder.
	Ignore Kind = "ignore"
)

// Change is one change of a file.
type Change struct {
	Kind Kind
	// Path is the absolute path of the file. Root is the folder that must contain it:
	// symbolic links are followed within Root and never out of it. Missing folders between
	// them are created with mode 0700.
	Path   string
	Root   string
	Text   string // Private, Block, Ignore, Cut, Insert
	Anchor string // Insert, Cut: a line with its end
	Hash   bool   // Block
	Target string // Link
	Edits  []Edit // Merge
}

// Edit is one value in a JSON object. Missing objects on the path are created.
type Edit struct {
	Keys  []string        `json:"keys"` // from the outermost object inwards; at least one
	Value json.RawMessage `json:"value"`
	// Append adds Value to the array at Keys unless it has an equal element. Otherwise Value
	// replaces the value at Keys.
	Append bool `json:"append,omitempty"`
	// Remove removes the member at Keys; Value is ignored.
	Remove bool `json:"remove,omitempty"`
}

// Apply applies changes in their order. journal is a file that does not exist yet, in
// a folder that does; owner names the session in markers, 1 to 80 letters, digits, dots,
// underscores and hyphens. If a change fails, those before it are undone, and the error
// is that of the change; its reasons are overlay_outside, overlay_exists, overlay_broken,
// overlay_special, overlay_busy and overlay_invalid.
func Apply(ctx context.Context, journal, owner string, changes []Change) error {
	if !ownerForm.MatchString(owner) || len(changes) > MaxChanges {
		return capability.Errorf(capability.CodeInvalidInput, "overlay.apply", "a session has a plain name and at most %d changes",
			MaxChanges).With("overlay_invalid", "")
	}
	j, err := createJournal(journal)
	if err != nil {
		return err
	}
	for i := range changes {
		if err = apply(ctx, j, owner, &changes[i]); err != nil {
			break
		}
	}
	err = errors.Join(err, j.Close())
	if err == nil {
		return nil
	}
	// The changes must be undone even if ctx has ended.
	if undo := Undo(context.WithoutCancel(ctx), journal); undo != nil {
		return errors.Join(err, undo)
	}
	return err
}

// Extend applies further changes to a session that exists, with the rules and errors of Apply. If one
// fails, the session is as it was before.
func Extend(ctx context.Context, journal, owner string, changes []Change) error {
	before, err := readJournal(journal)
	if err != nil {
		return err
	}
	if before == nil || !ownerForm.MatchString(owner) || len(before)+len(changes) > MaxChanges {
		return capability.Errorf(capability.CodeInvalidInput, "overlay.apply", "a session that exists has a plain name and at most %d changes",
			MaxChanges).With("overlay_invalid", "undo it, and make all changes in a new one")
	}
	j, whole, err := openJournal(journal)
	if err != nil {
		return err
	}
	for i := range changes {
		if err = apply(ctx, j, owner, &changes[i]); err != nil {
			break
		}
	}
	err = errors.Join(err, j.Close())
	if err == nil {
		return nil
	}
	return errors.Join(err, undoFrom(context.WithoutCancel(ctx), journal, whole))
}

var ownerForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,80}$`)

func apply(ctx context.Context, j *journalFile, owner string, c *Change) error {
	switch c.Kind {
	case Folder, Private, Link:
		return applyOwn(j, c)
	case Merge:
		return applyShared(ctx, j, c.Root, c.Path, func(before []byte) (entry, []byte, error) {
			after, done, err := carryOut(before, c.Edits)
			return entry{Kind: Merge, Edits: c.Edits, Done: done}, after, err
		})
	case Block:
		return applyBlock(ctx, j, c.Root, c.Path, c.block(owner))
	case Cut, Insert:
		return applyShared(ctx, j, c.Root, c.Path, func(before []byte) (entry, []byte, error) {
			after, err := Preview(before, owner, []Change{*c})
			return entry{Kind: c.Kind, Text: c.Text, Anchor: c.Anchor}, after, err
		})
	case Ignore:
		info, err := infoFolder(c.Root, c.Path)
		if err != nil || info == "" {
			return err
		}
		return applyBlock(ctx, j, filepath.Dir(info), filepath.Join(info, "exclude"), newBlock("# ", "", owner, c.Text))
	}
	return capability.Errorf(capability.CodeInvalidInput, "overlay.apply", "there is no change of kind %q", c.Kind).With("overlay_invalid", "")
}

// applyOwn creates a folder, file or link that belongs to the session alone. An existing one is a
// conflict.
func applyOwn(j *journalFile, c *Change) error {
	p, err := openPlace(c.Root, c.Path, true)
	if err != nil {
		return err
	}
	defer p.close()
	if _, err := p.root.Lstat(p.rel); !errors.Is(err, fs.ErrNotExist) {
		return capability.Errorf(capability.CodeConflict, "overlay.apply", "%s is there already and is not ours to replace", c.Path).
			With("overlay_exists", "remove it, or undo the session that left it")
	}
	made := p.missing()
	if err := j.add(entry{Kind: c.Kind, Root: p.rootPath, Path: p.rel, Made: made}); err != nil {
		return err
	}
	if err := p.makeFolders(made); err != nil {
		return failed(c.Path, err)
	}
	switch c.Kind {
	case Folder:
		err = p.root.Mkdir(p.rel, 0o700)
	case Link:
		err = p.root.Symlink(c.Target, p.rel)
	default:
		err = p.create(p.rel, []byte(c.Text), 0o600)
	}
	if err != nil {
		return failed(c.Path, err)
	}
	return nil
}

func applyBlock(ctx context.Context, j *journalFile, root, path string, b block) error {
	return applyShared(ctx, j, root, path, func(before []byte) (entry, []byte, error) {
		if b.in(before) {
			return entry{}, nil, capability.Errorf(capability.CodeConflict, "overlay.apply", "%s still has a block of this session",
				path).With("overlay_exists", "undo the session first")
		}
		return entry{Kind: Block, Block: &b}, b.appendTo(before), nil
	})
}

// applyShared changes a file that others write too, under its lock. change returns the journal entry
// and the new content. The entry is on disk before the file is replaced.
func applyShared(ctx context.Context, j *journalFile, root, path string, change func(before []byte) (entry, []byte, error)) error {
	p, err := openPlace(root, path, false)
	if err != nil {
		return err
	}
	defer p.close()
	made := p.missing()
	if len(made) > 0 {
		// The lock needs the folders, so they are created and journaled first.
		if err := j.add(entry{Kind: madeFolders, Root: p.rootPath, Path: p.rel, Made: made}); err != nil {
			return err
		}
		if err := p.makeFolders(made); err != nil {
			return failed(path, err)
		}
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	before, err := p.read()
	if err != nil {
		return err
	}
	e, after, err := change(before.data)
	if err != nil {
		if e := capability.AsError(err); e.Target == "" {
			e.Target = path
			return e
		}
		return err
	}
	e.Root, e.Path, e.Existed, e.Before, e.After = p.rootPath, p.rel, before.existed, before.data, digest(after)
	if err := j.add(e); err != nil {
		return err
	}
	if err := p.replace(after, before); err != nil {
		return failed(path, err)
	}
	return nil
}

func outside(path string) error {
	return capability.Errorf(capability.CodeDenied, "overlay.apply", "%s does not lie where it must, or symbolic links lead out of there",
		path).
		With("overlay_outside", "a session's files stay in its own folders, the workspace and the user's settings")
}

func failed(path string, err error) error {
	return capability.Wrap(capability.CodeFailed, "overlay.apply", path+" cannot be changed", err)
}

// Preview returns the content that a file would have after the changes, which must all be of
// kind Merge, Block, Cut or Insert and of this file.
func Preview(text []byte, owner string, changes []Change) ([]byte, error) {
	for _, c := range changes {
		switch c.Kind {
		case Merge:
			after, _, err := carryOut(text, c.Edits)
			if err != nil {
				return nil, err
			}
			text = after
		case Block:
			b := c.block(owner)
			text = b.appendTo(text)
		case Cut:
			if c.Text == "" || bytes.Count(text, []byte(c.Text)) != 1 {
				return nil, broken("the text to remove does not occur exactly once")
			}
			text = bytes.Replace(text, []byte(c.Text), nil, 1)
		case Insert:
			after, ok := behind(text, c.Anchor, c.Text)
			if !ok {
				return nil, broken("the line to insert behind does not occur exactly once")
			}
			text = after
		default:
			return nil, capability.Errorf(capability.CodeInvalidInput, "overlay.preview", "a change of kind %q has no preview", c.Kind).
				With("overlay_invalid", "")
		}
	}
	return text, nil
}

// block returns the block of a change of kind Block.
func (c *Change) block(owner string) block {
	if c.Hash {
		return newBlock("# ", "", owner, c.Text)
	}
	return newBlock("<!-- ", " -->", owner, c.Text)
}
