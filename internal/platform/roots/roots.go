// Package roots resolves the paths that callers of built-in file functions send, beneath root
// directories that the operator configured. Access goes through os.Root, so that neither ".."
// nor a symbolic link leads out of a root. Error messages do not contain host paths.
package roots

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/junctor-run/junctor/capability"
)

// NoneReason is the reason why fs.* and git.* are unavailable without a root.
const NoneReason = "no root directory is configured"

// Root is a directory that callers may access.
type Root struct {
	ID       string // unique; callers send it as rootId
	Path     string // absolute host path; not shown to callers
	ReadOnly bool
}

// Set holds the opened roots; the first is the default. It is safe for
// concurrent use.
type Set struct{ roots []opened }

type opened struct {
	Root
	real string // Path with symbolic links resolved
	dir  *os.Root
}

// Open opens every root. The caller must close the result. An empty list is valid, see Empty. The
// error is invalid_input, reason invalid_root.
func Open(list []Root) (*Set, error) {
	s := &Set{}
	seen := make(map[string]bool)
	for _, r := range list {
		if err := s.open(r, seen); err != nil {
			_ = s.Close()
			return nil, err
		}
	}
	return s, nil
}

// open checks and opens one root and adds it to the set.
func (s *Set) open(r Root, seen map[string]bool) error {
	bad := func(why string, cause error) error {
		e := capability.Wrap(capability.CodeInvalidInput, "roots.open", "root "+r.ID+" "+why, cause)
		return e.With("invalid_root", "give every root its own id and the absolute path of an existing directory")
	}
	switch {
	case r.ID == "":
		return bad("(unnamed) has no id", nil)
	case seen[r.ID]:
		return bad("is configured twice", nil)
	case !filepath.IsAbs(r.Path):
		return bad("has a path that is not absolute", nil)
	}
	seen[r.ID] = true
	real, err := filepath.EvalSymlinks(r.Path)
	if err != nil {
		return bad("does not exist or cannot be read", err)
	}
	dir, err := os.OpenRoot(real)
	if err != nil {
		return bad("is not a directory that can be opened", err)
	}
	r.Path = filepath.Clean(r.Path)
	s.roots = append(s.roots, opened{Root: r, real: real, dir: dir})
	return nil
}

// Close closes the directories. Places of the set cannot be used afterwards.
func (s *Set) Close() error {
	var errs []error
	for _, r := range s.roots {
		errs = append(errs, r.dir.Close())
	}
	s.roots = nil
	return errors.Join(errs...)
}

// Empty reports whether no root is configured.
func (s *Set) Empty() bool { return s == nil || len(s.roots) == 0 }

// Place is a path beneath a root. It may not exist, or lead out through a symbolic link; FS detects
// that when it is used.
type Place struct {
	ID       string   // of the root
	ReadOnly bool     // of the root
	FS       *os.Root // shared; do not close
	Rel      string   // clean, slash-separated, "." for the root itself
	real     string
}

// Resolve returns the place of a caller's path. A blank path is the root itself. A relative path
// is beneath the root rootID (the first if blank). An absolute host path must lie in that root or,
// without rootID, in any. Errors: unavailable without roots; not_found for an unknown root;
// denied, reason security_violation, for a path that leads out; invalid_input for a malformed
// path (NUL, over 4096 bytes).
func (s *Set) Resolve(rootID, p string) (Place, error) {
	if s.Empty() {
		return Place{}, capability.Errorf(capability.CodeUnavailable, "roots.resolve", NoneReason).
			With("unconfigured", "the operator has to configure a root directory")
	}
	switch {
	case strings.ContainsRune(p, 0):
		return Place{}, capability.Errorf(capability.CodeInvalidInput, "roots.resolve", "the path holds a NUL byte").With("invalid_path", "")
	case len(p) > maxPath:
		return Place{}, capability.Errorf(capability.CodeInvalidInput, "roots.resolve", "the path is longer than %d bytes",
			maxPath).With("invalid_path", "")
	}
	candidates := s.roots
	if rootID != "" {
		candidates = nil
		for _, r := range s.roots {
			if r.ID == rootID {
				candidates = []opened{r}
			}
		}
		if candidates == nil {
			return Place{}, capability.Errorf(capability.CodeNotFound, "roots.resolve", "no root %q is configured", rootID).
				With("unknown_root", "leave rootId out to use the default root")
		}
	}
	if strings.TrimSpace(p) == "" {
		p = "."
	}
	native := filepath.FromSlash(p)
	if !filepath.IsAbs(native) {
		return candidates[0].place(native)
	}
	for _, r := range candidates {
		for _, base := range []string{r.Path, r.real} {
			if rel, err := filepath.Rel(base, native); err == nil && filepath.IsLocal(rel) {
				return r.place(rel)
			}
		}
	}
	return Place{}, Escape()
}

func (r opened) place(rel string) (Place, error) {
	rel = filepath.Clean(rel)
	if !filepath.IsLocal(rel) {
		return Place{}, Escape()
	}
	return Place{ID: r.ID, ReadOnly: r.ReadOnly, FS: r.dir, Rel: filepath.ToSlash(rel), real: r.real}, nil
}

// Directory returns the real host paths of the place and of its root, for use as a working
// directory. Errors: those of [Explain]; invalid_input if it is not a directory; denied if its
// real path is outside the root.
func (p Place) Directory() (dir, root string, err error) {
	info, err := p.FS.Stat(filepath.FromSlash(p.Rel))
	if err != nil {
		return "", "", Explain("roots.directory", p.Rel, err)
	}
	if !info.IsDir() {
		return "", "", capability.Errorf(capability.CodeInvalidInput, "roots.directory", "%s is not a directory", p.Rel).With("not_a_directory",
			"")
	}
	dir, err = filepath.EvalSymlinks(filepath.Join(p.real, filepath.FromSlash(p.Rel)))
	if err != nil {
		return "", "", Explain("roots.directory", p.Rel, err)
	}
	if rel, err := filepath.Rel(p.real, dir); err != nil || !filepath.IsLocal(rel) {
		return "", "", Escape()
	}
	return dir, p.real, nil
}

// Escape returns the error for a path that leads out of its root. It does not reveal whether the
// target exists.
func Escape() *capability.Error {
	return capability.Errorf(capability.CodeDenied, "roots.resolve", "the path leads out of the root").
		With("security_violation", "use a path relative to the root, without symbolic links that leave it")
}

// Explain returns a file system error about rel as an error for callers, whose message contains no
// host path. A *capability.Error is returned unchanged.
func Explain(op, rel string, err error) error {
	var e *capability.Error
	switch {
	case errors.As(err, &e):
		return e
	case escapes(err):
		e = Escape()
		e.Err = err
		return e
	case errors.Is(err, fs.ErrNotExist):
		return capability.Wrap(capability.CodeNotFound, op, rel+" does not exist", err).With("not_found", "")
	case errors.Is(err, fs.ErrExist):
		return capability.Wrap(capability.CodeConflict, op, rel+" exists already", err).With("exists", "")
	case errors.Is(err, fs.ErrPermission):
		return capability.Wrap(capability.CodeFailed, op, "the file system does not permit access to "+rel, err).With("permission_denied", "")
	case errors.Is(err, syscall.ENOTDIR):
		return capability.Wrap(capability.CodeInvalidInput, op, rel+" is not, or is not beneath, a directory", err).With("not_a_directory", "")
	case errors.Is(err, syscall.EISDIR):
		return capability.Wrap(capability.CodeInvalidInput, op, rel+" is a directory", err).With("is_a_directory", "")
	case errors.Is(err, syscall.ENAMETOOLONG):
		return capability.Wrap(capability.CodeInvalidInput, op, "a name in the path is too long", err).With("invalid_path", "")
	case errors.Is(err, syscall.ELOOP):
		return capability.Wrap(capability.CodeInvalidInput, op, rel+" has too many symbolic links", err).With("invalid_path", "")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return capability.Wrap(capability.CodeFailed, op, "there is no space left for "+rel, err).With("no_space", "")
	}
	return capability.Wrap(capability.CodeFailed, op, "the file system could not work on "+rel, err)
}

// escapes reports whether os.Root rejected a path. It compares the text, because the standard
// library does not export the error; a test detects a change of the text.
func escapes(err error) bool {
	return err != nil && strings.Contains(err.Error(), "path escapes from parent")
}
