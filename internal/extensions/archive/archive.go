// Package archive reads an extension package, a zip file or a folder, and writes it to
// disk. Headers are not trusted: names are checked for every way in which two of them
// could mean one file, and bytes are counted as they are decompressed. Files are written
// through an [os.Root]. The tree's hash covers what was written, so a zip file and the
// folder that it was made from have the same hash.
package archive

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// WorkDir is the only folder that an extension may write to. It is not part of the
// package: a package cannot contain it, and no hash covers it.
const WorkDir = "work"

// MadeDir contains the programs that the install plan produced, whose hashes are in the
// manifest. A package cannot contain it, and the package's hash does not cover it.
const MadeDir = ".made"

// Member is one file of a tree. Its mode becomes 0755 if executable, else 0644.
type Member struct {
	Path       string // relative, '/' between components
	Executable bool

	open   func() (io.ReadCloser, error)
	packed int64 // bytes in the zip; -1 for a folder
}

// Tree is a checked set of files. It is not safe for concurrent use.
type Tree struct {
	members []Member // sorted by path
}

// Members returns the files, sorted by path. The caller must not change them.
func (t *Tree) Members() []Member { return t.members }

// Has reports whether the tree holds the file.
func (t *Tree) Has(name string) bool {
	_, ok := t.find(name)
	return ok
}

func (t *Tree) find(name string) (*Member, bool) {
	i, ok := slices.BinarySearchFunc(t.members, name, func(m Member, name string) int { return cmp.Compare(m.Path, name) })
	if !ok {
		return nil, false
	}
	return &t.members[i], true
}

// ReadFile returns one file; not_found if it does not exist, too_large beyond limit bytes.
func (t *Tree) ReadFile(name string, limit int64) ([]byte, error) {
	m, ok := t.find(name)
	if !ok {
		return nil, missing(name)
	}
	r, err := m.open()
	if err != nil {
		return nil, because(broken("%s cannot be read", shown(name)), err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, because(broken("%s cannot be read", shown(name)), err)
	case int64(len(data)) > limit:
		return nil, large("%s is longer than %d bytes", shown(name), limit)
	}
	return data, nil
}

// Extract writes every file to the directory and returns the tree's hash. A file that exists is an
// error. On an error, the files written so far stay; the caller removes the directory.
func (t *Tree) Extract(ctx context.Context, to *os.Root) (hash string, err error) {
	w := writer{ctx: ctx, to: to, sum: newTreeHash()}
	for i := range t.members {
		if err := w.write(&t.members[i]); err != nil {
			return "", err
		}
	}
	return w.sum.hex(), nil
}

type writer struct {
	ctx      context.Context
	to       *os.Root
	sum      *treeHash
	inflated int64
	over     bool // replace existing files
}

func (w *writer) write(m *Member) error {
	if err := w.ctx.Err(); err != nil {
		return capability.AsError(err)
	}
	if dir := path.Dir(m.Path); dir != "." {
		if err := w.to.MkdirAll(dir, 0o755); err != nil {
			return unwritten(m.Path, err)
		}
	}
	if w.over {
		if err := w.to.Remove(m.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return unwritten(m.Path, err)
		}
	}
	f, err := w.to.OpenFile(m.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return unwritten(m.Path, err)
	}
	sum := sha256.New()
	err = w.inflate(m, io.MultiWriter(f, sum))
	if err == nil {
		err = f.Chmod(modeOf(m.Executable)) // the umask restricts the mode at creation
	}
	if err = errors.Join(err, f.Close()); err != nil {
		if _, ours := errors.AsType[*capability.Error](err); ours {
			return err
		}
		return unwritten(m.Path, err)
	}
	w.sum.add(m.Path, m.Executable, sum.Sum(nil))
	return nil
}

// inflate copies a member and stops as soon as the decompressed bytes exceed a limit,
// whatever the header declares.
func (w *writer) inflate(m *Member, to io.Writer) error {
	r, err := m.open()
	if err != nil {
		return because(broken("%s cannot be read", shown(m.Path)), err)
	}
	defer r.Close()
	buf := make([]byte, 64<<10)
	var n int64
	for {
		k, err := r.Read(buf)
		n += int64(k)
		w.inflated += int64(k)
		switch {
		case w.inflated > MaxInflated:
			return large("the files have more than %d bytes together", MaxInflated)
		case m.packed >= 0 && n > ratioFrom && n > MaxRatio*m.packed:
			return large("%s grows to more than %d times its packed size", shown(m.Path), MaxRatio)
		}
		if k > 0 {
			if _, err := to.Write(buf[:k]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return because(broken("%s is damaged", shown(m.Path)), err)
		}
		if w.ctx.Err() != nil {
			return capability.AsError(w.ctx.Err())
		}
	}
}

// Unpack writes a tree that is not a package (an install plan's extract.zip) to a folder
// and replaces existing files.
func (t *Tree) Unpack(ctx context.Context, to *os.Root) error {
	w := writer{ctx: ctx, to: to, sum: newTreeHash(), over: true}
	for i := range t.members {
		if err := w.write(&t.members[i]); err != nil {
			return err
		}
	}
	return nil
}

// Package returns the tree as a package, without its single top folder if it has one. It refuses a
// tree without manifest.json, and one with a program where only documents are allowed.
func (t *Tree) Package() (*Tree, error) {
	out := &Tree{members: slices.Clone(t.members)}
	if !t.Has("manifest.json") {
		top := ""
		for i := range out.members {
			first, rest, nested := strings.Cut(out.members[i].Path, "/")
			if !nested || top != "" && first != top {
				return nil, broken("manifest.json is neither at the top nor in the one folder there").With(ReasonInvalid,
					"give the folder that holds manifest.json; junctor extensions new NAME makes a whole one")
			}
			top, out.members[i].Path = first, rest
		}
	}
	if !out.Has("manifest.json") {
		return nil, broken("there is no manifest.json").With(ReasonInvalid,
			"give the folder that holds manifest.json; junctor extensions new NAME makes a whole one")
	}
	for i := range out.members {
		name := out.members[i].Path
		switch first, _, nested := strings.Cut(name, "/"); {
		case strings.EqualFold(first, WorkDir), strings.EqualFold(first, MadeDir):
			return nil, refused("%s: the folder %s is made where the extension is installed and cannot be delivered", shown(name), first)
		case !nested && program(name):
			return nil, refused("%s: programs do not belong in the package's top folder", shown(name)).
				With(ReasonViolation, "move it to tools/ or scripts/ and declare it in the manifest")
		}
	}
	return out, nil
}

func program(name string) bool {
	return slices.Contains([]string{".py", ".js", ".sh", ".exe", ".bat", ".cmd", ".ps1"}, strings.ToLower(path.Ext(name)))
}

func modeOf(executable bool) os.FileMode {
	if executable {
		return 0o755
	}
	return 0o644
}

// Digest returns the SHA-256 of a stream of at most MaxBytes, in lower-case hex.
func Digest(r io.Reader) (string, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(r, MaxBytes+1))
	switch {
	case err != nil:
		return "", because(broken("the archive cannot be read"), err)
	case n > MaxBytes:
		return "", large("the archive has more than %d bytes", MaxBytes)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// The reasons of this package's errors; exceeded limits are too_large.
const (
	ReasonInvalid   = "invalid_archive"    // malformed or unsupported
	ReasonViolation = "security_violation" // an attempt to write elsewhere, or to mislead
	ReasonTooLarge  = "archive_too_large"
)

// because returns err if it is a *capability.Error already, else e with err as cause.
func because(e *capability.Error, err error) error {
	if own, ok := errors.AsType[*capability.Error](err); ok {
		return own
	}
	e.Err = err
	return e
}

func broken(format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeInvalidInput, "archive", format, args...).With(ReasonInvalid, "")
}

func refused(format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeDenied, "archive", format, args...).With(ReasonViolation, "")
}

func large(format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeTooLarge, "archive", format, args...).With(ReasonTooLarge, "")
}

func missing(name string) *capability.Error {
	return capability.Errorf(capability.CodeNotFound, "archive", "%s is not in the package", shown(name)).With("file_not_found", "")
}

func unwritten(name string, err error) error {
	return capability.Wrap(capability.CodeFailed, "archive", fmt.Sprintf("%s could not be written", shown(name)), err).With("extract_failed",
		"")
}

func shown(name string) string { return fmt.Sprintf("%.120q", name) }

// Sum returns the SHA-256 of one file of at most limit bytes, in lower-case hex. Its
// errors are those of [Tree.ReadFile].
func (t *Tree) Sum(name string, limit int64) (string, error) {
	m, ok := t.find(name)
	if !ok {
		return "", missing(name)
	}
	r, err := m.open()
	if err != nil {
		return "", because(broken("%s cannot be read", shown(name)), err)
	}
	defer r.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return "", because(broken("%s cannot be read", shown(name)), err)
	case n > limit:
		return "", large("%s is longer than %d bytes", shown(name), limit)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
